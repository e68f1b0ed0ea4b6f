"""The graph passes, one a file, each an `onnx_ir.passes` pass that an export pipeline can use alone.

To add a pass, write `softq/passes/verb_object.py` with a class derived from `onnx_ir.passes.InPlacePass` whose `call`
says truthfully whether it modified the model, and expose it as

    PASS = PassEntry(name="verb-object", factory=VerbObject, summary="One line that says what it does")

Passes share facts through `node.meta` under the keys that `softq.site` and `softq.passes.rewriting.canonical` define; a
pass that finds them missing runs the pass that leaves them. Errors name the node at fault. `PASSES` finds a pass by its
name: `prepare` and `softq.convert` run theirs so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from softq.registry import Folder


@dataclass(frozen=True)
class PassEntry:
    """A pass as the folder lists it: its name, what makes one with default options, and a line of description."""

    name: str
    factory: Callable[[], ir.passes.InPlacePass]
    summary: str


PASSES = Folder(package="softq.passes", attribute="PASS", kind=PassEntry, group="softq.passes", noun="pass")
