"""Recurrent layers and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.random_graph import BOOL, FLOAT, I64, NOTHING, Draw, Drawn, Graph


def _recurrent(operator: str) -> Draw:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]

    def draw(g: Graph) -> None:
        direction = g.rng.choice(("forward", "reverse", "bidirectional"))
        directions, hidden = 2 if direction == "bidirectional" else 1, 3
        weights = [g.constant(g.data(FLOAT, (directions, gates * hidden, n)) * np.float32(0.5)) for n in (4, hidden)]
        bias = g.weight(directions, 2 * gates * hidden) if g.rng.random() < 0.6 else NOTHING
        lengths = g.given(np.array([5, 3], np.int32)) if g.rng.random() < 0.3 else NOTHING
        x = g.input(FLOAT, (5, 2, 4), g.fix(1, 2))
        first: list[Drawn] = []
        if g.rng.random() < 0.4:
            first = [g.given(g.data(FLOAT, (directions, 2, hidden))) for _ in range(2 if operator == "LSTM" else 1)]
        more: dict[str, Any] = {"linear_before_reset": g.rng.randint(0, 1)} if operator == "GRU" else {}
        results = 3 if operator == "LSTM" else 2
        g.add(
            operator, [x, *weights, bias, lengths, *first], results=results, direction=direction, hidden_size=hidden,
            **more,
        )  # fmt: skip

    return draw


def _info(name: str, dtype: int, shape: tuple[int | None, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _name(g: Graph, text: str) -> str:
    return f"b{len(g.nodes)}_{text}"


def _if(g: Graph) -> None:
    x, condition = g.pick((FLOAT,), least=1), g.given(np.array(g.rng.random() < 0.5))
    branches = {}
    for branch, operator in (("then_branch", "Tanh"), ("else_branch", g.rng.choice(("Neg", "Concat")))):
        result = _name(g, branch)
        more: dict[str, Any] = {"axis": 0} if operator == "Concat" else {}
        node = helper.make_node(operator, [x.name] * (2 if more else 1), [result], **more)
        shape = (None, *x.shape[1:]) if more else x.shape
        free = tuple(None for _ in shape)
        branches[branch] = helper.make_graph([node], branch, [], [_info(result, x.dtype, free)])
    g.add("If", [condition], captured=[x], **branches)


def _loop(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    step, turn, held, kept, grown, seen = (_name(g, n) for n in ("i", "c", "v", "k", "w", "s"))
    free = (None,) * len(x.shape)
    nodes = [
        helper.make_node("Identity", [turn], [kept]),
        helper.make_node("Tanh", [held], [_name(g, "t")]),
        helper.make_node("Add", [_name(g, "t"), x.name], [grown]),
        helper.make_node("Sigmoid", [grown], [seen]),
    ]
    body = helper.make_graph(
        nodes, "body", [_info(step, I64, ()), _info(turn, BOOL, ()), _info(held, FLOAT, free)],
        [_info(kept, BOOL, ()), _info(grown, FLOAT, free), _info(seen, FLOAT, free)],
    )  # fmt: skip
    rounds = np.array(g.rng.randint(1, 4))
    count = g.constant(rounds) if g.rng.random() < 0.5 else g.given(rounds)
    g.add("Loop", [count, g.constant(np.array(True)), x], results=2, captured=[x], body=body)


def _scan(g: Graph) -> None:
    x = g.pick((FLOAT,), rank=2)
    held, part, total, seen = (_name(g, n) for n in ("h", "p", "t", "s"))
    first = g.given(g.data(FLOAT, x.shape[1:]), fixed=False)
    nodes = [helper.make_node("Add", [held, part], [total]), helper.make_node("Tanh", [total], [seen])]
    free = (None,)
    body = helper.make_graph(
        nodes, "body", [_info(n, TensorProto.FLOAT, free) for n in (held, part)],
        [_info(n, TensorProto.FLOAT, free) for n in (total, seen)],
    )  # fmt: skip
    g.add("Scan", [first, x], results=2, body=body, num_scan_inputs=1, scan_input_directions=[g.rng.randint(0, 1)])


OPERATORS: dict[str, Draw] = {
    **{name: _recurrent(name) for name in ("RNN", "GRU", "LSTM")},
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
