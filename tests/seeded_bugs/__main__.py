"""Prints each bug with the law that catches it, the surprises it takes, and how soon it is found."""

from labkit.explore.search import explore

from . import BUGS


def main() -> None:
    width = max(len(bug.name) for bug in BUGS)
    print(f"{'mistake':{width}}  {'caught by':30} surprises  found at schedule  mended: schedules")
    for bug in BUGS:
        found, mended = explore(bug.broken, bug.surprises), explore(bug.mended, 2)
        caught = found.failure.law if found.failure is not None else "-"
        surprises = len(found.failure.schedule) if found.failure is not None else "-"
        passed = "" if mended.failure is None else f"  BROKEN: {mended.failure.law}"
        print(f"{bug.name:{width}}  {caught:30} {surprises:9}  {found.schedules:17}  {mended.schedules:17}{passed}")


if __name__ == "__main__":
    main()
