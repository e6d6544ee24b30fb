"""Rounds of a benchmark: every contender in turn, again and again, so that a busy moment falls on all of them."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Contender = Callable[[], int]
"""Does some work and returns how many runs it was."""


@dataclass(frozen=True)
class Rate:
    """Runs a second over the rounds: the median, the slowest and the fastest."""

    median: float
    slowest: float
    fastest: float

    def __str__(self) -> str:
        return f"{self.median:9,.1f} runs/s ({self.slowest:,.1f} to {self.fastest:,.1f})"


def interleaved(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Return the runs a second of each contender, one figure a round; a first round only warms up."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, work in contenders.items():
            began = time.perf_counter()
            runs = work()
            seconds = time.perf_counter() - began
            if number:
                rates[name].append(runs / seconds)
    return rates


def rate(figures: list[float]) -> Rate:
    return Rate(statistics.median(figures), min(figures), max(figures))


def ratio(first: list[float], second: list[float]) -> Rate:
    """How many times faster the first is, round by round."""
    return rate([one / other for one, other in zip(first, second, strict=True)])


def report(title: str, contenders: Mapping[str, Contender], rounds: int, goals: Mapping[str, float]) -> None:
    """Print the rates of all contenders, and how many times faster the first is than each.

    Args:
        title: what is done.
        contenders: ours first.
        rounds: how many, without the one that warms up.
        goals: how many times faster than a contender ours should be, where that is asked for.
    """
    print(f"\n{title} ({rounds} interleaved rounds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    rates = interleaved(contenders, rounds)
    ours = next(iter(contenders))
    for name, figures in rates.items():
        times = ratio(rates[ours], figures)
        beside = "" if name == ours else f"   {times.median:6.1f} x ({times.slowest:.1f} to {times.fastest:.1f})"
        goal = f"   goal: >= {goals[name]:g}" if name in goals else ""
        print(f"  {name:44}{rate(figures)}{beside}{goal}")
