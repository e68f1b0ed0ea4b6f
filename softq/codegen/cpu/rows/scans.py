"""Scans: states that are carried along the row, one element after the other."""

from __future__ import annotations

from collections.abc import Sequence

from softq.codegen.common.patterns import inner_nodes
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import Local, type_name
from softq.rowprog.program import Node, body_of, result_of


class Scan:
    """One scan in its pass: all nodes with the same step and the same arguments.

    Args:
        nodes: Its results that the pass needs.
        scalars: Where the row's scalars are.
    """

    def __init__(self, nodes: Sequence[Node], scalars: Emission) -> None:
        self.nodes = nodes
        self._scalars = scalars
        self._body = body_of(nodes[0])
        self._args = nodes[0].args
        self._inner = [node for node in inner_nodes(self._body, self._args) if node.op != "table"]
        self._states: list[Local] = []
        for holder, start in zip(self._body.states, self._args, strict=False):
            name = type_name(holder.dtype)
            self._states.append(Local.of(scalars.arg(start, name), name, 1))

    def step(self, e: Emission) -> None:
        """Take in the element of a place, and bind the rows that the scan gives there."""
        body, inner = self._body, Emission(e.kernel, self._scalars)
        for holder, state in zip(body.states, self._states, strict=True):
            inner.bind(holder, state)
        for holder, row in zip(body.elements, self._args[len(body.states) :], strict=False):
            inner.keep(holder, e.arg(row, inner.type_of(holder)))
        inner.compute(*self._inner)
        for node in self.nodes:
            at = result_of(node) - len(body.states)
            if at >= 0:
                e.keep(node, inner.arg(body.outputs[at], e.type_of(node)))
        # All of them from the old states: a step may exchange two.
        after = [Local.of(inner.arg(node, type_name(node.dtype)), type_name(node.dtype), 1) for node in body.next]
        for state, new in zip(self._states, after, strict=True):
            state.set(new.get())

    def finish(self) -> None:
        """Bind the last states."""
        for node in self.nodes:
            if result_of(node) < len(self._states):
                self._scalars.bind(node, self._states[result_of(node)])
