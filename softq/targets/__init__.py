"""The targets, one per file, each exposing one `TARGET`; a file of several alike exposes them as `TARGETS`.

To add a target, write `softq/targets/my_target.py`:

1. The module's docstring says what it produces, for whom, what it needs, and what it cannot do.
2. `TARGET = Target(name="my-target", ...)` with the passes that turn a converted model into what the target takes.

`softq targets` finds the file. Targets never name methods, and nothing outside this folder names a target.
"""

from __future__ import annotations

from softq.registry import Folder
from softq.targets._contract import (
    Amount,
    Amounts,
    Built,
    BuiltCores,
    BuiltFirmware,
    BuiltOperators,
    Order,
    Result,
    Target,
    TargetOptions,
    Use,
)
from softq.text_options import option

TARGETS = Folder("softq.targets", "TARGET", Target, "softq.targets", "target", listed_by="softq targets")

__all__ = [
    "TARGETS",
    "Amount",
    "Amounts",
    "Built",
    "BuiltCores",
    "BuiltFirmware",
    "BuiltOperators",
    "Order",
    "Result",
    "Target",
    "TargetOptions",
    "Use",
    "option",
]
