"""Gates as JUnit XML, the form in which build servers show what passed and what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from softq.reports._types import Gate, Report


@dataclass(frozen=True)
class Case:
    """One test case.

    Attributes:
        name: What was tested.
        seconds: How long it took.
        message: The sentence on how it went.
        passed: Whether it passed.
    """

    name: str
    seconds: float
    message: str
    passed: bool


def to_case(report: Report, seconds: float) -> Case:
    """Return a comparison as a test case: that of its gate, or one that passes where there is none."""
    first = report.metrics[0]
    gate = report.gate or Gate(True, f"{first.name} is {first.candidate:.6g}")
    return Case(f"{first.name} on {report.data}", seconds, gate.sentence, gate.passed)


# What XML 1.0 (section 2.2) cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(suite: str, cases: Sequence[Case]) -> str:
    """Return the cases as a JUnit XML document.

    Args:
        suite: What the cases have in common: the name of the suite, and the class of each case.
        cases: The cases.
    """
    failed = sum(not case.passed for case in cases)
    seconds = sum(case.seconds for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "time": f"{seconds:.3f}"}
    root = ElementTree.Element("testsuites", counts)
    group = ElementTree.SubElement(root, "testsuite", {"name": _text(suite), **counts})
    for case in cases:
        element = ElementTree.SubElement(
            group, "testcase", {"classname": _text(suite), "name": _text(case.name), "time": f"{case.seconds:.3f}"}
        )
        kind = "system-out" if case.passed else "failure"
        child = ElementTree.SubElement(element, kind, {} if case.passed else {"message": _text(case.message)})
        child.text = _text(case.message)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
