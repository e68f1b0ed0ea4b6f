"""Ranges of tensors: measured on calibration data, or assumed while a conversion is only tried; and codes for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.calibration.rows import io_specs
from softq.data import DataSource, open_data
from softq.errors import InputError, RefusalError
from softq.modelfile import as_model
from softq.passes.rewriting.tensor_codes import LEAST_REACH, Codes
from softq.passes.smooth_keys import FAR_BELOW
from softq.progress import Progress
from softq.runner import OnnxRunner

_AXES_ARE_AN_INPUT = 18
"""The first version of the default domain whose ReduceMax takes axes as an input."""

_GREATEST_E4M3 = 448.0


@dataclass(frozen=True)
class Wanted:
    """A tensor whose range is asked for.

    Attributes:
        site: The id of the softmax that it belongs to.
        name: The tensor's name.
        scores: Whether it is scores [..., N] in front of a softmax: what is far below a row's greatest needs no code.
    """

    site: str
    name: str
    scores: bool = False


@dataclass(frozen=True)
class Range:
    """The least and the greatest of a tensor; of scores the least that matters, and 0 is in it."""

    low: float
    high: float


Ranges = Callable[[ir.Model, Sequence[Wanted]], Mapping[str, Range]]
"""Gives the ranges of tensors of a model, by their names."""


def assume(model: ir.Model, wanted: Sequence[Wanted]) -> Mapping[str, Range]:
    """Return a range for each tensor, for a conversion that is only tried."""
    return {one.name: Range(-1.0, 1.0) for one in wanted}


def measured_on(source: DataSource, batch: int | None = None, progress: Progress | None = None) -> Ranges:
    """Return what measures ranges on data.

    Args:
        source: See `softq.data.open_data`.
        batch: Samples per run; None for the data's own.
        progress: Called with the step's name, the samples done and the samples there are, if known.
    """

    def ranges(model: ir.Model, wanted: Sequence[Wanted]) -> Mapping[str, Range]:
        data = open_data(source, *io_specs(model), reject_nan=True)
        copy = as_model(model)
        shown = {one: _show(copy, one, f"softq.range.{number}") for number, one in enumerate(dict.fromkeys(wanted))}
        runner = OnnxRunner.open(copy)
        found = {one: _Seen() for one in shown}
        names, done = [name for pair in shown.values() for name in pair], 0
        for part in data.batches(batch) if wanted else ():
            outputs = runner(part.inputs, names)
            for one, (low, high) in shown.items():
                found[one].see(np.asarray(outputs[low], np.float64), np.asarray(outputs[high], np.float64))
            done += part.samples
            if progress is not None:
                progress("ranges", done, data.samples)
        return {one.name: seen.range_of(one) for one, seen in found.items()}

    return ranges


@dataclass
class _Seen:
    """What was seen of a tensor: its least and greatest, and of scores the least of the greatest of rows."""

    low: float = math.inf
    high: float = -math.inf
    least_top: float = math.inf
    length: int = 1

    def see(self, low: np.ndarray, high: np.ndarray) -> None:
        # Rows in which all is masked have no greatest that counts.
        tops = high[(high > FAR_BELOW) & (high < math.inf)]
        self.low = min(self.low, float(np.min(low, initial=math.inf)))
        if tops.size:
            self.high, self.least_top = max(self.high, float(tops.max())), min(self.least_top, float(tops.min()))

    def range_of(self, wanted: Wanted) -> Range:
        low = max(self.low, self.least_top - _REACH) if wanted.scores else self.low
        if not math.isfinite(low) or not math.isfinite(self.high):
            raise InputError(f"the calibration data make {wanted.name} infinite, or hold no sample: it has no range")
        return Range(min(low, 0.0), max(self.high, 0.0))


_REACH = math.log(2.0**17)
"""How far below its row's greatest a score is cut off: 2^-17 of its weight is half a code of 16 bits."""


def _show(model: ir.Model, wanted: Wanted, prefix: str) -> tuple[str, str]:
    """Make the least of a tensor and the greatest (of scores, of each row) outputs of a model; return their names."""
    value = next((v for v in _values(model.graph) if v.name == wanted.name), None)
    if value is None:
        raise RefusalError(f"site {wanted.site} lies in a subgraph or function: its ranges are not seen")
    nodes = [ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT)}, name=f"{prefix}.wide")]
    wide = nodes[0].outputs[0]
    nodes.append(ir.node("ReduceMin", [wide], {"keepdims": 0}, name=f"{prefix}.low"))
    opset = model.opset_imports.get("", 1)
    if not wanted.scores:
        nodes.append(ir.node("ReduceMax", [wide], {"keepdims": 0}, name=f"{prefix}.high"))
    elif opset >= _AXES_ARE_AN_INPUT:
        nodes.append(ir.node("Constant", [], {"value_ints": [-1]}, name=f"{prefix}.axes"))
        nodes.append(ir.node("ReduceMax", [wide, nodes[-1].outputs[0]], name=f"{prefix}.high"))
    else:
        nodes.append(ir.node("ReduceMax", [wide], {"axes": [-1]}, name=f"{prefix}.high"))
    for node in nodes:
        node.outputs[0].name = f"{node.name}.out"
    model.graph.extend(nodes)
    shown = nodes[1].outputs[0], nodes[-1].outputs[0]
    for out in shown:
        out.type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.outputs.extend(shown)
    return str(shown[0].name), str(shown[1].name)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def find_codes(found: Range, dtype: ir.DataType, *, centred: bool) -> tuple[float, Codes]:
    """Return the scale of codes that reach over a range, and the codes.

    Args:
        found: The range.
        dtype: Type of the codes: integers of 8 or 16 bits, or e4m3.
        centred: Whether the code of 0 is the middle, as signed codes of operands have it.
    """
    reach = max(-found.low, found.high, LEAST_REACH)
    if dtype is ir.DataType.FLOAT8E4M3FN:
        return reach / _GREATEST_E4M3, Codes(dtype, 0)
    limits = np.iinfo(dtype.numpy())
    least, most = int(limits.min), int(limits.max)
    if centred:
        return reach / ((most - least) // 2), Codes(dtype, (most + least + 1) // 2)
    scale = max(found.high - found.low, LEAST_REACH) / (most - least)
    return scale, Codes(dtype, int(np.clip(round(least - found.low / scale), least, most)))
