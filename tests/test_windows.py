"""What Windows lacks (forks, stop signals, locks that end with their process, shared memory) is done another way there.

It is taken away here from every process, as far as Python itself can do without it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is nothing to take away")
TAKEN = """\
import os, signal, socket, sys
for module, names in {
    os: ("fork", "forkpty", "register_at_fork", "getuid", "O_NOFOLLOW"),
    signal: ("SIGSTOP", "SIGCONT", "SIGUSR1", "SIGALRM"),
    socket: ("send_fds", "recv_fds"),
}.items():
    for name in names:
        delattr(module, name)
sys.modules["fcntl"] = sys.modules["resource"] = None
"""
SCRIPT = """\
from pathlib import Path

from labkit.explore import warm
warm.SHARED_MEMORY = Path("nowhere")

from labkit.course.submission import Submission, told_by
from labkit.explore import LabWorker, TaskScenario, explore, replay
from labkit.real.children import CAN_STOP
from labkit.real.drill import drill
from labkit.real.kills import kill_at_random
from labkit.real.warm import CAN_FORK
from labkit.scratch import CAN_LOCK

def answer():
    return "told"

print(CAN_FORK, CAN_STOP, CAN_LOCK)
print(drill("same_key", steps=1, lease_seconds=0.01).verdict)
print(drill("query_first", [], steps=1, pause_at="intend task-1/refund", lease_seconds=0.01).verdict)
print(kill_at_random("by_capability", 2, steps=1).kills)
found = explore(TaskScenario(LabWorker("blind_replay")))
print(replay(found.capsule, real=True).played.verdict)
print(Submission(answer, 60).run(told_by))
"""


def test_drills_searches_and_checks_do_without_what_windows_lacks_and_leave_nothing(tmp_path: Path):
    place, site = tmp_path / "temporary", tmp_path / "site"
    for folder in (place, site):
        folder.mkdir()
    (site / "sitecustomize.py").write_text(TAKEN)
    (tmp_path / "script.py").write_text(SCRIPT)
    environ = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place)) | {"PYTHONPATH": str(site)}
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["False False False", "exactly once", "duplicated", "2", "duplicated", "told"]
    assert list(place.iterdir()) == []
