"""Recovery policies: what a worker does about an operation whose outcome nobody knows.

A policy is two rules. `key` says which idempotency key an operation is sent with; `decide` says what to do in doubt.
Some of these are wrong on purpose: the lab shows under which conditions each one doubles or loses work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from labkit.errors import Refused, RemoteError
from labkit.exchange import Standing
from labkit.records import Operation
from labkit.wire import Remote

QUERY_TRIES = 3


@dataclass(frozen=True)
class Doubt:
    """All that a policy may look at.

    Args:
        operation: the operation in doubt, with its attempts.
        remote: the wire to its remote, to query; what it can do stands in `remote.capabilities`.
        token: the fencing token of the lease under which the question is asked.
        may_resend: False once no resend can follow: attempts, time or the key's memory are used up, or the remote
            has refused one for good.
    """

    operation: Operation
    remote: Remote
    token: int
    may_resend: bool = True


@dataclass(frozen=True)
class Resend:
    """Send again under the operation's own key, which the remote is believed to remember for so many seconds."""

    key_memory_seconds: float


@dataclass(frozen=True)
class Settle:
    """Record that the operation was, or was not, applied, and on what evidence."""

    applied: bool
    source: str
    reference: str | None = None


@dataclass(frozen=True)
class Ask:
    """Leave it to a person."""

    reason: str


Decision = Resend | Settle | Ask


@dataclass(frozen=True)
class Policy:
    """One way to recover.

    Args:
        name: as in tables and on the command line.
        decide: what to do about a doubt.
        key: the idempotency key for an operation, given its id and the model's id of the tool call.
    """

    name: str
    decide: Callable[[Doubt], Decision]
    key: Callable[[str, str], str | None]


def _no_key(operation_id: str, call_id: str) -> None:
    return None


def _operation_key(operation_id: str, call_id: str) -> str:
    return operation_id


def _call_key(operation_id: str, call_id: str) -> str:
    return f"{operation_id}/{call_id}"


def _assume_done(doubt: Doubt) -> Decision:
    return Settle(True, "assumed", "assumed")


def _assume_not_done(doubt: Doubt) -> Decision:
    return Settle(False, "assumed")


def _same_key(doubt: Doubt) -> Decision:
    return Resend(float("inf")) if doubt.may_resend else Ask("no resend can follow")


def _query_first(doubt: Doubt) -> Decision:
    standing = _look_up(doubt)
    if standing is None:
        return Settle(False, "assumed")
    return Settle(standing.found, "status query", standing.reference)


def _query_then_ask(doubt: Doubt) -> Decision:
    standing = _look_up(doubt)
    if standing is not None and standing.found:
        return Settle(True, "status query", standing.reference)
    return Ask("the status query gave no answer" if standing is None else "not found, but it may be under way")


def _ask_person(doubt: Doubt) -> Decision:
    return Ask("the outcome is unknown")


def _by_capability(doubt: Doubt) -> Decision:
    """Take the strongest evidence that the remote can give, and ask a person where it can give none.

    "Not found" is final only from a remote that has just been handed a token larger than every attempt's: it refuses
    whatever of them is still under way. An effect too young to be seen must not hide from the query, either.
    """
    can = doubt.remote.capabilities
    if can.idempotency_keys and doubt.may_resend:
        return Resend(can.key_ttl_seconds)
    if not can.status_query:
        spent = "no resend can follow, and there is no status query"
        return Ask(spent if can.idempotency_keys else "the remote can neither deduplicate nor tell")
    fencing = can.fencing_tokens and all(attempt.token < doubt.token for attempt in doubt.operation.attempts)
    standing = _look_up(doubt, doubt.token if fencing else None)
    if standing is not None and not standing.found and fencing and not can.query_lag_seconds:
        return Settle(False, "fenced status query")
    if standing is not None and standing.found:
        return Settle(True, "status query", standing.reference)
    return Ask("the status query gave no answer" if standing is None else "not found, but it may be under way")


def _look_up(doubt: Doubt, token: int | None = None) -> Standing | None:
    """Query a few times; None where no answer comes or the remote has none to give."""
    for _ in range(QUERY_TRIES):
        try:
            return doubt.remote.query(doubt.operation.id, token)
        except Refused:
            return None
        except RemoteError:
            continue
    return None


ASSUME_DONE = Policy("assume_done", _assume_done, _no_key)
BLIND_REPLAY = Policy("blind_replay", _assume_not_done, _no_key)
REPLAY_TRANSCRIPT = Policy("replay_transcript", _assume_not_done, _call_key)
SAME_KEY = Policy("same_key", _same_key, _operation_key)
QUERY_FIRST = Policy("query_first", _query_first, _no_key)
QUERY_THEN_ASK = Policy("query_then_ask", _query_then_ask, _no_key)
ASK_PERSON = Policy("ask_person", _ask_person, _no_key)
BY_CAPABILITY = Policy("by_capability", _by_capability, _operation_key)

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        ASSUME_DONE,
        BLIND_REPLAY,
        REPLAY_TRANSCRIPT,
        SAME_KEY,
        QUERY_FIRST,
        QUERY_THEN_ASK,
        ASK_PERSON,
        BY_CAPABILITY,
    )
}
