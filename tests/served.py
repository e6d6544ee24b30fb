"""`recovery-lab serve` as a process, for tests."""

import signal
import subprocess
import sys
from types import TracebackType

SERVE = "import sys; from labkit.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"
LONGEST_SECONDS = 60


class Served:
    """A running `recovery-lab serve`; on leaving, it is told to end, and `code` is its exit code.

    Args:
        arguments: of the command.
        ends: the signal that ends it; by default that of Ctrl-C.
        first: Python that the process runs before the command.
    """

    def __init__(self, *arguments: str, ends: int = signal.SIGINT, first: str = "") -> None:
        self._ends = ends
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{first}\n{SERVE}", *arguments], stdout=subprocess.PIPE, text=True
        )
        self.code: int | None = None
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.says = self.process.stdout.readline().strip()

    def __enter__(self) -> "Served":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.platform == "win32":
            self.process.kill()
        else:
            self.process.send_signal(self._ends)
        try:
            self.process.communicate(timeout=LONGEST_SECONDS)
        finally:
            if self.process.poll() is None:  # or it would live on beside the tests
                self.process.kill()
                self.process.communicate()
        self.code = self.process.returncode
