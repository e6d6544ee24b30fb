"""The course's own tools: predictions beside observations, and exercises that answer with a counterexample."""

from labkit.course.checks import CheckResult, check
from labkit.course.journal import compare, why
from labkit.course.lessons import hint
from labkit.course.outline import course_map
from labkit.course.report import Report, report

__all__ = ["CheckResult", "Report", "check", "compare", "course_map", "hint", "report", "why"]
