"""The explorer's world with real bodies: the same choices, each of them made to happen to a process.

A life is here the one who leads a worker process: a crash kills it, a pause stops it, and what the wire does with a
call is done by a service behind HTTP. Files are shared as processes share them. The clock alone is the run's own, told
to all of them, so that nobody waits for a lease; therefore every row must be as in the simulated run, times included.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

from labkit.database import Database, Schema
from labkit.explore.lives import Life
from labkit.explore.scheduler import Scheduler
from labkit.explore.warm import Rows
from labkit.explore.world import TASK_ID, TaskScenario, TaskWorld
from labkit.seams import ManualClock, Point

T = TypeVar("T")
STAGE, SETTING = "labkit.real.stage:Stage", "labkit.real.setting:Setting"
"""Where processes come from. Looked up by name when they are asked for: neither world imports the other."""


class ProcessStage(Protocol):
    """What this world needs of `labkit.real.stage`."""

    def open(self, setting: Any, clock: ManualClock) -> None:
        """Set it up for one scenario."""

    def live(self, actor: Life) -> str | BaseException:
        """Lead one worker process to its end, and return its result or its error."""

    def pause(self, name: str) -> None:
        """Stop one."""

    def close(self) -> None:
        """End them all."""


REFUSALS: Mapping[str, str] = {
    "a newer fencing token has been seen": "permission",
    "an Idempotency-Key is required": "invalid",
    "the same key came with another body": "invalid",
    "a request with this key is in flight": "transient",
}
"""What a remote refuses a sending for, and of which category that is: of a call that was made elsewhere the reason is
what there is to hear."""


class ProcessWorld(TaskWorld):
    """Plays schedules of a `TaskScenario` with real processes.

    Args:
        scenario: see there.
        folder: as for the simulated world.
        stage: one that is there already and stays; None: one of its own.
    """

    def __init__(self, scenario: TaskScenario, folder: Path | None = None, stage: ProcessStage | None = None) -> None:
        super().__init__(scenario, folder)
        self._own: ProcessStage | None = None
        try:
            if stage is None:
                stage = self._own = pkgutil.resolve_name(STAGE)()
            self._stage = stage
            self._stage.open(self._setting(), self.clock)
        except BaseException:
            self.close()
            raise

    def _setting(self) -> Any:
        ledgers = [self._files.folder / rows.file for rows in self._rows[1:]]
        remotes = zip(ledgers, self.scenario.remotes.values(), strict=True)
        return pkgutil.resolve_name(SETTING)(
            tasks=self._files.folder / self._rows[0].file,
            task_id=TASK_ID,
            program=self.scenario.program,
            remotes=dict(zip(self.scenario.remotes, remotes, strict=True)),
            assumptions=self.scenario.assumptions,
            late_by_seconds=self.scenario.late_by_seconds,
            synchronous="OFF",
        )

    def close(self) -> None:
        """End the processes, and remove the files."""
        try:
            if self._own is not None:
                self._own.close()
        finally:
            super().close()

    def _watched_for_others(self, hub: Scheduler) -> AbstractContextManager[None]:
        """Others are meant to open these files, and what a worker does by itself it does in its own process."""
        return nullcontext()

    def _database(self, file: str, schema: Schema) -> Database:
        """Open a file that others have open too."""
        return Database(self._files.folder / file, schema, "OFF")

    def _known(self, database: Database, read: Callable[[], T]) -> Callable[[], T]:
        """Read it whenever it is asked for: others write to these files."""
        return read

    def _rows_of(self, database: Database) -> Rows:
        return Rows(database, shared=True)

    def paused(self, life: Life) -> None:
        """Stop the process."""
        self._stage.pause(life.name)

    def crossed(self, life: Life, point: Point) -> None:
        """Note also what a worker is refused."""
        if point.action == "send" and point.learned in REFUSALS:
            self._witness.refused.add((point.subject, REFUSALS[point.learned]))
        super().crossed(life, point)

    def _live(self, life: Life) -> Any:
        try:
            ended = self._stage.live(life)
        except Exception as error:  # the process's, not the program's
            life.hub.abort(life, error)
        if isinstance(ended, BaseException):
            raise ended
        return ended
