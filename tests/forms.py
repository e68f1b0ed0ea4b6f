"""Models of one pattern each: every form in which softq finds a softmax, in the spellings of several opsets.

Bodies are ONNX text with three abbreviations: statements may stand on one line; `t = ReduceSum[-1](e)` is a reduction
(`[-1]k0` does not keep its axis) or an Unsqueeze in the spelling of the opset; `c = 0.5` or `k = [1, 2]` is a constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import parser

Array = NDArray[np.generic]
Feeds = dict[str, Array]

SHAPE = (2, 3, 4, 5)
NUMPY = {"float": np.float32, "float16": np.float16, "double": np.float64}
_AXES_SINCE = {"ReduceSum": 13, "Unsqueeze": 13, "Squeeze": 13}


def text(body: str, opset: int) -> str:
    """Return the body with its abbreviations spelled out."""
    lines = [_statement(line.strip(), opset) for part in body.splitlines() for line in part.split(";") if line.strip()]
    return "\n".join(lines)


def _statement(line: str, opset: int) -> str:
    number = re.fullmatch(r"(\w+) = (-?[\d.]+(?:e-?\d+)?|-inf)", line)
    if number:
        value = f"float {{{number[2]}}}"
        # Text knows no infinity but as an attribute, which is younger than opset 12.
        if number[2] == "-inf":
            return f"{number[1]} = Constant<value_float = -inf>()"
        return f"{number[1]} = Constant<value = {value}>()"
    if ints := re.fullmatch(r"(\w+) = \[(.*)\]", line):
        count = len(ints[2].split(","))
        return f"{ints[1]} = Constant<value = int64[{count}] {{{ints[2]}}}>()"
    axes = re.fullmatch(r"(\w+) = (\w+)\[([-\d, ]+)\](k0)?\((\w+)\)", line)
    if not axes:
        return line
    out, operator, listed, drops, x = axes.groups()
    keeps = "keepdims = 0" if drops else "keepdims = 1" if operator.startswith("Reduce") else ""
    if opset >= _AXES_SINCE.get(operator, 18):
        constant = f"{out}_axes = Constant<value = int64[{listed.count(',') + 1}] {{{listed}}}>()\n"
        return f"{constant}{out} = {operator}{f'<{keeps}>' if keeps else ''}({x}, {out}_axes)"
    return f"{out} = {operator}<axes = [{listed}]{f', {keeps}' if keeps else ''}>({x})"


@dataclass(frozen=True)
class Case:
    """A pattern.

    Attributes:
        form: Name of the form that recognises it.
        body: Text of the nodes from the scores `x` to `z`.
        opsets: Opsets in which it is tried.
        inputs: Inputs besides `x`, as text; their names say what `feeds` gives them.
        dtype: Element type of `x` and `z`.
        shape: Shape of `x`.
        out: Shape of `z`, if it is another.
        rtol: Relative tolerance, from the rounding of the element type.
        atol: Absolute tolerance.
        logarithm: Whether `z` is a logarithm, which only the exact method gives.
        overflows: Whether the pattern gives NaN or zeros for large scores where the softmax is finite.
        spread: Standard deviation of the scores.
        mask: How positions are masked, where the case is about that.
        row: What a fully masked row is in the original.
        lifted: Whether the method gets the mask as a boolean row.
        masks: Names that the user says are masks.
    """

    form: str
    body: str
    opsets: tuple[int, ...] = (11, 13, 18, 23)
    inputs: str = ""
    dtype: str = "float"
    shape: tuple[int, ...] = SHAPE
    out: tuple[int, ...] | None = None
    rtol: float = 1e-5
    atol: float = 1e-6
    logarithm: bool = False
    overflows: bool = False
    spread: float = 3.0
    mask: str = ""
    row: str = "nan"
    lifted: bool = False
    masks: tuple[str, ...] = ()

    def model(self, opset: int) -> onnx.ModelProto:
        """Return the model."""
        dims, out = (",".join(map(str, shape)) for shape in (self.shape, self.out or self.shape))
        more = f", {self.inputs}" if self.inputs else ""
        head = f'<ir_version: {8 if opset < 19 else 10}, opset_import: ["": {opset}]>\n'
        head += f"g ({self.dtype}[{dims}] x{more}) => ({self.dtype}[{out}] z)"
        return parser.parse_model(f"{head} {{\n{text(self.body, opset)}\n}}")

    def feeds(self, seed: int = 0) -> Feeds:
        """Return inputs: scores with ties and with one far above, masks that hide a row, all but one, and none."""
        rng = np.random.default_rng(seed)
        x = rng.normal(0, self.spread, self.shape)
        rows = x.reshape(-1, self.shape[-1]) if x.size else x
        if rows.size:
            rows[0] = 1.5
            rows[-1, 0] = 80 if self.logarithm else 30
        keep = rng.random((2, 1, 4, 5)) < 0.6
        keep[0, 0, 1], keep[0, 0, 2], keep[1, 0, 3] = False, True, [False, True, False, False, False]
        wide = rng.random((2, 1, 1, 5)) < 0.7
        wide[..., 0] = True
        there: Feeds = {
            "keep": keep,
            "ints": keep.astype(np.int64),
            "padding": wide,
            "bias": rng.normal(0, 1, (3, 4, 5)).astype(NUMPY[self.dtype]),
            "soft": np.where(keep, 0, -1e9).astype(NUMPY[self.dtype]),
            "hard": np.where(keep, 0, -np.inf).astype(NUMPY[self.dtype]),
            "v": rng.normal(size=(2, 3, 5, 6)).astype(NUMPY[self.dtype]),
            "yes": np.array(True),
        }
        names = re.findall(r"(?:\]|bool) (\w+)", self.inputs)
        return {"x": x.astype(NUMPY[self.dtype])} | {name: there[name] for name in names}


def run(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs, computed by onnxruntime without rewrites of its own."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def _operators() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for axis in (0, 1, 2, 3, -1, -3):
        attribute = f"<axis = {axis}>"
        flat = "softmax" if axis in {3, -1} else "softmax-flattened"
        cases[f"softmax axis {axis}"] = Case("softmax", f"z = Softmax{attribute}(x)", (13, 18, 26))
        cases[f"old softmax axis {axis}"] = Case(flat, f"z = Softmax{attribute}(x)", (7, 11, 12))
        cases[f"log-softmax axis {axis}"] = Case("log-softmax", f"z = LogSoftmax{attribute}(x)", logarithm=True)
        cases[f"old log of softmax axis {axis}"] = Case(
            flat, f"p = Softmax{attribute}(x); z = Log(p)", (11,), logarithm=True
        )
        cases[f"log of softmax axis {axis}"] = Case(
            "softmax", f"p = Softmax{attribute}(x); z = Log(p)", (13, 23), logarithm=True
        )
        cases[f"exp of log-softmax axis {axis}"] = Case(
            "exp-of-log-softmax", f"l = LogSoftmax{attribute}(x); z = Exp(l)"
        )
    cases["softmax default axis"] = Case("softmax", "z = Softmax(x)", (13, 18))
    cases["old softmax default axis"] = Case("softmax-flattened", "z = Softmax(x)", (7, 11, 12))
    cases["float16"] = Case("softmax", "z = Softmax<axis = 3>(x)", dtype="float16", rtol=2e-3, atol=1e-3)
    through = "w = Cast<to = 1>(x); p = Softmax<axis = 3>(w); z = Cast<to = 10>(p)"
    cases["float16 through float32"] = Case("softmax", through, dtype="float16", rtol=2e-3, atol=1e-3)
    cases["float16 logarithm"] = Case(
        "log-softmax", "z = LogSoftmax<axis = 3>(x)", dtype="float16", rtol=2e-3, atol=2e-2, logarithm=True
    )
    cases["logarithm behind a move"] = Case(
        "softmax",
        "p = Softmax<axis = 3>(x); q = Transpose<perm = [0, 2, 1, 3]>(p); z = Log(q)",
        out=(2, 4, 3, 5),
        logarithm=True,
    )
    return cases


_SHIFTED = "m = ReduceMax[-1](x); d = Sub(x, m); e = Exp(d)"
_SUMMED = f"{_SHIFTED}; t = ReduceSum[-1](e)"
_BARE = "e = Exp(x); t = ReduceSum[-1](e)"
_STRUCK = "m = ReduceMax[-1](x); d = Sub(x, m); g = Exp(d)"
_KEEP = "bool[2,1,4,5] keep"

_QUOTIENTS = {
    "last axis": f"{_SUMMED}; z = Div(e, t)",
    "axis 1": "m = ReduceMax[1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1](e); z = Div(e, t)",
    "absolute sum": f"{_SHIFTED}; t = ReduceL1[-1](e); z = Div(e, t)",
    "two axes": "m = ReduceMax[1, 3](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1, 3](e); z = Div(e, t)",
    "a greater maximum": "m = ReduceMax(x); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e); z = Div(e, t)",
    "narrow sum": f"{_SHIFTED}; t = ReduceSum[3]k0(e); u = Unsqueeze[3](t); z = Div(e, u)",
    "expanded": """
        m = ReduceMax[3]k0(x); n = Unsqueeze[3](m); s = Shape(x); w = Expand(n, s); d = Sub(x, w); e = Exp(d)
        t = ReduceSum[3]k0(e); u = Unsqueeze[3](t); y = Expand(u, s); z = Div(e, y)""",
    "channels last": """
        m = ReduceMax[1](x); xt = Transpose<perm = [0, 2, 3, 1]>(x); mt = Transpose<perm = [0, 2, 3, 1]>(m)
        d = Sub(xt, mt); e = Exp(d); ec = Transpose<perm = [0, 3, 1, 2]>(e); t = ReduceSum[1](ec)
        tt = Transpose<perm = [0, 2, 3, 1]>(t); p = Div(e, tt); z = Transpose<perm = [0, 3, 1, 2]>(p)""",
    "negligible epsilon": f"{_SUMMED}; c = 1e-9; u = Add(t, c); z = Div(e, u)",
    "epsilon": f"{_SUMMED}; c = 1e-3; u = Add(t, c); z = Div(e, u)",
    "bounded sum": f"{_SUMMED}; c = 1e-9; u = Max(t, c); z = Div(e, u)",
    "clipped sum": f"{_SUMMED}; c = 1e-9; u = Clip(t, c); z = Div(e, u)",
    "shared": f"{_SUMMED}; p = Div(e, t); w = Mul(e, t); z = Add(p, w)",
    "made twice": f"{_SHIFTED}; d2 = Sub(x, m); e2 = Exp(d2); t = ReduceSum[-1](e2); z = Div(e, t)",
    "identities": f"{_SHIFTED}; i = Identity(e); t = ReduceSum[-1](i); j = Identity(t); z = Div(i, j)",
}
_OVERFLOWING = {
    "no maximum": f"{_BARE}; z = Div(e, t)",
    "all axes": "e = Exp(x); t = ReduceSum(e); z = Div(e, t)",
    "reshaped sum": "e = Exp(x); t = ReduceSum[3]k0(e); k = [0, 0, 0, 1]; u = Reshape(t, k); z = Div(e, u)",
    "first axis dropped": "e = Exp(x); t = ReduceSum[0]k0(e); z = Div(e, t)",
    "power of two": "b = 2.0; l = 1.442695041; w = Mul(x, l); e = Pow(b, w); t = ReduceSum[-1](e); z = Div(e, t)",
    "power of e": "b = 2.718281828459045; e = Pow(b, x); t = ReduceSum[-1](e); z = Div(e, t)",
    "power below one": "b = 0.5; e = Pow(b, x); t = ReduceSum[-1](e); z = Div(e, t)",
    "scaled": "c = 0.35; w = Mul(x, c); e = Exp(w); t = ReduceSum[-1](e); z = Div(e, t)",
    "one in the sum": f"{_BARE}; c = 1.0; u = Add(c, t); z = Div(e, u)",
    "a quarter in the sum, axis 1": "e = Exp(x); t = ReduceSum[1](e); c = 0.25; u = Add(t, c); z = Div(e, u)",
}
_STRUCK_OUT = {
    "product": f"{_STRUCK}; f = Cast<to = 1>(keep); e = Mul(g, f); t = ReduceSum[-1](e); z = Div(e, t)",
    "where": f"{_STRUCK}; n = 0.0; e = Where(keep, g, n); t = ReduceSum[-1](e); z = Div(e, t)",
    "product, epsilon": f"""
        {_STRUCK}; f = Cast<to = 1>(keep); e = Mul(f, g); t = ReduceSum[-1](e); c = 1e-6; u = Add(t, c)
        z = Div(e, u)""",
}


def _written() -> dict[str, Case]:
    cases = {f"quotient, {name}": Case("exp-over-sum", body) for name, body in _QUOTIENTS.items()}
    for name, body in _OVERFLOWING.items():
        spread = 0.5 if name == "all axes" else 3.0
        cases[f"quotient, {name}"] = Case("exp-over-sum", body, overflows=True, spread=spread)
    for name, body in _STRUCK_OUT.items():
        cases[f"struck out, {name}"] = Case("exp-over-sum", body, inputs=_KEEP)
    for name, body in {
        "behind": f"{_SUMMED}; r = Reciprocal(t); z = Mul(e, r)",
        "in front": f"{_SUMMED}; r = Reciprocal(t); z = Mul(r, e)",
        "one over the sum": f"{_SUMMED}; c = 1.0; r = Div(c, t); z = Mul(e, r)",
        "narrow": f"{_SHIFTED}; t = ReduceSum[3]k0(e); r = Reciprocal(t); u = Unsqueeze[3](r); z = Mul(e, u)",
    }.items():
        cases[f"reciprocal, {name}"] = Case("exp-times-reciprocal", body)
    body = "m = ReduceMax[1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1](e);"
    cases["body of Softmax-13"] = Case("exp-over-sum", f"{body} z = Div(e, t)")
    cases["body of LogSoftmax-13"] = Case("minus-logsumexp", f"{body} l = Log(t); z = Sub(d, l)", logarithm=True)
    cases["less logsumexp"] = Case("exp-minus-logsumexp", "l = ReduceLogSumExp[-1](x); d = Sub(x, l); z = Exp(d)")
    cases["less log of sum"] = Case(
        "exp-minus-logsumexp", f"{_BARE}; l = Log(t); d = Sub(x, l); z = Exp(d)", overflows=True
    )
    cases["less maximum and log of sum"] = Case(
        "exp-minus-logsumexp", f"{_SUMMED}; l = Log(t); k = Add(m, l); w = Sub(x, k); z = Exp(w)"
    )
    cases["logarithm, less logsumexp"] = Case(
        "minus-logsumexp", "l = ReduceLogSumExp[-1](x); z = Sub(x, l)", logarithm=True
    )
    cases["float16 written out"] = Case(
        "exp-over-sum", f"{_SUMMED}; z = Div(e, t)", dtype="float16", rtol=4e-3, atol=1e-3
    )
    cases["float16 exponentials, float32 sum"] = Case(
        "exp-over-sum",
        f"{_SHIFTED}; f = Cast<to = 1>(e); t = ReduceSum[-1](f); p = Div(f, t); z = Cast<to = 10>(p)",
        dtype="float16",
        rtol=4e-3,
        atol=1e-3,
    )
    return cases


CASES: dict[str, Case] = {**_operators(), **_written()}
