"""Programs that can be named, so that a capsule can say which one it is about without holding code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.errors import InvalidInput
from labkit.policies import POLICIES
from labkit.states import State
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker


@dataclass(frozen=True)
class LabWorker:
    """The lab's own worker as a program: it carries the task as far as it can go now, by one policy.

    Args:
        policy: the policy's name, one of `POLICIES`.
    """

    policy: str

    def __post_init__(self) -> None:
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise InvalidInput(f"policy: one of {', '.join(POLICIES)}", self.policy)

    def __call__(self, task_id: str, store: TaskStore, remotes: Mapping[str, Remote], name: str = "worker-1") -> State:
        """Run the worker once, under a name; it writes a transcript where its policy goes by one."""
        talks = self.policy == "replay_transcript"
        return Worker(store, remotes, POLICIES[self.policy], name, talks=talks).run(task_id)
