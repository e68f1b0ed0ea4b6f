"""The facts about a method as plain values."""

from __future__ import annotations

import math

import numpy as np

from softq.errors import UsageError
from softq.formatting import PROOF_LENGTH
from softq.methods import Method
from softq.rowprog import run
from softq.rowprog.ranges import prove
from softq.rowprog.streaming import streaming
from softq.specification.kernels import Kernel, kernels

_INF, _NAN = math.inf, math.nan
_CASES: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = (
    ("all equal", (2, 2, 2, 2), (1, 1, 1, 1)),
    ("one element", (2,), (1,)),
    ("-inf", (0, -_INF, 0, -_INF), (1, 1, 1, 1)),
    ("+inf", (_INF, 0, 3, _INF), (1, 1, 1, 1)),
    ("only -inf", (-_INF, -_INF), (1, 1)),
    ("a NaN", (0, _NAN, 0, _INF), (1, 1, 1, 1)),
    ("masked, with a NaN and +inf under the mask", (0, _NAN, 0, _INF), (1, 0, 1, 0)),
    ("fully masked", (0, 1), (0, 0)),
    ("empty", (), ()),
)
"""Name, scores, and which elements take part."""


def describe_method(method: Method, length: int = PROOF_LENGTH) -> dict[str, object]:
    """Return what there is to know about a method as plain values; widths come from range analysis, not from memory.

    The widest integer is told for rows of `length` elements.

    Raises:
        UsageError: the length is not one of a row with elements.
    """
    if length < 1:
        raise UsageError(f"length is {length}; a row with elements has at least 1")
    of_type = {scores.value: kernel for scores, kernel in kernels(method, length).items()}
    floats, integers = of_type["f32"], of_type.get("i8")
    return {
        "name": method.name,
        "summary": method.summary,
        "source": method.source,
        "output": "weights and normalizer" if floats.program.is_pair else "probabilities",
        "drop_in": method.drop_in,
        "bits": bits(method, floats),
        "integer_only": integers is not None and integers.is_integer,
        "scores": ["f32", "8-bit integers"] if integers is not None else ["f32"],
        "widest_integer_bits": floats.widest_bits,
        "widest_integer_for_length": length,
        "largest_length": floats.largest_length,
        "calibration": method.calibration,
        "kernels": {scores: _describe_kernel(kernel) for scores, kernel in of_type.items()},
        "special_values": special_values(method),
        "options": {
            name: {"default": getattr(method.options(), name), "allowed": spec.allowed, "help": spec.help}
            for name, spec in method.options.specs().items()
        },
    }


def bits(method: Method, kernel: Kernel) -> dict[str, object]:
    """Return the range of the option `bits`, or of a method without one what a weight takes, fixed."""
    spec = method.options.specs().get("bits")
    if spec is not None:
        return {"low": int(spec.low), "high": int(spec.high), "default": method.options().to_json()["bits"]}
    weights = kernel.program.outputs["weights" if kernel.program.is_pair else "probabilities"]
    if weights.dtype.is_float:
        return {"fixed": 32, "type": "f32"}
    proof = kernel.proof or prove(kernel.program, max_length=1)
    return {"fixed": proof.filled[weights].bits, "type": weights.dtype.value}


def _describe_kernel(kernel: Kernel) -> dict[str, object]:
    program, proof, stream = kernel.program, kernel.proof, streaming(kernel.program)
    return {
        "options": kernel.options.to_json(),
        "integer_only": kernel.is_integer,
        "widest_integer_bits": kernel.widest_bits,
        "widest_integer": None if proof is None else proof.widest,
        "largest_length": kernel.largest_length,
        "stream": {"passes": len(stream.phases), "waits_for_length": stream.obstacle},
        "outputs": {
            name: {
                "type": node.dtype.value,
                "kind": node.kind.value,
                "interval": None if proof is None else str(proof.interval(node)),
            }
            for name, node in program.outputs.items()
        },
    }


def special_values(method: Method) -> list[dict[str, object]]:
    """Return, for each kind of special row, the scores, which of them take part, and each output of float scores.

    Numbers are numbers, and text where JSON has none: "nan", "inf", "-inf". Of a row that holds a NaN only the
    normalizer (or the probabilities) is specified; further outputs are None there.
    """
    program = method.program(method.resolve(method.configure({}), False), masked=True)
    decisive = "normalizer" if program.is_pair else "probabilities"
    found: list[dict[str, object]] = []
    for name, scores, valid in _CASES:
        keep = np.array(valid, np.bool_)
        x = np.array(scores, np.float32)
        out = run(program, x[None], valid=keep[None])
        unspecified = bool(np.any(np.isnan(x[keep])))
        found.append({
            "row": name,
            "scores": [_plain(v) for v in x.tolist()],
            "valid": keep.tolist(),
            "outputs": {
                k: None if unspecified and k != decisive else [_plain(v) for v in values[0].tolist()]
                for k, values in out.items()
            },
        })  # fmt: skip
    return found


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
