"""Exercise 10.1c: its answers are written beside those of 10.1a."""

from answers import exercise_10_1a

__all__ = ["exercise_10_1a"]
