"""The course's own tools: predictions beside observations, and exercises that answer with a counterexample."""

from labkit.course.checks import CheckResult, check
from labkit.course.exercises import hint
from labkit.course.journal import compare

__all__ = ["CheckResult", "check", "compare", "hint"]
