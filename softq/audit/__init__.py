"""Which softmax a runtime computes: how far from the exact one, which of softq's methods it is, and what is wrong.

`audit` asks a runtime (`softq.audit.runtimes`) the questions of `softq.audit.checks`, compares it with every method,
and writes what it found. The runtime works in a process of its own, which may be of another environment: this module
and what that process imports load NumPy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softq.audit.auditing import audit
    from softq.audit.recorded import audit_recorded
    from softq.audit.records import Audit, FaultRecord, Step
    from softq.audit.task import Encoding

_HOMES = {
    "audit": "auditing",
    "audit_recorded": "recorded",
    "Audit": "records",
    "FaultRecord": "records",
    "Step": "records",
    "Encoding": "task",
}

__all__ = ["Audit", "Encoding", "FaultRecord", "Step", "audit", "audit_recorded"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"softq.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'softq.audit' has no attribute {name!r}")
