"""Reports of comparisons: what they hold, the gate, and how they are written."""

from softq.reports._gate import Allowance, check_gate, judge, parse_drop
from softq.reports._junit import Case, to_case, to_junit
from softq.reports._text import describe_nan, to_json, to_markdown, to_text
from softq.reports._types import Gate, MetricResult, PairedInterval, Report

__all__ = [
    "Allowance",
    "Case",
    "Gate",
    "MetricResult",
    "PairedInterval",
    "Report",
    "check_gate",
    "describe_nan",
    "judge",
    "parse_drop",
    "to_case",
    "to_json",
    "to_junit",
    "to_markdown",
    "to_text",
]
