"""Outputs of a graph that show rows of its attention maps: the rows are chosen inside, the maps never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from softq.errors import RefusalError
from softq.passes.defer_normalizer import products_with_v
from softq.passes.replace import canonical_nodes
from softq.passes.rewriting.canonical import Canonical
from softq.site import Site


@dataclass(frozen=True)
class Tap:
    """Names of the graph's inputs and outputs for one site.

    Attributes:
        site: The site.
        words: An input: numbers that choose the rows, int64 [samples, maps, rows]; map m of a sample takes those of
            m modulo maps.
        scores: An output: the rows of each map, f32 [..., rows, N].
        values: An output: V, f32 [..., N, D]; None where the site has no product with V.
    """

    site: Site
    words: str
    scores: str
    values: str | None


def tap(model: ir.Model, wanted: Sequence[str], unseen: dict[str, str] | None) -> list[Tap]:
    """Add what shows the wanted sites of a normalized model to its inputs and outputs, and return their names.

    Raises:
        RefusalError: as in `softq.calibration.rows.collect`.
    """
    graph = model.graph
    taps: list[Tap] = []
    canonical = {c.site.id: (node, c) for node, c in canonical_nodes(model)}
    for number, key in enumerate(wanted):
        node, form = canonical[key]
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        if node.graph is not graph:
            hidden = "lies in a subgraph or function"
        elif shape is not None and len(shape) < 2:
            hidden = "has scores of one axis"
        else:
            hidden = ""
        if hidden and unseen is not None:
            unseen[key] = f"it {hidden}"
            continue
        if hidden:
            raise RefusalError(f"site {key} {hidden} and cannot be calibrated; set a number instead")
        taps.append(_Writer(graph, f"softq.calibrate.{number}").tap(node, form))
    return taps


class _Writer:
    def __init__(self, graph: ir.Graph, prefix: str) -> None:
        self._graph, self._prefix, self._nodes = graph, prefix, list[ir.Node]()

    def _add(self, op: str, *inputs: ir.Value, **attributes: int | Sequence[int]) -> ir.Value:
        name = f"{self._prefix}.{len(self._nodes)}"
        made = ir.node(op, inputs, attributes, name=name)
        made.outputs[0].name = f"{name}.out"
        self._nodes.append(made)
        return made.outputs[0]

    def _number(self, value: int) -> ir.Value:
        return self._add("Constant", value_int=value)

    def _numbers(self, *values: int) -> ir.Value:
        return self._add("Constant", value_ints=values)

    def tap(self, node: ir.Node, form: Canonical) -> Tap:
        scores = node.inputs[0]
        assert scores is not None
        words = ir.Value(
            name=f"{self._prefix}.words", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None] * 3)
        )
        self._graph.inputs.append(words)
        shown = [self._output(self._rows(scores, words), scores)]
        product = next(products_with_v(form.probabilities, form.zero_rows), None)
        if product is not None and product.inputs[1] is not None:
            shown.append(self._output(product.inputs[1], product.inputs[1]))
        self._graph.extend(self._nodes)
        return Tap(form.site, str(words.name), shown[0], shown[1] if len(shown) > 1 else None)

    def _rows(self, scores: ir.Value, words: ir.Value) -> ir.Value:
        """Return the chosen rows of each map: row w modulo Q for the word w, Q known only when the graph runs."""
        lead = self._add("Shape", scores, end=-2)
        queries, length = self._add("Shape", scores, start=-2, end=-1), self._add("Shape", scores, start=-1)
        count = self._add("ReduceProd", lead, keepdims=1)
        one, last = self._numbers(1), self._numbers(-1)
        # The first axis of scores counts samples, so that the maps of one follow each other.
        samples, known, taken = (self._add("Shape", words, start=at, end=at + 1) for at in range(3))
        each = self._add("Max", self._add("Div", count, samples), one)
        maps = self._add("Range", self._number(0), self._add("Squeeze", count), self._number(1))
        sample = self._add("Min", self._add("Div", maps, each), self._add("Sub", samples, one))
        place = self._add("Mod", self._add("Mod", maps, each), known)
        pairs = self._add(
            "Concat", self._add("Unsqueeze", sample, last), self._add("Unsqueeze", place, last), axis=-1
        )  # fmt: skip
        rows = self._add("Mod", self._add("GatherND", words, pairs), self._add("Max", queries, one))
        flat = self._add("Reshape", scores, self._add("Concat", count, queries, length, axis=0), allowzero=1)
        picked = self._add("GatherND", flat, self._add("Unsqueeze", rows, last), batch_dims=1)
        return self._add("Reshape", picked, self._add("Concat", lead, taken, length, axis=0), allowzero=1)

    def _output(self, value: ir.Value, like: ir.Value) -> str:
        shown = self._add("Cast", value, to=int(ir.DataType.FLOAT))
        shown.type = ir.TensorType(ir.DataType.FLOAT)
        shown.shape = None if like.shape is None else ir.Shape([None] * len(like.shape))
        self._graph.outputs.append(shown)
        return str(shown.name)
