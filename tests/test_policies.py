"""Recovery policies against what really happened: the matrix, with an oracle that reasons from the facts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from plays import LATE_BY_SECONDS, ONE, THREE, Played, Stage, attempts, every_crash

from labkit.errors import NotSent, OutcomeUnknown, Refused, RemoteError
from labkit.exchange import Standing
from labkit.policies import BY_CAPABILITY, POLICIES, Ask, Decision, Doubt, Policy, Resend, Settle
from labkit.records import Attempt, Operation, Status
from labkit.remote import Capabilities
from labkit.retries import Backoff, Budget
from labkit.runs import Verdict
from labkit.seams import Delivery, Network
from labkit.states import Direction, State

ONCE, DOUBLED, LOST, PERSON = Verdict.EXACTLY_ONCE, Verdict.DUPLICATED, Verdict.LOST, Verdict.NEEDS_A_PERSON
HARMFUL = {Verdict.DUPLICATED, Verdict.LOST, Verdict.STUCK}
LONG, SHORT = 86_400.0, 20.0
LEASE = 30.0
KINDS: dict[str, dict[str, bool]] = {
    "neither": {},
    "key": {"idempotency_keys": True},
    "query": {"status_query": True},
    "both": {"idempotency_keys": True, "status_query": True},
    "fenced query": {"status_query": True, "fencing_tokens": True},
    "all": {"idempotency_keys": True, "status_query": True, "fencing_tokens": True},
}
Opened = Callable[..., Stage]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    stages: list[Stage] = []

    def open_stage(kind: str, key_ttl_seconds: float = LONG, late_by: float = LATE_BY_SECONDS, **more: object) -> Stage:
        folder = tmp_path / str(len(stages))
        folder.mkdir()
        can = Capabilities(key_ttl_seconds=key_ttl_seconds, **KINDS[kind], **more)  # type: ignore[arg-type]
        stages.append(Stage(folder, can, late_by))
        return stages[-1]

    yield open_stage
    for stage in stages:
        stage.close()


# The oracle: what must come of one operation, told from the facts of its first attempt alone.

CRASHES = ("", "claim", "intend", "send", "checkpoint")
"""After what the first worker dies; a time-out leaves a doubt without any crash."""
DELIVERIES = (Delivery.DELIVERED, Delivery.REQUEST_LOST, Delivery.RESPONSE_LOST, Delivery.LATE)


def really_happened(crash: str, delivery: Delivery) -> str:
    """`known` where nobody is ever in doubt, else what became of the first request: never, at once, or late."""
    if crash == "intend":
        return "never"
    if delivery is Delivery.DELIVERED:
        return "at once" if crash == "send" else "known"
    return {Delivery.REQUEST_LOST: "never", Delivery.RESPONSE_LOST: "at once", Delivery.LATE: "late"}[delivery]


def expected(policy: str, kind: str, ttl: float, crash: str, delivery: Delivery) -> Verdict:
    happened = really_happened(crash, delivery)
    if happened == "known":
        return ONCE
    can = KINDS[kind]
    keys, query, fence = (bool(can.get(one)) for one in ("idempotency_keys", "status_query", "fencing_tokens"))
    another_decides = crash in ("intend", "send")  # the next worker, under a larger token
    decided_at = LEASE if another_decides else 0.0
    arrives_at = {"never": None, "at once": 0.0, "late": LATE_BY_SECONDS}[happened]
    if policy in ("assume_done", "ask_person"):
        return PERSON if policy == "ask_person" else LOST if arrives_at is None else ONCE
    if policy == "query_then_ask":
        return ONCE if query and happened == "at once" else PERSON
    if policy == "by_capability":
        by_key, by_record = keys and decided_at + 120 < ttl, query and happened == "at once"
        by_fence = query and fence and another_decides
        return ONCE if by_key or by_record or by_fence else PERSON
    if policy == "query_first" and query and happened == "at once":
        return ONCE
    # What is left sends again at once. One key for both sendings makes them one, unless it is forgotten in between;
    # and a late request is shut out where the second sending came first and had a larger token.
    larger_token = another_decides or policy != "same_key"  # the others let the task go and claim it anew
    if arrives_at is None or (happened == "late" and fence and larger_token):
        return ONCE
    same_key = policy == "same_key" and keys
    return ONCE if same_key and abs(arrives_at - decided_at) < ttl else DOUBLED


CELLS = [
    (kind, ttl) for kind, can in KINDS.items() for ttl in (LONG, SHORT) if ttl == LONG or can.get("idempotency_keys")
]


@pytest.mark.parametrize(("kind", "ttl"), CELLS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_cell_of_the_matrix_comes_to_what_the_facts_say(
    opened: Opened, policy: str, kind: str, ttl: float
) -> None:
    stage = opened(kind, ttl)
    for crash, delivery in itertools.product(CRASHES, DELIVERIES):
        if crash == "checkpoint" and delivery is not Delivery.DELIVERED:
            continue  # after a time-out there is no answer to record
        plans = [(ONE, "refund"), *((THREE, one.name) for one in THREE if crash in ("intend", "send"))]
        for operations, name in plans:
            point = {"": [], "claim": ["claim"]}.get(crash, [f"{crash} {name}"])
            played = stage.play(POLICIES[policy], operations, point, attempts(delivery, operation=name))
            verdict = expected(policy, kind, ttl, crash, delivery)
            assert played.verdict is verdict, (crash, delivery, name, played)
            assert played.asked == (verdict is PERSON)
            assert len(played.lives) == 1 + len(point)


def test_the_oracle_knows_every_verdict_of_the_matrix() -> None:
    cells = itertools.product(POLICIES, KINDS, (LONG, SHORT), CRASHES, DELIVERIES)
    assert {expected(*cell) for cell in cells} == {ONCE, DOUBLED, LOST, PERSON}


# What the lab says about the matrix, over every crossing at which a worker can die.

NEVER_ASKING = ("assume_done", "blind_replay", "replay_transcript", "same_key", "query_first")
PATIENT = Budget(max_attempts=50)


def plays(
    stage: Stage,
    policy: str,
    deliveries: Sequence[Delivery] = DELIVERIES,
    up_to: int = 1,
    person: bool = False,
    deaths: int = 2,
) -> Iterator[Played]:
    """Every play with up to so many crashes and every fate of the first attempts."""
    for delivery in deliveries:
        network = attempts(delivery, up_to)

        def play(crashes: Sequence[int], network: Network = network) -> Played:
            return stage.play(POLICIES[policy], ONE, crashes, network, person, PATIENT)

        yield from every_crash(play, deaths)


PUNCTUAL = tuple(delivery for delivery in DELIVERIES if delivery is not Delivery.LATE)


@pytest.mark.parametrize("policy", NEVER_ASKING)
def test_with_neither_capability_no_policy_is_safe_without_a_person(opened: Opened, policy: str) -> None:
    assert any(played.verdict in HARMFUL for played in plays(opened("neither"), policy, PUNCTUAL))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", NEVER_ASKING)
def test_where_things_arrive_late_only_the_same_key_is_safe_among_those_that_never_ask(
    opened: Opened, policy: str, kind: str
) -> None:
    played = plays(opened(kind), policy)
    if policy == "same_key" and KINDS[kind].get("idempotency_keys"):
        assert {one.verdict for one in played} == {ONCE}
    else:
        assert any(one.verdict in HARMFUL for one in played)


@pytest.mark.parametrize("kind", ["query", "both"])
def test_a_query_that_resends_is_safe_where_nothing_arrives_late_and_only_there(opened: Opened, kind: str) -> None:
    assert {played.verdict for played in plays(opened(kind), "query_first", PUNCTUAL)} == {ONCE}
    assert DOUBLED in {played.verdict for played in plays(opened(kind), "query_first", [Delivery.LATE], deaths=0)}


def test_a_query_that_lags_makes_a_resend_unsafe_even_where_nothing_arrives_late(opened: Opened) -> None:
    stage = opened("query", query_lag_seconds=60.0)
    assert any(played.verdict is DOUBLED for played in plays(stage, "query_first", PUNCTUAL))
    assert not any(played.verdict in HARMFUL for played in plays(stage, "by_capability", PUNCTUAL))


def test_a_lag_never_lets_a_fenced_not_found_pass_for_final(opened: Opened) -> None:
    stage = opened("fenced query", query_lag_seconds=60.0)
    assert not any(played.verdict in HARMFUL for played in plays(stage, "by_capability"))


def test_the_same_key_doubles_once_it_is_forgotten_and_by_capability_does_not(opened: Opened) -> None:
    stage = opened("key", SHORT)
    assert any(played.verdict is DOUBLED for played in plays(stage, "same_key", PUNCTUAL))
    assert {played.verdict for played in plays(stage, "by_capability")} == {ONCE, PERSON}


@pytest.mark.parametrize("policy", ["same_key", "by_capability"])
def test_a_remote_that_ignores_keys_breaks_every_policy_that_trusts_its_manual(opened: Opened, policy: str) -> None:
    """The manual's word is an assumption of the lab; here is the schedule that breaks the rule without it."""
    played = opened("key", keys_ignored=True).play(POLICIES[policy], ONE, ("send refund",))
    assert played.verdict is DOUBLED


AT_THE_EDGE = LEASE + 120.0
"""At the first take-over a key of this memory could just be forgotten: it must not be used any more."""
MEMORIES = [(kind, ttl) for kind, ttl in CELLS if ttl == LONG] + [
    (kind, ttl) for kind, can in KINDS.items() if can.get("idempotency_keys") for ttl in (SHORT, AT_THE_EDGE, 150.5)
]


@pytest.mark.parametrize(("kind", "ttl"), MEMORIES)
def test_by_capability_neither_doubles_nor_loses_nor_gets_stuck_whoever_dies_twice(
    opened: Opened, kind: str, ttl: float
) -> None:
    for played in plays(opened(kind, ttl), "by_capability", person=True):
        assert played.verdict is ONCE, played
        assert played.task.state is State.SUCCEEDED


@pytest.mark.parametrize(("kind", "ttl"), MEMORIES)
def test_by_capability_is_as_safe_where_one_attempt_after_the_other_goes_astray_and_nobody_answers(
    opened: Opened, kind: str, ttl: float
) -> None:
    for played in plays(opened(kind, ttl, late_by=60.0), "by_capability", up_to=3, deaths=1):
        assert played.verdict in (ONCE, PERSON), played


@pytest.mark.parametrize("fine_print", [{"locks_key_in_flight": True}, {"keys_required": True}])
@pytest.mark.parametrize("kind", ["key", "all"])
def test_by_capability_lives_with_the_fine_print_of_keys(
    opened: Opened, kind: str, fine_print: dict[str, bool]
) -> None:
    for played in plays(opened(kind, **fine_print), "by_capability", up_to=2, person=True, deaths=1):
        assert played.verdict is ONCE, played


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["by_capability", "query_then_ask", "ask_person"])
def test_all_three_operations_end_exactly_once_after_any_crash_when_a_person_tells_the_truth(
    opened: Opened, policy: str, kind: str
) -> None:
    stage = opened(kind)

    def play(crashes: Sequence[int]) -> Played:
        return stage.play(POLICIES[policy], THREE, crashes, attempts(Delivery.LATE), person=True)

    for played in every_crash(play, deaths=1):
        assert (played.verdict, played.task.state) == (ONCE, State.SUCCEEDED), played


@pytest.mark.parametrize("kind", KINDS)
def test_a_remote_that_never_answers_leaves_the_question_to_a_person_within_the_budget(
    opened: Opened, kind: str
) -> None:
    stage = opened(kind)
    played = stage.play(BY_CAPABILITY, ONE, (), lambda call: Delivery.REQUEST_LOST, budget=Budget(4, 3600.0))
    assert played.verdict is PERSON
    assert len(played.task.operations[0].attempts) == (4 if "idempotency_keys" in KINDS[kind] else 1)


def test_a_fenced_not_found_is_not_final_for_a_resend_under_the_querys_own_token(opened: Opened) -> None:
    """The key runs out while its holder resends: what it has sent itself is under way, and no token shuts it out."""
    stage = opened("all", key_ttl_seconds=152.0, late_by=60.0)
    network = attempts(Delivery.LATE, up_to=99)
    played = stage.play(BY_CAPABILITY, ONE, ("send refund",), network, worker={"backoff": Backoff(base_seconds=10)})
    assert len(played.task.operations[0].attempts) > 1
    assert played.verdict is PERSON
    assert sum(played.effects.values()) == 1


# A policy by itself: what it decides, from what it may look at.


class FakeRemote:
    """A wire that answers queries from a list, and remembers how it was asked."""

    name = "payments"

    def __init__(self, capabilities: Capabilities, *answers: Standing | RemoteError) -> None:
        self.capabilities, self.answers, self.asked = capabilities, list(answers), list[tuple[str, int | None]]()

    def query(self, operation_id: str, token: int | None = None) -> Standing:
        self.asked.append((operation_id, token))
        answer = self.answers.pop(0)
        if isinstance(answer, RemoteError):
            raise answer
        return answer


OPERATION = Operation(
    "task-1/refund",
    "refund",
    0,
    Direction.DO,
    "payments",
    {},
    None,
    False,
    None,
    Status.PENDING,
    None,
    None,
    (Attempt(1, "task-1/refund#1", 3, 0.0, None),),
)
FOUND, NOT_FOUND = Standing(True, "payments-1"), Standing(False)
TIME_OUT = OutcomeUnknown("payments", "task-1/refund", "time-out")


def decide(policy: Policy, remote: FakeRemote, token: int = 4, may_resend: bool = True) -> Decision:
    return policy.decide(Doubt(OPERATION, remote, token, may_resend))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "call_1", "call_2"),
    [
        ("assume_done", None, None),
        ("blind_replay", None, None),
        ("query_first", None, None),
        ("query_then_ask", None, None),
        ("ask_person", None, None),
        ("same_key", "task-1/refund", "task-1/refund"),
        ("by_capability", "task-1/refund", "task-1/refund"),
        ("replay_transcript", "task-1/refund/call-1", "task-1/refund/call-2"),
    ],
)
def test_only_the_operation_id_stays_the_same_key_over_tool_calls(
    policy: str, call_1: str | None, call_2: str | None
) -> None:
    key = POLICIES[policy].key
    assert (key("task-1/refund", "call-1"), key("task-1/refund", "call-2")) == (call_1, call_2)


def test_every_policy_is_listed_under_its_own_name() -> None:
    assert {name: policy.name for name, policy in POLICIES.items()} == {name: name for name in POLICIES}
    assert list(POLICIES) == [
        "assume_done",
        "blind_replay",
        "replay_transcript",
        "same_key",
        "query_first",
        "query_then_ask",
        "ask_person",
        "by_capability",
    ]


@pytest.mark.parametrize("policy", ["query_first", "query_then_ask", "by_capability"])
def test_a_query_without_an_answer_is_repeated_twice_and_no_more(policy: str) -> None:
    not_sent = NotSent("payments", "task-1/refund", "refused")
    remote = FakeRemote(Capabilities(status_query=True), TIME_OUT, not_sent, FOUND)
    assert decide(POLICIES[policy], remote) == Settle(True, "status query", "payments-1")
    silent = FakeRemote(Capabilities(status_query=True), *[TIME_OUT] * 9)
    decision = decide(POLICIES[policy], silent)
    assert len(silent.asked) == 3
    assert decision == (Settle(False, "assumed") if policy == "query_first" else Ask("the status query gave no answer"))


def test_a_refused_query_is_an_answer_and_not_repeated() -> None:
    no = Refused("payments", "task-1/refund", "there is no status query", "invalid", 404)
    remote = FakeRemote(Capabilities(status_query=True), no, FOUND)
    assert decide(POLICIES["query_then_ask"], remote) == Ask("the status query gave no answer")


def test_by_capability_prefers_the_key_and_names_how_long_it_is_remembered() -> None:
    both = FakeRemote(Capabilities(idempotency_keys=True, status_query=True, key_ttl_seconds=500.0))
    assert decide(BY_CAPABILITY, both) == Resend(500.0)
    assert both.asked == []


def test_by_capability_turns_to_the_query_once_it_may_not_resend() -> None:
    both = FakeRemote(Capabilities(idempotency_keys=True, status_query=True), FOUND)
    assert decide(BY_CAPABILITY, both, may_resend=False) == Settle(True, "status query", "payments-1")
    key = FakeRemote(Capabilities(idempotency_keys=True))
    assert decide(BY_CAPABILITY, key, may_resend=False) == Ask("no resend can follow, and there is no status query")


@pytest.mark.parametrize(
    ("token", "lag", "decision"),
    [
        (4, 0.0, Settle(False, "fenced status query")),
        (3, 0.0, Ask("not found, but it may be under way")),
        (4, 1.0, Ask("not found, but it may be under way")),
    ],
)
def test_not_found_is_final_only_under_a_larger_token_than_every_attempts_and_without_a_lag(
    token: int, lag: float, decision: Decision
) -> None:
    can = Capabilities(status_query=True, fencing_tokens=True, query_lag_seconds=lag)
    remote = FakeRemote(can, NOT_FOUND)
    assert decide(BY_CAPABILITY, remote, token) == decision
    assert remote.asked == [("task-1/refund", 4 if token == 4 else None)]


def test_without_fencing_no_token_is_handed_over_and_not_found_is_left_to_a_person() -> None:
    remote = FakeRemote(Capabilities(status_query=True), NOT_FOUND)
    assert decide(BY_CAPABILITY, remote) == Ask("not found, but it may be under way")
    assert remote.asked == [("task-1/refund", None)]


def test_what_is_found_settles_with_the_remotes_own_reference_whatever_the_token() -> None:
    for can in (Capabilities(status_query=True), Capabilities(status_query=True, fencing_tokens=True)):
        for token in (3, 4):
            remote = FakeRemote(can, FOUND)
            assert decide(BY_CAPABILITY, remote, token) == Settle(True, "status query", "payments-1")
