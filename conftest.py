"""For tests and notebooks alike: a journal of their own, so that whoever runs them keeps theirs as it is."""

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let every check, prediction and report of this run go into a folder that goes with it."""
    folder = tempfile.mkdtemp(prefix="recovery-lab-home-")
    os.environ["LABKIT_HOME"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
