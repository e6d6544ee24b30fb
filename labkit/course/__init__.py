"""The course's own tools: predictions beside observations, and exercises that answer with a counterexample."""

from labkit.course.checks import CheckResult, check
from labkit.course.journal import compare, why
from labkit.course.lessons import hint

__all__ = ["CheckResult", "check", "compare", "hint", "why"]
