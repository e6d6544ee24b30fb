"""The course's own tools: predictions beside observations, and exercises that answer with a counterexample."""

from labkit.course.checks import CheckResult, check
from labkit.course.journal import compare, why
from labkit.course.lessons import hint
from labkit.course.outline import course_map

__all__ = ["CheckResult", "check", "compare", "course_map", "hint", "why"]
