"""The graph passes, one per file, each an `onnx_ir.passes` pass that an export pipeline can use alone.

To add a pass, write `softq/passes/verb_object.py` with a class derived from `onnx_ir.passes.InPlacePass` whose `call`
says truthfully whether it modified the model, or from `NodePass` or `BodyPass`, and expose it as

    PASS = PassEntry(name="verb-object", factory=VerbObject, summary="One line that says what it does")

Passes share facts through `node.meta` under the keys that `softq.site` and `softq.passes.rewriting.canonical` define; a
pass that finds them missing runs the pass that leaves them. Errors name the node at fault. `PASSES` finds a pass by its
name: `prepare` and `softq.convert` run theirs so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from softq.graph.bodies import open_nodes
from softq.graph.queries import has_references
from softq.graph.signatures import refuse_unsupported
from softq.graph.view import Container, ModelView
from softq.registry import Folder

NOTES_KEY = "softq.notes"
"""Key under which passes leave what the user should know of their work, a tuple of sentences, in a model's meta."""


class NodePass(ir.passes.InPlacePass):
    """A pass that looks at one node of the default domain at a time, in every container."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the nodes; `modified` says whether any was."""
        modified = False
        for container in ModelView(model).containers:
            for node in list(container.body):
                if node.graph is not None and node.domain == "":
                    modified |= self._rewrite(node, container)
        return ir.passes.PassResult(model, modified)

    @abstractmethod
    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        """Rewrite a node, or others with it; return whether it was."""


class BodyPass(ir.passes.InPlacePass):
    """A pass that replaces nodes, one at a time, by the body of a function; attributes that are references stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace the nodes; `modified` says whether there were any."""
        return ir.passes.PassResult(model, open_nodes(model, self._checked))

    def _checked(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        return None if has_references(node) or refuse_unsupported(node, opset) else self._body(node, opset)

    @abstractmethod
    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        """Return what a node is short for in an operator set, None if it stays."""


@dataclass(frozen=True)
class PassEntry:
    """A pass as the folder lists it.

    Attributes:
        name: Unique, in lower case with hyphens.
        factory: Makes one with default options.
        summary: One line.
        opens: Domain and name of the operators that it may replace by others.
    """

    name: str
    factory: Callable[[], ir.passes.InPlacePass]
    summary: str
    opens: frozenset[tuple[str, str]] = frozenset()


PASSES = Folder(package="softq.passes", attribute="PASS", kind=PassEntry, group="softq.passes", noun="pass")
