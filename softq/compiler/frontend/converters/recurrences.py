"""LSTM, GRU and RNN: the products with the inputs of all steps at once, then a kernel for the recurrence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.compiler.frontend.converters.products import matmul
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Array, Converter, Node, constant
from softq.compiler.ops.data_movement import PositionsOp
from softq.compiler.ops.recurrence import Activation, Kind, RecurrenceOp
from softq.compiler.tir.symbolic import expression, plain, product, simplified
from softq.errors import RefusalError

Given = Array | relax.Expr
"""What is known now is computed now."""

_DEFAULTS: Mapping[Kind, tuple[str, ...]] = {
    "RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}  # fmt: skip
"""The activations of a direction."""

_NUMBERS: Mapping[str, tuple[float | None, float | None]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
}
"""Alpha and beta of each function where the lists of the node have none for it; None where it has no such number."""

_DIRECTIONS: Mapping[str, tuple[bool, ...]] = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _recurrence(kind: Kind) -> Converter:
    def convert(node: Node) -> list[relax.Expr]:
        return _Layer(node, kind).results()

    return convert


class _Layer:
    def __init__(self, node: Node, kind: Kind) -> None:
        self._node, self._kind, self._attributes = node, kind, node.attributes
        self._reverse = _DIRECTIONS[str(node.attributes.get("direction", "forward")).lower()]
        x = node.tensor(0)
        self._dtype = str(x.ty.dtype)
        if self._dtype not in ("float32", "float16") or not node.importer.supports(RecurrenceOp, "float32"):
            raise RefusalError(f"{kind} {node.name!r} of {self._dtype} has no kernel for this target")
        self._batch_first = bool(node.attributes.get("layout", 0))
        self._x = self._moved(self._wide(x))
        self._steps, self._batch, _ = node.importer.dims(self._x, node.name)
        directions, rows, hidden = map(plain, node.shape(2))
        if directions != len(self._reverse) or plain(node.attributes.get("hidden_size", hidden)) != hidden:
            raise RefusalError(f"{kind} {node.name!r}: R has {directions} directions of {hidden} units")
        self._hidden, self._rows = hidden, rows

    def _wide(self, x: relax.Expr) -> relax.Expr:
        return x if str(x.ty.dtype) == "float32" else self._node.emit(relax.op.astype(x, "float32"))

    def _moved(self, x: relax.Expr) -> relax.Expr:
        return self._node.emit(relax.op.permute_dims(x, [1, 0, 2])) if self._batch_first else x

    def _given(self, position: int) -> Given | None:
        if not self._node.has(position):
            return None
        array = self._node.array(position)
        return self._wide(self._node.tensor(position)) if array is None else array.astype(np.float32)

    def _shaped(self, x: Given, shape: list[int]) -> Given:
        return x.reshape(shape) if isinstance(x, np.ndarray) else reshape(self._node, x, list(shape))

    def _part(self, x: Given, first: int, last: int) -> Given:
        """Return columns of the second axis."""
        if isinstance(x, np.ndarray):
            return x[:, first:last]
        return self._node.emit(relax.op.strided_slice(x, [1], [first], [last]))

    def _add(self, a: Given, b: Given) -> Given:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a + b
        return self._node.emit(relax.op.add(self._tensor(a), self._tensor(b)))

    @staticmethod
    def _tensor(x: Given) -> relax.Expr:
        return constant(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x

    def results(self) -> list[relax.Expr]:
        node, directions = self._node, len(self._reverse)
        op, weights, others = self._operator()
        last = (directions, self._batch, self._hidden)
        shapes = [(self._steps, directions, self._batch, self._hidden), last, *([last] if op.kind == "LSTM" else [])]
        types = [relax.TensorType([expression(d) for d in shape], "float32") for shape in shapes]
        arguments = [self._products(op), *weights, *others]
        both = node.call(op.symbol, op, arguments, types)
        results = [node.emit(relax.TupleGetItem(both, i)) for i in range(len(types))]
        if self._batch_first:
            results = [node.emit(relax.op.permute_dims(results[0], [2, 0, 1, 3])), *map(self._moved, results[1:])]
        if self._dtype != "float32":
            results = [node.emit(relax.op.astype(x, self._dtype)) for x in results]
        return results

    def _products(self, op: RecurrenceOp) -> relax.Expr:
        """Return the products of all inputs with the weights of all directions, and biases."""
        node, directions, rows = self._node, len(self._reverse), self._rows
        weights, inputs = self._given(1), plain(self._node.shape(0)[-1])
        assert weights is not None
        weights = self._tensor(self._shaped(weights, [directions * rows, inputs]))
        x = reshape(node, self._x, [product([self._steps, self._batch]), inputs])
        y = matmul(node, x, weights, transposed=True)
        bias = self._given(3)
        if bias is not None:
            both, last = self._part(bias, 0, rows), rows
            if "bias" in op.given:
                last -= self._hidden
            recurrent = self._part(bias, rows, rows + last)
            if last < rows:
                both, fresh = self._part(both, 0, last), self._part(both, last, rows)
                both = self._joined(self._add(both, recurrent), fresh)
            else:
                both = self._add(both, recurrent)
            y = node.emit(relax.op.add(y, self._tensor(self._shaped(both, [directions * rows]))))
        return reshape(node, y, [self._steps, self._batch, directions, rows])

    def _joined(self, a: Given, b: Given) -> Given:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return np.concatenate([a, b], axis=1)
        return self._node.emit(relax.op.concat([self._tensor(a), self._tensor(b)], axis=1))

    def _operator(self) -> tuple[RecurrenceOp, list[relax.Expr], list[relax.Expr]]:
        """Return the operator, the weights of its recurrence, and its optional arguments."""
        weights, others = self._given(2), dict[str, relax.Expr]()
        assert weights is not None
        split = 2 * self._hidden if self._kind == "GRU" else self._rows
        parts = [(0, split), *([(split, self._rows)] if split < self._rows else [])]
        if self._kind == "GRU" and self._attributes.get("linear_before_reset", 0):
            bias = self._given(3)
            whole = np.zeros((len(self._reverse), 2 * self._rows), np.float32) if bias is None else bias
            others["bias"] = self._tensor(self._part(whole, 2 * self._rows - self._hidden, 2 * self._rows))
        for name, position in (("hidden", 5), ("cell", 6)):
            if position < 6 or self._kind == "LSTM":
                state = self._given(position)
                if state is not None:
                    others[name] = self._moved(self._tensor(state))
        peepholes = self._given(7) if self._kind == "LSTM" else None
        if peepholes is not None:
            others["peepholes"] = self._tensor(peepholes)
        if self._node.has(4):
            others["lengths"] = self._lengths()
        op = RecurrenceOp(
            self._kind,
            self._reverse,
            self._activations(),
            frozenset(others),
            self._attributes.get("clip") or None,
            bool(self._attributes.get("input_forget", 0)),
        )
        return op, [self._tensor(self._part(weights, *part)) for part in parts], list(others.values())

    def _lengths(self) -> relax.Expr:
        """Return the sequences' lengths; one below 0 or above the number of steps ends the run."""
        node, known = self._node, self._node.array(4)
        steps = plain(self._steps)
        if known is not None and isinstance(steps, int) and ((known >= 0) & (known <= steps)).all():
            return constant(known.astype(np.int64))
        lengths = node.emit(relax.op.astype(node.tensor(4), "int64"))
        # What checks indices takes those from -1 on for counted from the end.
        negative = node.emit(relax.op.less(lengths, relax.const(0, "int64")))
        least = relax.const(np.iinfo(np.int64).min, "int64")
        lengths = node.emit(relax.op.where(negative, least, lengths))
        call = PositionsOp(f"{self._kind} {node.name!r}: a sequence has less than 0 steps, or more than there are")
        shape = relax.ShapeExpr([expression(simplified(expression(self._steps) + 1))])
        return node.call(node.importer.new_name("lengths"), call, [lengths, shape], lengths.ty)

    def _activations(self) -> tuple[tuple[Activation, ...], ...]:
        default = _DEFAULTS[self._kind]
        names = [n.decode() if isinstance(n, bytes) else n for n in self._attributes.get("activations", [])]
        names = names or [*default] * len(self._reverse)
        known = {name.lower(): name for name in _NUMBERS}
        unknown = [name for name in names if name.lower() not in known]
        if unknown or len(names) != len(default) * len(self._reverse):
            raise RefusalError(f"{self._kind} {self._node.name!r} has the activations {names}; known are {[*_NUMBERS]}")
        lists = [list(self._attributes.get(f"activation_{which}", [])) for which in ("alpha", "beta")]
        made: list[Activation] = []
        for name in (known[n.lower()] for n in names):
            alpha, beta = (
                0.0 if default is None else float(left.pop(0)) if left else default
                for left, default in zip(lists, _NUMBERS[name], strict=True)
            )
            made.append(Activation(name, alpha, beta))
        count = len(default)
        return tuple(tuple(made[i : i + count]) for i in range(0, len(made), count))


CONVERTERS: Mapping[str, Converter] = {kind: _recurrence(kind) for kind in _DEFAULTS}
