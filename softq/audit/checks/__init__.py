"""The questions that an audit asks a runtime, one per file, each exposing one `CHECK`.

A check calls the subject with scores of its own, and returns facts, which are reported as they are, and faults, each
with the smallest scores that show it. That there is no result (a call is refused, ends the process or hangs) is a fault
where the question was an ordinary one, else a fact.
"""

from __future__ import annotations

from collections.abc import Sequence

from softq.audit.checks._contract import Check, Setting
from softq.registry import Folder

CHECKS = Folder(package="softq.audit.checks", attribute="CHECK", kind=Check, group="softq.audit_checks", noun="check")

__all__ = ["CHECKS", "Check", "Setting", "checks_in_order"]


def checks_in_order() -> Sequence[Check]:
    """Return all checks in the order in which they run."""
    return sorted(CHECKS.entries().values(), key=lambda check: (check.order, check.name))
