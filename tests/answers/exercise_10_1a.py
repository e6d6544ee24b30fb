"""Exercises 10.1a to 10.1c: recover the agent, by what each remote can do."""

from answers import right, wrong
from answers.exercise_6_1 import DOUBLED, LOST, MAX_ROUNDS, STUCK, acquire, settle_by_query
from answers.exercise_9_2 import send
from labkit import POLICIES, ChangeRefused, ConditionUnmet, State, Worker


def settle_by_key(store, lease, remotes, doubt):
    """Send what is in doubt again under its own key; tells whether that settled it."""
    remote = remotes[doubt.remote]
    for _ in range(MAX_ROUNDS):
        memory = remote.capabilities.key_ttl_seconds
        try:
            lease, reference = send(store, lease, remotes, doubt, doubt.id, key_memory_seconds=memory)
        except ConditionUnmet:
            return settle_by_query(store, lease, remote)
        if reference is not None:
            store.settle(lease, doubt.id, True, "key", reference)
            return True
    return False


def settle_by_capability(store, lease, remotes, doubt):
    can = remotes[doubt.remote].capabilities
    if can.idempotency_keys:
        return settle_by_key(store, lease, remotes, doubt)
    if can.status_query:
        return settle_by_query(store, lease, remotes[doubt.remote])
    store.ask(lease, "neither keys nor a query", 3600)
    return False


def recover_with(settle, task_id, store, remotes, name="me"):
    for _ in range(MAX_ROUNDS):
        lease = acquire(store, store.get(task_id), name)
        while lease is not None:
            task = store.get(task_id)
            if task.lease_token != lease.token:
                return
            if lease.state is State.UNCERTAIN:
                if not settle(store, lease, remotes, task.in_doubt):
                    return
                break
            operation = task.next_operation
            if operation is None:
                store.succeed(lease)
                return
            lease, reference = send(store, lease, remotes, operation, operation.id)
            if lease is not None and reference is not None:
                lease = store.checkpoint(lease, operation.id, reference)
        else:
            return


@right("10.1a")
@right("10.1b")
@right("10.1c")
def by_capability(task_id, store, remotes):
    try:
        recover_with(settle_by_capability, task_id, store, remotes)
    except ChangeRefused:
        return


@right("10.1a")
@right("10.1b")
@right("10.1c")
def the_labs_worker(task_id, store, remotes):
    Worker(store, remotes, POLICIES["by_capability"], talks=False).run(task_id)


def by(policy):
    def recover(task_id, store, remotes):
        talks = policy == "replay_transcript"
        Worker(store, remotes, POLICIES[policy], talks=talks).run(task_id)

    recover.__name__ = policy
    return recover


for number in ("10.1a", "10.1b", "10.1c"):
    wrong(number, DOUBLED)(by("blind_replay"))
    wrong(number, DOUBLED)(by("replay_transcript"))
    wrong(number, LOST)(by("assume_done"))


@wrong("10.1a", DOUBLED)
def key_for_each_attempt(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        key = f"{doubt.id}#{len(doubt.attempts)}"
        lease, reference = send(store, lease, remotes, doubt, key, key_memory_seconds=86_400)
        if reference is None:
            return False
        store.settle(lease, doubt.id, True, "key", reference)
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", DOUBLED)
def no_key_in_doubt(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        lease, reference = send(store, lease, remotes, doubt, None, key_memory_seconds=86_400)
        if reference is None:
            return False
        store.settle(lease, doubt.id, True, "sent again", reference)
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", STUCK)
@wrong("10.1b", STUCK)
@wrong("10.1c", STUCK)
def leaves_doubts_alone(task_id, store, remotes):
    recover_with(lambda store, lease, remotes, doubt: False, task_id, store, remotes)


@wrong("10.1a", STUCK)
@wrong("10.1b", STUCK)
@wrong("10.1c", STUCK)
def only_what_is_queued(task_id, store, remotes):
    if store.get(task_id).state is State.QUEUED:
        recover_with(settle_by_capability, task_id, store, remotes)


@wrong("10.1a", LOST)
def no_answer_is_an_answer(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        store.settle(lease, doubt.id, True, "no news is good news", "payments-1")
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def a_doubt_is_settled_as_not_applied(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        store.settle(lease, doubt.id, False, "no answer came")
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def a_key_for_every_remote(task_id, store, remotes):
    recover_with(settle_by_key, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def not_found_means_not_applied(task_id, store, remotes):
    Worker(store, remotes, POLICIES["query_first"], talks=False).run(task_id)


@wrong("10.1c", STUCK)
def a_query_for_every_remote(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        standing = remotes[doubt.remote].query(doubt.id)
        if not standing.found:
            store.ask(lease, "not found", 3600)
            return False
        store.settle(lease, doubt.id, True, "status query", standing.reference)
        return True

    recover_with(settle, task_id, store, remotes)


for number in ("10.1a", "10.1b", "10.1c"):
    wrong(number, "The law that broke, asks_only_when_it_must:", "the remote was not asked before")(by("ask_person"))
