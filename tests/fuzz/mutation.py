"""Files that are nearly those given: bytes, values of JSON, and parts of models changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message

_NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    127,
    255,
    1 << 15,
    1 << 31,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
]
_WORDS = [
    "",
    "x",
    "y",
    "q",
    "s",
    "?",
    "\0",
    "\x1b[0m",
    "a" * 300,
    "../x",
    "d",
    "ai.onnx",
    "com.microsoft",
    "softq",
    "-1",
]
_OPERATORS = [
    "Add",
    "Attention",
    "Cast",
    "Concat",
    "ConstantOfShape",
    "Div",
    "Exp",
    "Expand",
    "Gather",
    "Identity",
    "If",
    "LogSoftmax",
    "Loop",
    "MatMul",
    "Max",
    "Mul",
    "MultiHeadAttention",
    "Pad",
    "Range",
    "ReduceMax",
    "ReduceSum",
    "Reshape",
    "Resize",
    "Shape",
    "Slice",
    "Softmax",
    "Split",
    "Squeeze",
    "Sub",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "Where",
]


def mutate_bytes(data: bytes, rng: np.random.Generator, others: Sequence[bytes]) -> bytes:
    """Return bytes with some changed, taken out, put in twice, or taken from another file."""
    made = bytearray(data)
    for _ in range(rng.geometric(0.4)):
        start, length = int(rng.integers(len(made) + 1)), int(rng.geometric(0.2))
        kind = rng.integers(6)
        if kind == 0 and made:
            made[start % len(made)] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            made[start : start + length] = rng.bytes(length)
        elif kind == 2:
            del made[start : start + length]
        elif kind == 3:
            made[start:start] = made[start : start + length]
        elif kind == 4:
            other = others[int(rng.integers(len(others)))]
            place = int(rng.integers(len(other) + 1))
            made[start : start + length] = other[place : place + length]
        else:
            made[start : start + 1] = bytes([int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))])
    return bytes(made)


def mutate_text(data: bytes, rng: np.random.Generator, others: Sequence[bytes]) -> bytes:
    """Return JSON with some values changed; one time in four any bytes."""
    if rng.integers(4) == 0:
        return mutate_bytes(data, rng, others)
    try:
        lines = [json.loads(line) for line in data.splitlines()] if data.count(b"\n{") else None
        value: Any = json.loads(data) if lines is None else lines
    except (ValueError, RecursionError):  # changed before, so that it is no JSON
        return mutate_bytes(data, rng, others)
    for _ in range(rng.geometric(0.5)):
        value = _change(value, rng)
    if lines is not None and isinstance(value, list):
        return b"".join(json.dumps(line).encode() + b"\n" for line in value)
    return json.dumps(value).encode() + (b"\n" if data.endswith(b"\n") else b"")


def _change(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, (dict, list)) and value and rng.integers(6):
        made = copy.copy(value)
        keys = list(made) if isinstance(made, dict) else list(range(len(made)))
        key = keys[int(rng.integers(len(keys)))]
        if rng.integers(8) == 0:
            del made[key]
        elif rng.integers(8) == 0 and isinstance(made, dict):
            made[_pick(_WORDS, rng)] = made.pop(key)
        else:
            made[key] = _change(made[key], rng)
        return made
    odd: list[Any] = [
        None,
        True,
        [],
        {},
        [[]],
        "",
        "NaN",
        float("nan"),
        float("inf"),
        1e308,
        0.5,
        {"a": 1},
        ["x"],
        [1, "x"],
    ]
    return _pick([*odd, *_NUMBERS, *_WORDS], rng)


def _pick(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]


def mutate_model(data: bytes, rng: np.random.Generator, others: Sequence[bytes]) -> bytes:
    """Return a model with fields of some of its messages changed, copied or taken out."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return mutate_bytes(data, rng, others)
    other = onnx.ModelProto.FromString(_pick([o for o in others if o != data] or [data], rng))
    for _ in range(rng.geometric(0.35)):
        nodes = [node for graph in _graphs(model) for node in graph.node]
        if nodes and rng.integers(2):
            _change_node(_pick(nodes, rng), [n for g in _graphs(other) for n in g.node], rng)
        else:
            _change_message(_pick([m for m in _messages(model) if m.ListFields()] or [model], rng), rng)
    try:
        return model.SerializeToString()
    except (DecodeError, ValueError, UnicodeError):
        return data


def _graphs(model: onnx.ModelProto) -> list[Any]:
    return [m for m in _messages(model) if isinstance(m, (onnx.GraphProto, onnx.FunctionProto))]


def _messages(message: Message) -> list[Message]:
    found = [message]
    for place in found:
        for field, value in place.ListFields():
            if field.message_type is not None:
                found.extend([value] if isinstance(value, Message) else list(value))
    return found


def _change_node(node: onnx.NodeProto, others: Sequence[onnx.NodeProto], rng: np.random.Generator) -> None:
    kind = rng.integers(6)
    if kind == 0:
        node.op_type = _pick(_OPERATORS, rng)
    elif kind == 1:
        node.domain = _pick(["", "ai.onnx", "com.microsoft", "d", "softq"], rng)
    elif kind == 2 and node.input:
        node.input.append(node.input[0]) if rng.integers(2) else node.input.pop()
    elif kind == 3 and others:
        node.attribute.extend(_pick(others, rng).attribute)
    elif kind == 4 and node.input:
        node.input[int(rng.integers(len(node.input)))] = _pick(["x", "c", "q", "s", "", *node.output], rng)
    else:
        name = _pick(["axis", "keepdims", "perm", "to", "axes", "num_heads", "start", "mode", "equation", "scale"], rng)
        value = _pick([0, -1, 5, 1 << 40, 1.5, float("nan"), "x", [1, 2], [1.5], []], rng)
        if value != []:
            node.attribute.append(onnx.helper.make_attribute(name, value))


def _change_message(message: Message, rng: np.random.Generator) -> None:
    fields = message.ListFields()
    if not fields:
        return
    field, given = _pick(fields, rng)
    value: Any = given
    if not isinstance(value, (int, float, str, bytes, Message)):
        place = int(rng.integers(len(value)))
        if rng.integers(3) == 0 or field.message_type is not None:
            value.append(value[place]) if rng.integers(2) else value.pop(place)
        else:
            value[place] = _like(value[place], rng)
    elif isinstance(value, Message) or rng.integers(6) == 0:
        message.ClearField(field.name)
    else:
        try:
            setattr(message, field.name, _like(value, rng))
        except (ValueError, TypeError):  # an enumeration, or a number out of its range
            message.ClearField(field.name)


def _like(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, bytes):
        return mutate_bytes(value, rng, [value])
    if isinstance(value, str):
        return _pick(_WORDS, rng)
    return _pick([0.0, -1.0, 1e30, float("nan"), float("inf")] if isinstance(value, float) else _NUMBERS[:12], rng)
