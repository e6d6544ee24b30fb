"""Functions on their way to another process."""

import functools
import math
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.packing import CannotTravel, packed

SCRIPT = """\
import functools, sys
from pathlib import Path
from labkit.packing import packed

@functools.lru_cache(7, True)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Desk:
    @functools.cache
    def number(self):
        return fibonacci(10)

fibonacci(20)
Path(sys.argv[1]).write_bytes(packed((fibonacci, lambda: Desk().number())))
"""


def test_cached_functions_of_a_notebook_work_elsewhere_and_begin_with_an_empty_cache(tmp_path: Path):
    parcel, script = tmp_path / "parcel", tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, parcel], check=True, timeout=60)
    fibonacci, number = pickle.loads(parcel.read_bytes())
    assert fibonacci.cache_info() == (0, 0, 7, 0)
    assert fibonacci.cache_parameters() == {"maxsize": 7, "typed": True}
    assert (fibonacci(30), fibonacci.cache_info().hits, number()) == (832040, 28, 55)


@functools.cache
def doubled(number: int) -> int:
    return 2 * number


def test_what_can_be_imported_or_is_made_within_a_function_travels_too():
    @functools.cache
    def within(number: int) -> int:
        return doubled(number)

    assert pickle.loads(packed(doubled)) is doubled
    assert pickle.loads(packed(within))(4) == 8
    assert pickle.loads(packed(math.sqrt)) is math.sqrt
    assert pickle.loads(packed(functools.partial(doubled, 3)))() == 6


class Wrapper:
    __name__, __module__ = "mine", "__main__"

    def __call__(self) -> None: ...

    def __reduce__(self) -> str:
        return self.__name__


def test_what_would_arrive_as_a_mere_name_is_refused_with_what_to_do():
    with pytest.raises(CannotTravel, match=r"^mine is a function in a wrapper \(Wrapper\) .*write it as a plain func"):
        packed([Wrapper()])
