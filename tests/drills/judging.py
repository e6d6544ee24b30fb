"""Tries tests on mutants, each in a process that has a copy of the package with that one edit."""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drills.mutating import PACKAGE, Mutant, mutants
from drills.programs import TESTS, folder

SECONDS = 300
VERDICTS = {10: "survived", 11: "killed"}
"""By exit code, which is pytest's and 10, lest an error outside the tests be taken for a test that failed."""

HOLDING, DECIDING, STORE = "test_store_holding.py", "test_store_deciding.py", "test_store.py"
PLANS = "test_what_is_due_is_found_by_index_without_reading_or_sorting_all_tasks"
CHANGED = "test_a_file_of_another_program_or_schema_is_named_and_left_as_it_was"
HISTORY = "test_history_is_append_only"
STATES = "test_states.py"
OFTEN = (HOLDING, DECIDING, STORE, STATES, "test_guards.py")
TESTS_OF = {
    "acquiring.py": (f"{STORE}::{PLANS}", HOLDING),
    "deciding.py": (DECIDING, STATES, HOLDING),
    "guards.py": ("test_guards.py", DECIDING, HOLDING),
    "holding.py": (HOLDING, "test_store_sharing.py", STATES, DECIDING),
    "ledger.sql": ("test_tables.py", "test_remote.py"),
    "opening.py": (f"test_faults.py::{CHANGED}",),
    "outbox.py": (STORE,),
    "releasing.py": (HOLDING, DECIDING),
    "remote.py": ("test_remote.py",),
    "schema.sql": ("test_tables.py", f"{STORE}::{PLANS}", f"{STORE}::{HISTORY}", STATES, HOLDING, DECIDING),
    "store.py": (STORE, DECIDING),
}
"""Tests that look straight at a file's SQL; of a file that is not here, those that look at most of the store."""


def verdict(file: str, mutant: Mutant | None = None) -> str:
    """`killed` where a test of this file's fails on the mutant, `survived` where none does, else what is wrong.

    Without a mutant the package is tried as it is.
    """
    with tempfile.TemporaryDirectory(prefix="recovery-lab-", dir=folder()) as name:
        copy = Path(name) / "labkit"
        shutil.copytree(PACKAGE, copy)
        if mutant is not None:
            source = (PACKAGE / mutant.file).read_text(encoding="utf-8")
            changed = source[: mutant.start] + mutant.instead + source[mutant.end :]
            (copy / mutant.file).write_text(changed, encoding="utf-8")
        # Forked from a server that has pytest at hand and nothing of the lab: starting anew costs more than the tests.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["pytest"])
        child = context.Process(target=_try, args=(name, TESTS_OF.get(file, OFTEN)))
        child.start()
        child.join(SECONDS)
        if child.is_alive():
            child.kill()
            child.join()
            return "killed"  # it hangs, which nobody overlooks
        said = (Path(name) / "said").read_text(encoding="utf-8")
    if child.exitcode not in VERDICTS or re.search(r'OperationalError: (near "|incomplete input|no such)', said):
        return said
    return VERDICTS[child.exitcode]


def _try(copied: str, tests: tuple[str, ...]) -> None:
    """Run tests on the copy of the package in `copied`, until one fails."""
    sys.path.insert(0, copied)
    os.environ["LABKIT_HOME"] = f"{copied}/home"
    os.chdir(TESTS)
    said = os.open(f"{copied}/said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    without = [f"-pno:{one}" for one in ("nbval", "xdist", "cacheprovider", "anyio", "hypothesispytest")]
    options = ["-x", "-q", "--tb=short", f"--confcutdir={TESTS}", f"--basetemp={copied}/tmp", *without]
    os._exit(10 + pytest.main([*options, *tests]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("keys", nargs="*", help="of mutants; by default all, and every file as it is")
    options = parser.parse_args()
    wanted = {one.key: one for one in mutants() if not options.keys or one.key in options.keys}
    tried: dict[str, tuple[str, Mutant | None]] = {key: (one.file, one) for key, one in wanted.items()}
    if not options.keys:
        tried |= {file: (file, None) for file, _ in tried.values()}
    with ThreadPoolExecutor(2) as pool:
        verdicts = pool.map(lambda one: verdict(*one), tried.values())
        print(json.dumps(dict(zip(tried, verdicts, strict=True))))


if __name__ == "__main__":
    main()
