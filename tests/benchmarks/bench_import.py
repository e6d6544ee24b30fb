"""How much `import labkit` adds to a bare start of Python: `python tests/benchmarks/bench_import.py`.

Wall-clock figures of this machine at this moment; printed, and asserted nowhere.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 21


def start_seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def starts(rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of bare starts, and of starts with `import labkit`; interleaved, so that a busy moment falls on both."""
    start_seconds("import labkit")  # compiles, and warms the file cache
    pairs = [(start_seconds("pass"), start_seconds("import labkit")) for _ in range(rounds)]
    return [bare for bare, _ in pairs], [labkit for _, labkit in pairs]


def main() -> None:
    bare, labkit = starts(ROUNDS)
    without, with_labkit = statistics.median(bare), statistics.median(labkit)
    print(f"bare start      {without * 1000:6.1f} ms (median of {ROUNDS})")
    print(f"import labkit   {with_labkit * 1000:6.1f} ms")
    print(f"difference      {(with_labkit - without) * 1000:6.1f} ms, ratio {with_labkit / without:.2f}")


if __name__ == "__main__":
    main()
