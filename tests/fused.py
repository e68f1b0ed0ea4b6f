"""Small models with attentions of queries, keys and values, as ONNX text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

Feeds = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Attention:
    """A model: lines from q, k and v to `out`.

    Attributes:
        inputs: Types of the inputs by name; `B`, `S` and `N` are symbols.
        lines: The nodes.
        out: Type of the output.
        operators: Operators of the fused function beside Constant and the row function.
    """

    inputs: Mapping[str, str]
    lines: str
    out: str
    operators: set[str] = field(default_factory=set)

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        given = ", ".join(f"{kind} {name}" for name, kind in self.inputs.items())
        header = '<ir_version: 10, opset_import: ["" : 18]>'
        return onnx.parser.parse_model(f"{header} attention ({given}) => ({self.out} out) {{ {self.lines} }}")

    def feeds(self, dims: Mapping[str, int], *, seed: int = 0, whole: bool = False) -> Feeds:
        """Return inputs for dimensions by their names: normal numbers, and masks that hide a third.

        Args:
            dims: The dimensions.
            seed: Of the numbers.
            whole: Whether they are small whole ones, whose products and sums floats hold in any order.
        """
        rng = np.random.default_rng(seed)
        made: Feeds = {}
        for name, kind in self.inputs.items():
            dtype, axes = kind.rstrip("]").split("[")
            shape = [int(axis) if axis.isdigit() else dims[axis] for axis in axes.split(",")]
            numbers = rng.normal(size=shape)
            numbers = np.round(2 * numbers) if whole else numbers
            kinds = {"float": np.float32, "float16": np.float16, "int8": np.int8}
            made[name] = numbers > -0.4 if dtype == "bool" else numbers.astype(kinds[dtype])
            if name == "bias":
                made[name] = np.where(numbers > -0.4, np.float32(0), np.float32(-1e9))
        return made


HEADS, WIDTH = 4, 16
_SIDE_BY_SIDE = f"float[B,S,{HEADS},{WIDTH}]"
_Q, _K, _OUT = f"float[B,{HEADS},S,{WIDTH}]", f"float[B,{HEADS},N,{WIDTH}]", f"float[B,{HEADS},S,{WIDTH}]"
_SCALE = "scale = Constant <value: tensor = float {0.25}> ()"
_SCORES = f"{_SCALE} kt = Transpose <perm: ints = [0, 1, 3, 2]> (k) scores = MatMul(q, kt) scaled = Mul(scores, scale)"
_END = "p = Softmax <axis: int = -1> (masked) out = MatMul(p, v)"

ATTENTIONS = {
    "plain": Attention(
        {"q": _Q, "k": _K, "v": _K},
        f"{_SCORES.replace('scaled =', 'masked =')} {_END}", _OUT,
        {"Transpose", "MatMul", "Mul", "Div"},
    ),
    "side-by-side": Attention(
        dict.fromkeys("qkv", _SIDE_BY_SIDE),
        f"""{_SCALE} qt = Transpose <perm: ints = [0, 2, 1, 3]> (q) kt = Transpose <perm: ints = [0, 2, 3, 1]> (k)
        vt = Transpose <perm: ints = [0, 2, 1, 3]> (v) scores = MatMul(qt, kt) scaled = Mul(scores, scale)
        p = Softmax <axis: int = -1> (scaled) o = MatMul(p, vt) out = Transpose <perm: ints = [0, 2, 1, 3]> (o)""",
        _SIDE_BY_SIDE, {"Transpose", "MatMul", "Mul", "Div"},
    ),
    "added-mask": Attention(
        {"q": _Q, "k": _K, "v": _K, "bias": "float[B,1,1,N]"},
        f"{_SCORES} masked = Add(scaled, bias) {_END}", _OUT,
        {"Transpose", "MatMul", "Mul", "Add", "Div"},
    ),
    "chosen-mask": Attention(
        {"q": _Q, "k": _K, "v": _K, "keep": "bool[B,1,S,N]"},
        f"""{_SCORES} low = Constant <value: tensor = float {{-3.4028234663852886e38}}> ()
        masked = Where(keep, scaled, low) {_END}""", _OUT,
    ),
    "capped": Attention(
        {"q": _Q, "k": _K, "v": _K},
        f"""{_SCORES} cap = Constant <value: tensor = float {{5.0}}> () a = Div(scaled, cap) b = Tanh(a)
        masked = Mul(b, cap) {_END}""", _OUT,
        {"Transpose", "MatMul", "Mul", "Tanh", "Div"},
    ),
    "grouped": Attention(
        {"q": f"float[2,{HEADS},S,{WIDTH}]", "k": f"float[2,2,7,{WIDTH}]", "v": f"float[2,2,7,{WIDTH}]"},
        f"""axis = Constant <value: tensor = int64[1] {{2}}> ()
        more = Constant <value: tensor = int64[5] {{2, 2, 2, 7, {WIDTH}}}> ()
        flat = Constant <value: tensor = int64[4] {{2, {HEADS}, 7, {WIDTH}}}> ()
        k0 = Unsqueeze(k, axis) k1 = Expand(k0, more) k2 = Reshape(k1, flat)
        v0 = Unsqueeze(v, axis) v1 = Expand(v0, more) v2 = Reshape(v1, flat)
        {_SCALE} kt = Transpose <perm: ints = [0, 1, 3, 2]> (k2) scores = MatMul(q, kt) scaled = Mul(scores, scale)
        p = Softmax <axis: int = -1> (scaled) out = MatMul(p, v2)""",
        f"float[2,{HEADS},S,{WIDTH}]", {"Transpose", "MatMul", "Mul", "Div", "Unsqueeze", "Expand", "Reshape"},
    ),
    "computed-groups": Attention(
        {"q": f"float[B,{HEADS},S,{WIDTH}]", "k": f"float[B,2,N,{WIDTH}]", "v": f"float[B,2,N,{WIDTH}]"},
        f"""axis = Constant <value: tensor = int64[1] {{2}}> () b = Shape <start: int = 0, end: int = 1> (k)
        n = Shape <start: int = 2, end: int = 3> (k) two = Constant <value: tensor = int64[1] {{2}}> ()
        w = Constant <value: tensor = int64[1] {{{WIDTH}}}> () h = Constant <value: tensor = int64[1] {{{HEADS}}}> ()
        more = Concat <axis: int = 0> (b, two, two, n, w) flat = Concat <axis: int = 0> (b, h, n, w)
        k0 = Unsqueeze(k, axis) k1 = Expand(k0, more) k2 = Reshape(k1, flat)
        v0 = Unsqueeze(v, axis) v1 = Expand(v0, more) v2 = Reshape(v1, flat)
        {_SCALE} kt = Transpose <perm: ints = [0, 1, 3, 2]> (k2) scores = MatMul(q, kt) scaled = Mul(scores, scale)
        p = Softmax <axis: int = -1> (scaled) out = MatMul(p, v2)""",
        f"float[B,{HEADS},S,{WIDTH}]", {"Transpose", "MatMul", "Mul", "Div", "Expand", "Reshape", "Shape", "Concat"},
    ),
    "past": Attention(
        {"q": _Q, "k": f"float[B,{HEADS},S,{WIDTH}]", "v": f"float[B,{HEADS},S,{WIDTH}]",
         "past_k": f"float[B,{HEADS},P,{WIDTH}]", "past_v": f"float[B,{HEADS},P,{WIDTH}]"},
        f"""{_SCALE} all_k = Concat <axis: int = 2> (past_k, k) all_v = Concat <axis: int = 2> (past_v, v)
        kt = Transpose <perm: ints = [0, 1, 3, 2]> (all_k) scores = MatMul(q, kt) scaled = Mul(scores, scale)
        p = Softmax <axis: int = -1> (scaled) out = MatMul(p, all_v)""", _OUT,
        {"Transpose", "MatMul", "Mul", "Div"},
    ),
    "half": Attention(
        {name: kind.replace("float", "float16") for name, kind in {"q": _Q, "k": _K, "v": _K}.items()},
        f"kt = Transpose <perm: ints = [0, 1, 3, 2]> (k) masked = MatMul(q, kt) {_END}",
        _OUT.replace("float", "float16"),
    ),
    "given-scores": Attention(
        {"scores": f"float[B,{HEADS},S,N]", "v": _K},
        _END.replace("masked", "scores"), _OUT, {"MatMul", "Div"},
    ),
}  # fmt: skip
"""Attentions that convert fuses, by name."""

DIMS = {"B": 2, "S": 5, "N": 7, "P": 3}
