"""Opening functions in place, in a time that grows with what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from softq.graph.queries import subgraphs


class _Nothing(set[str]):
    """Names of which none is ever taken."""

    def add(self, name: str) -> None:
        """Forget the name."""


class InlineCalls(InlinePass):
    """onnx-ir's pass, with names that are found at once.

    For the k-th call onnx-ir 1.1 tries k names for each value of the body: a function that is called 20,000 times would
    take minutes. The names are the same here.
    """

    def _instantiate_call(self, node: ir.Node, call_site_id: str) -> tuple[Sequence[ir.Node], Sequence[ir.Value]]:
        values, nodes = self._used_value_names, self._used_node_names
        self._used_value_names, self._used_node_names = _Nothing(), _Nothing()
        body, results = super()._instantiate_call(node, call_site_id)
        self._used_value_names, self._used_node_names = values, nodes
        for inner in body:
            self._name(inner)
        return body, results

    def _reset(self, model: ir.Model) -> None:
        super()._reset(model)
        self._value_counts, self._node_counts = Counter[str](), Counter[str]()

    def _name(self, node: ir.Node) -> None:
        for _, graph in subgraphs(node):
            for inner in graph:
                self._name(inner)
        node.name = _fresh(node.name or "node", self._used_node_names, self._node_counts)
        for value in node.outputs:
            value.name = _fresh(value.name or "val", self._used_value_names, self._value_counts)


def _fresh(name: str, used: set[str], counts: Counter[str]) -> str:
    """Return the name, or the first that is free of name_2, name_3, ..., and remember it."""
    found = name
    while found in used:
        counts[name] += 1
        found = f"{name}_{counts[name] + 1}"
    used.add(found)
    return found
