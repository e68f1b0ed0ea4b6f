"""Models of one pattern each: every form in which softq finds a softmax, in the spellings of several opsets.

Bodies are ONNX text with three abbreviations: statements may stand on one line; `t = ReduceSum[-1](e)` is a reduction
(`[-1]k0` does not keep its axis) or an Unsqueeze in the spelling of the opset; `c = 0.5` or `k = [1, 2]` is a constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

import softq

Array = np.ndarray[Any, Any]
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


def build(
    body: str, inputs: str, outputs: str, opset: int = 18, *, functions: str = "", domains: str = ""
) -> onnx.ModelProto:
    """Return a model of one graph; the body may use the abbreviations."""
    imports = "".join(f', "{name}": 1' for name in domains.split())
    head = f'<ir_version: {8 if opset < 19 else 10}, opset_import: ["": {opset}{imports}]>\ng ({inputs}) => ({outputs})'
    return parser.parse_model(f"{head} {{\n{text(body, opset)}\n}}\n{functions}")


def normal(*shape: int, dtype: type = np.float32) -> Array:
    """Return random scores."""
    return np.random.default_rng(sum(shape)).normal(0, 3, shape).astype(dtype)


def keep() -> Array:
    """Return a mask of which one row hides everything and one nothing."""
    mask = np.random.default_rng(1).random((2, 1, 4, 5)) < 0.6
    mask[0, 0, 1], mask[0, 0, 2] = False, True
    return mask


def check(
    proto: onnx.ModelProto,
    feeds: Feeds,
    *,
    count: int = 1,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    allow_float32: bool = False,
) -> tuple[softq.Site, ...]:
    """Convert every site by the exact method and compare; with 4 bits, what was finite stays so; return the sites."""
    result = softq.convert(proto, method="exact", all_sites=True, allow_float32=allow_float32)
    assert sum(site.verdict.action == "convert" for site in result.sites) == count, result.sites
    onnx.checker.check_model(result.model, full_check=True)
    want = run(proto, feeds)
    for got, expected in zip(run(result.model, feeds), want, strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
    if not any(site.logarithm for site in result.sites):
        coarse = softq.convert(proto, bits=4, all_sites=True, allow_float32=allow_float32).model
        for got, expected in zip(run(coarse, feeds), want, strict=True):
            np.testing.assert_array_equal(np.isfinite(got.astype(float)), np.isfinite(expected.astype(float)))
    return result.sites
