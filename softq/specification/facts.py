"""The facts about a method as plain values."""

from __future__ import annotations

from softq.errors import UsageError
from softq.formatting import PROOF_LENGTH
from softq.methods import Method, OptionValue
from softq.rowprog.ranges import prove
from softq.specification.kernels import Kernel, kernels
from softq.specification.special import special_values


def describe_method(method: Method, length: int = PROOF_LENGTH) -> dict[str, object]:
    """Return what there is to know about a method as plain values; widths come from range analysis, not from memory.

    Args:
        method: The method.
        length: Elements of the row for which the widest integer is told.

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
        "widest_integer_bits": _widest(floats),
        "widest_integer_for_length": length,
        "largest_length": floats.largest_length,
        "calibration": method.calibration,
        "kernels": {scores: _describe_kernel(kernel) for scores, kernel in of_type.items()},
        "special_values": special_values(method),
        "options": {
            name: {"default": default, "allowed": spec.allowed, "help": spec.help}
            for (name, spec), default in zip(
                method.options.specs().items(), method.options().to_json().values(), strict=True
            )
        },
    }


def bits(method: Method, kernel: Kernel) -> dict[str, object]:
    """Return the range of the option `bits`, or of a method without one what a weight takes, fixed."""
    spec = method.options.specs().get("bits")
    if spec is not None:
        default: OptionValue = method.options().to_json()["bits"]
        return {"low": int(spec.low), "high": int(spec.high), "default": default}
    weights = kernel.program.outputs["weights" if kernel.program.is_pair else "probabilities"]
    if weights.dtype.is_float:
        return {"fixed": 32, "type": "f32"}
    proof = kernel.proof or prove(kernel.program, max_length=1)
    return {"fixed": proof.filled[weights].bits, "type": weights.dtype.value}


def _widest(kernel: Kernel) -> int | None:
    return None if kernel.proof is None else kernel.proof.widest_bits


def _describe_kernel(kernel: Kernel) -> dict[str, object]:
    program, proof = kernel.program, kernel.proof
    return {
        "options": kernel.options.to_json(),
        "integer_only": kernel.is_integer,
        "widest_integer_bits": _widest(kernel),
        "widest_integer": None if proof is None else proof.widest,
        "largest_length": kernel.largest_length,
        "outputs": {
            name: {
                "type": node.dtype.value,
                "kind": node.kind.value,
                "interval": None if proof is None else str(proof.interval(node)),
            }
            for name, node in program.outputs.items()
        },
    }
