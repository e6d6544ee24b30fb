"""Who goes on, what the clock does, what a death leaves behind, and when a run is over."""

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import pytest
from greenlet import greenlet
from spies import Seen

from labkit.agent import plan
from labkit.errors import RemoteError, SimulatedCrash
from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.choices import ARRIVE, GO_ON, Choices, Schedule, ScheduleMismatch, Surprise
from labkit.explore.lives import Life, RunTooLong, WorkerStatus
from labkit.explore.outside import NotItsThread
from labkit.explore.programs import LabWorker
from labkit.explore.row_laws import WORKER_LAWS, named
from labkit.explore.scheduler import Scheduler, WorldEvents
from labkit.explore.search import explore
from labkit.explore.world import ALL_SURPRISES, TaskScenario, TaskWorld
from labkit.policies import BY_CAPABILITY
from labkit.remote import Capabilities
from labkit.seams import Call, ManualClock, Point
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

Program = Callable[[Life], Any]
KEYS = Capabilities(idempotency_keys=True)
EVERYTHING = frozenset({"crash", "switch", "pause", "cancel", "refused", "request_lost", "response_lost", "late"})


class Stage(WorldEvents):
    """A world of lives alone: everybody holds a lease of 30 seconds, and everything is written down."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.crashes: list[str] = []
        self.cancels = 0

    def crashed(self, life: Life) -> None:
        self.crashes.append(life.name)

    def can_pause(self, life: Life) -> bool:
        return True

    def pause_ends_at(self) -> float:
        return self.clock.now() + 30.0

    def can_cancel(self) -> bool:
        return not self.cancels

    def cancel(self) -> None:
        self.cancels += 1


def scheduled(*programs: Program, surprises: Mapping[int, str] | None = None) -> Scheduler:
    """Run programs side by side until nobody is ready any more."""
    schedule = tuple(Surprise(place, choice) for place, choice in (surprises or {}).items())
    stage = Stage()
    hub = Scheduler(Choices(schedule), EVERYTHING, stage.clock, stage)
    for program in programs:
        hub.start(program)
    hub.run()
    return hub


def steps(count: int, seen: list[str]) -> Program:
    """A program that crosses so many times and writes down when it goes on."""

    def program(life: Life) -> str:
        for number in range(1, count + 1):
            life.cross(Point("step", str(number)))
            seen.append(f"{life.name}: {number}")
        return "done"

    return program


# Who goes on.


def test_the_quiet_run_goes_on_with_the_running_worker_and_then_with_the_lowest() -> None:
    seen: list[str] = Seen()
    hub = scheduled(steps(2, seen), steps(1, seen), steps(1, seen))
    assert seen == ["worker-1: 1", "worker-1: 2", "worker-2: 1", "worker-3: 1"]
    assert [life.result for life in hub.lives] == ["done"] * 3
    assert all(step.chosen == GO_ON for step in hub.choices.steps)


def test_a_switch_hands_over_to_the_worker_that_it_names_until_that_one_is_through() -> None:
    seen: list[str] = Seen()
    hub = scheduled(steps(2, seen), steps(1, seen), steps(2, seen), surprises={0: "switch to worker-3"})
    assert seen == ["worker-3: 1", "worker-3: 2", "worker-1: 1", "worker-1: 2", "worker-2: 1"]
    assert hub.counts["switch"] == 1


def test_only_workers_that_can_go_on_are_offered() -> None:
    hub = scheduled(steps(1, []), steps(1, []), surprises={0: "crash"})
    assert hub.choices.steps[0].options == ("go on", "crash", "switch to worker-2", "pause", "cancel")
    assert hub.choices.steps[1].options == ("go on", "crash", "pause", "cancel")


def test_a_blocked_worker_goes_on_when_another_has_moved() -> None:
    seen: list[str] = Seen()
    free: list[bool] = Seen()

    def waits(life: Life) -> None:
        while not free:
            assert life.block(life.hub.clock.now() + 5.0) is False
        seen.append(life.name)

    def frees(life: Life) -> None:
        life.cross(Point("step", "1"))
        free.append(True)
        seen.append(life.name)

    hub = scheduled(waits, frees)
    assert seen == ["worker-2", "worker-1"]
    assert hub.clock.now() == 0.0


def test_where_all_wait_for_a_lock_the_first_waits_its_time_out_and_the_clock_shows_it() -> None:
    told: list[tuple[str, bool, float]] = Seen()

    def waits(life: Life) -> None:
        told.append((life.name, life.block(5.0), life.hub.clock.now()))

    scheduled(waits, waits)
    assert told == [("worker-1", True, 5.0), ("worker-2", False, 5.0)]


# The clock.


def test_the_clock_stands_still_while_anybody_can_go_on() -> None:
    times: list[float] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        for _ in range(3):
            times.append(store.clock.now())
            with suppress(Exception):
                store.say(task_id, "user", {})
        if len(times) < 7:
            store.clock.sleep(7.0)
            times.append(store.clock.now())

    world = TaskScenario(program, workers=2, allowed=frozenset({"switch"})).open()
    world.play(())
    world.close()
    assert times[:8] == [0.0] * 6 + [7.0] * 2


def test_the_clock_jumps_to_the_next_due_time_and_no_further() -> None:
    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        LabWorker("by_capability")(task_id, store, remotes)
        times.append(store.clock.now())

    times: list[float] = Seen()
    scenario = TaskScenario(program, allowed=frozenset({"crash", "late"}))
    world = scenario.open()
    quiet = world.play(())
    place = next(number for number, step in enumerate(quiet.steps) if step.point == "intend task-1/refund")
    times.clear()
    world.play((Surprise(place, "crash"),))
    world.close()
    assert times == [30.0, 30.0], "the lease of the dead worker ran out at 30 s; the second is the last pass"


def test_a_worker_that_sleeps_past_its_lease_is_overtaken_and_then_wakes() -> None:
    told: list[tuple[str, float]] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        task = store.get(task_id)
        if task.state is State.QUEUED:
            lease = store.claim(task, "sleeper", 30.0)
            store.clock.sleep(50.0)
            told.append(("wakes", store.clock.now()))
            store.renew(lease)
        else:
            told.append((task.state, store.clock.now()))
            Worker(store, remotes, BY_CAPABILITY, talks=False).run(task_id)

    world = TaskScenario(program).open()
    played = world.play(())
    errors = [type(error).__name__ for _, error in world.record().errors]
    world.close()
    assert told == [("running", 30.0), ("wakes", 50.0), ("succeeded", 50.0)]
    assert (played.verdict, errors) == ("exactly once", ["StaleToken"])


def test_a_worker_that_sleeps_before_it_takes_anything_is_not_started_again_and_again() -> None:
    starts: list[float] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        starts.append(store.clock.now())
        store.clock.sleep(5.0)
        LabWorker("by_capability")(task_id, store, remotes)

    world = TaskScenario(program).open()
    played = world.play(())
    world.close()
    assert played.verdict == "exactly once"
    assert len(starts) <= 3


# Death.


def test_a_crash_ends_a_worker_at_that_crossing_and_nobody_else() -> None:
    seen: list[str] = Seen()
    hub = scheduled(steps(2, seen), steps(2, seen), surprises={1: "crash"})
    assert seen == ["worker-1: 1", "worker-2: 1", "worker-2: 2"]
    assert [life.status for life in hub.lives] == [WorkerStatus.DEAD, WorkerStatus.ENDED]
    assert (hub.lives[0].result, hub.lives[0].error) == (None, None)


def uses(life: Life) -> list[Callable[[], object]]:
    """Every handle of a worker."""
    return [
        life.check_alive,
        lambda: life.cross(Point("step", "late")),
        lambda: life.deliver(Call("mail", "send", "task-1/send_email", "1")),
        lambda: life.sleep(99.0),
        lambda: life.block(99.0),
    ]


def test_a_dead_worker_s_handles_are_dead_and_what_it_raises_is_nobody_s_business() -> None:
    told: list[str] = Seen()

    def program(life: Life) -> str:
        try:
            life.cross(Point("step", "1"))
        except BaseException:
            for use in uses(life):
                try:
                    use()
                except BaseException as error:
                    told.append(type(error).__name__)
            raise ValueError("broken in its death") from None
        return "done"

    hub = scheduled(program, steps(1, []), surprises={0: "crash"})
    assert told == ["SimulatedCrash"] * 5
    assert (hub.lives[0].status, hub.lives[0].error, hub.lives[1].result) == (WorkerStatus.DEAD, None, "done")


def test_a_dead_worker_that_returns_something_has_returned_nothing() -> None:
    def program(life: Life) -> str:
        with suppress(BaseException):
            life.cross(Point("step", "1"))
        return "done"

    hub = scheduled(program, surprises={0: "crash"})
    assert (hub.lives[0].result, hub.lives[0].ended) == (None, False)


def test_a_dead_worker_whose_code_catches_everything_and_goes_on_is_left_where_it_stands() -> None:
    told: list[int] = Seen()

    def program(life: Life) -> None:
        while True:
            try:
                life.cross(Point("step", "1"))
            except BaseException:
                told.append(1)

    hub = scheduled(program, steps(1, []), surprises={0: "crash"})
    before = len(told)
    assert 0 < before < 1_000
    hub.close()
    del hub
    gc.collect()
    assert len(told) == before, "it is set going by nobody"


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), GeneratorExit(), BaseException("x")])
def test_whatever_a_living_worker_raises_is_how_it_ended(error: BaseException) -> None:
    def program(life: Life) -> None:
        life.cross(Point("step", "1"))
        raise error

    hub = scheduled(program, steps(1, []))
    assert (hub.lives[0].error, hub.lives[0].ended, hub.lives[1].result) == (error, False, "done")


def test_a_program_that_raises_a_simulated_crash_itself_has_ended_with_an_error() -> None:
    def program(life: Life) -> None:
        raise SimulatedCrash("of its own making")

    assert isinstance(scheduled(program).lives[0].error, SimulatedCrash)


# Bounds.


def forever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while True:
        store.say(task_id, "user", {})


def looks_forever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while store.get(task_id).state is not State.SUCCEEDED:
        pass


def asks_the_time_forever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while store.clock.now() < 10.0:
        pass


def asks_the_remote_forever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while not remotes["payments"].query(f"{task_id}/refund").found:
        pass


def catches_everything_forever(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
    while True:
        with suppress(BaseException):
            store.say(task_id, "user", {})


@pytest.mark.parametrize(
    "program", [forever, looks_forever, asks_the_time_forever, asks_the_remote_forever, catches_everything_forever]
)
def test_a_loop_without_end_breaks_the_law_bounded(program: Any) -> None:
    failure = explore(TaskScenario(program), 0).failure
    assert failure is not None
    assert (failure.law, failure.schedule) == ("bounded", ())
    assert failure.how.startswith("more than ")


def test_a_recursion_without_end_is_an_error_of_the_program() -> None:
    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        program(task_id, store, remotes)

    failure = explore(TaskScenario(program), 0).failure
    assert failure is not None
    assert failure.law in ("settled_in_the_end", "no_worker_breaks")
    world = TaskScenario(program).open()
    world.play(())
    assert {type(error) for _, error in world.record().errors} == {RecursionError}
    world.close()


def test_a_worker_that_never_finishes_is_started_a_bounded_number_of_times() -> None:
    starts: list[int] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        starts.append(1)

    failure = explore(TaskScenario(program), 0).failure
    assert failure is not None
    assert failure.law == "settled_in_the_end"
    assert len(starts) < 200


def test_a_thread_that_a_worker_starts_is_told_that_it_cannot_be_followed() -> None:
    told: list[str] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        def use() -> None:
            try:
                store.say(task_id, "user", {})
            except NotItsThread as error:
                told.append(str(error))

        thread = Thread(target=use)
        thread.start()
        thread.join()
        LabWorker("by_capability")(task_id, store, remotes)

    failure = explore(TaskScenario(program), 0).failure
    says = "worker-1 has started a thread: the explorer runs each worker in one; start no others"
    assert told[0] == says
    assert failure is not None
    assert failure.how == f"worker-1 ended with NotItsThread: {says}", "whatever becomes of the error in the thread"


# Schedules that do not fit.


def test_a_schedule_that_does_not_fit_says_at_which_step() -> None:
    world = TaskScenario(LabWorker("by_capability")).open()
    try:
        with pytest.raises(ScheduleMismatch, match="step 1 differs: expected late"):
            world.play((Surprise(0, "late"),))
        with pytest.raises(ScheduleMismatch, match="expected crash; found the run ends after step"):
            world.play((Surprise(10_000, "crash"),))
        assert world.play(()).verdict == "exactly once", "a world goes on after that"
    finally:
        world.close()


def test_a_program_cannot_catch_the_end_of_a_run() -> None:
    world = TaskScenario(catches_everything_forever, allowed=frozenset({"crash"})).open()
    try:
        with pytest.raises(ScheduleMismatch):
            world.play((Surprise(3, "late"),))
    finally:
        world.close()


# Zombies, late requests, and the end of a run.


def quiet_places(world: TaskWorld) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """Each crossing of the quiet run: the point, whether its worker holds the lease just then, what is offered."""
    played, run = world.watch((), "quiet")
    crossings = [step for step in played.steps if not step.point.startswith("wire: ")]
    for moment, step in zip(run.moments, crossings, strict=True):
        yield moment.point, moment.database.startswith(("running", "uncertain")), step.options


def test_a_pause_is_offered_at_every_crossing_at_which_a_lease_is_held_and_at_no_other() -> None:
    world = TaskScenario(LabWorker("by_capability"), tuple(plan())).open()
    try:
        found = list(quiet_places(world))
    finally:
        world.close()
    assert sum(holds for _, holds, _ in found) > 8
    last = max(place for place, (_, _, options) in enumerate(found) if len(options) > 1)
    for point, holds, options in found[: last + 1]:
        assert ("pause" in options) == holds, point


def test_the_history_calls_each_life_by_the_name_that_the_timeline_shows() -> None:
    world = TaskScenario(LabWorker("same_key"), tuple(plan()[:1]), {"payments": KEYS}, workers=2).open()
    try:
        places = [step.point for step in world.play(()).steps]
        crash = Surprise(places.index("send task-1/refund"), "crash")
        _, run = world.watch((crash,), "crash")
        history = [(one.event, one.worker) for one in world.store.history("task-1") if one.worker is not None]
    finally:
        world.close()
    seen = [(moment.point.split()[0], moment.worker) for moment in run.moments]
    assert history == [one for one in seen if one[0] not in ("start", "send")]
    assert ("claim", "worker-1") in history
    assert [worker for event, worker in history if event == "take_over"] == ["worker-3"], "worker-2 came too early"


def test_a_zombie_is_among_the_schedules_whatever_the_workers_call_themselves() -> None:
    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> State:
        return Worker(store, remotes, BY_CAPABILITY, name="everybody", talks=False).run(task_id)

    shown = explore(TaskScenario(program, allowed=frozenset({"pause"})), 1)
    assert shown.passed
    assert shown.happened["pause"] == shown.schedules - 1 > 3
    assert shown.happened["take_over"] == shown.happened["pause"]


class Ending(TaskWorld):
    """Looks at every run when it is over."""

    def check(self, schedule: Schedule) -> None:
        played = self.play(schedule)
        statuses = {life.status for life in self._hub.lives}
        assert statuses <= {WorkerStatus.ENDED, WorkerStatus.DEAD}, "nobody sleeps, waits or is ready"
        assert not any(service.arrivals() for service in self.services.values()), "nothing is under way"
        last = self._hub.lives[-1]
        own = [step for step in played.steps if step.worker == last.name]
        assert own, "the last pass has been there"
        assert all(len(step.options) == 1 for step in own), "nothing goes wrong in the last pass"
        assert last.ended


def test_a_run_is_over_only_when_all_has_arrived_and_woken_and_a_last_pass_found_nothing_to_do() -> None:
    world = Ending(TaskScenario(LabWorker("by_capability"), allowed=ALL_SURPRISES | {ARRIVE}, workers=2))
    try:
        world.check(())
        for child in world.play(()).children():
            world.check(child)
            for grandchild in world.play(child).children()[::7]:
                world.check(grandchild)
    finally:
        world.close()


def test_the_last_pass_finds_a_program_that_does_its_work_again_once_it_is_done() -> None:
    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        LabWorker("by_capability")(task_id, store, remotes)
        if store.get(task_id).state is State.SUCCEEDED:
            remotes["mail"].send("task-1/send_email", {}, f"thanks-{store.clock.now():g}")

    scenario = TaskScenario(program, tuple(plan()), allowed=frozenset())
    failure = explore(scenario, 0).failure
    assert failure is not None
    assert failure.law == "no_second_effect"


# Interrupts, and what runs leave behind.


def interrupted_at(run: int) -> TaskScenario:
    starts: list[int] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        starts.append(1)
        if len(starts) == run:
            store.get(task_id)
            raise KeyboardInterrupt
        LabWorker("by_capability")(task_id, store, remotes)

    return TaskScenario(program)


def test_an_interrupt_ends_the_search_at_once_with_what_it_has() -> None:
    shown = explore(interrupted_at(7), 1)
    assert not shown.passed
    assert shown.schedules >= 1
    assert str(shown).startswith("NOT EXHAUSTIVE: interrupted")


def test_a_world_goes_on_after_an_interrupt() -> None:
    world = interrupted_at(1).open()
    try:
        with pytest.raises(KeyboardInterrupt):
            world.play(())
        assert world.play(()).verdict == "exactly once"
    finally:
        world.close()


def test_lives_and_greenlets_of_past_runs_are_forgotten() -> None:
    seen: list[weakref.ref[Any]] = Seen()

    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        seen.append(weakref.ref(store))
        LabWorker("by_capability")(task_id, store, remotes)

    explore(TaskScenario(program), 1)
    gc.collect()
    count = sum(isinstance(one, greenlet) for one in gc.get_objects())
    explore(TaskScenario(program), 1)
    gc.collect()
    assert sum(isinstance(one, greenlet) for one in gc.get_objects()) <= count
    assert len(seen) > 40
    assert not any(one() is not None for one in seen)


def test_what_is_left_of_a_dropped_worker_changes_nothing_however_it_is_unwound() -> None:
    written: list[str] = Seen()

    @contextmanager
    def cleaning_up(bench: Bench, db: Any) -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(BaseException):
                db.execute("UPDATE tasks SET kind = 'cleaned up'")
                db.commit()
                written.append(bench.name)

    def program(db: Any, bench: Bench) -> None:
        with cleaning_up(bench, db):
            bench.sleep(1e9)

    def queue(db: Any) -> None:
        db.execute("INSERT INTO tasks (id, kind, state) VALUES ('task-1', 'refund', 'failed')")

    class Impatient(Exception):
        pass

    def due(db: Any) -> float | None:
        raise Impatient

    world = BenchScenario(program, queue, named(*WORKER_LAWS), 2, frozenset({"crash"}), due=due).open()
    try:
        for _ in range(3):
            with pytest.raises(Impatient):
                world.play(())
            gc.collect()
        assert world.store.get("task-1").kind == "refund"
        assert not written
    finally:
        world.close()


def test_a_run_that_is_too_long_says_so_without_a_search_too() -> None:
    def program(life: Life) -> None:
        while True:
            life.cross(Point("step", "1"))

    with pytest.raises(RunTooLong, match="more than 2,000 crossings, the last one at step 1"):
        scheduled(program)


def test_every_fault_of_the_wire_is_offered_to_a_sending_and_only_a_lost_answer_to_a_query() -> None:
    def program(task_id: str, store: TaskStore, remotes: Mapping[str, Remote]) -> None:
        for call in (remotes["tickets"].query, lambda name: remotes["mail"].send(name, {}, "1")):
            with suppress(RemoteError):
                call("task-1/refund")

    world = TaskScenario(program).open()
    played = world.play(())
    world.close()
    first = [step for step in played.steps if step.worker == "worker-1"]
    offered = {step.point: step.options for step in first if step.point.startswith("wire: ")}
    assert offered == {
        "wire: query task-1/refund": ("delivered", "response_lost"),
        "wire: send task-1/refund": ("delivered", "refused", "request_lost", "response_lost", "late"),
    }
