"""The inputs and outputs of a model: what a built model can take and give."""

from __future__ import annotations

from collections.abc import Collection

import onnx
from tvm import tirx

from softq.artifact.abi import DTYPES, MAX_RANK
from softq.compiler.tir.symbolic import Dim
from softq.errors import RefusalError


def element_type(value: onnx.ValueInfoProto, what: str) -> str:
    """Return NumPy's name of the element type of an input or output.

    Raises:
        RefusalError: it is no tensor, or of a type that a built model does not exchange.
    """
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise RefusalError(f"{what} {value.name!r} is no tensor but {(kind or 'of no type').replace('_type', '')}")
    code = value.type.tensor_type.elem_type
    name = str(onnx.TensorProto.DataType.Name(code)).lower() if code else "of unknown type"
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(code).name) if code else ""
    if dtype not in DTYPES:
        raise RefusalError(f"{what} {value.name!r} is {name}; inputs and outputs are one of: {', '.join(DTYPES)}")
    return dtype


def check_input(value: onnx.ValueInfoProto) -> None:
    """Refuse an input that a built model cannot take.

    Raises:
        RefusalError: naming the input, and what it is.
    """
    element_type(value, "input")
    if not value.type.tensor_type.HasField("shape"):
        raise RefusalError(
            f"input {value.name!r} has an unknown number of axes; give it a shape: --input-shape '{value.name}:LENGTHS'"
        )
    _check_rank(value, "input")


def check_output(value: onnx.ValueInfoProto) -> None:
    """Refuse an output that a built model cannot give.

    Raises:
        RefusalError: naming the output and its type.
    """
    if value.type.WhichOneof("value") is None:
        return  # Its type is the one that its node gives it.
    element_type(value, "output")
    _check_rank(value, "output")


def input_shape(value: onnx.ValueInfoProto, names: Collection[str], known: dict[str, tirx.Var]) -> list[Dim]:
    """Return the dimensions of an input.

    Args:
        value: The input; `check_input` takes it.
        names: Names that stand for a dimension somewhere in the model.
        known: The variables of the dimensions so far, by name; new ones are added. A dimension without a name gets
            that of its place.

    """
    dims: list[Dim] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.WhichOneof("value") == "dim_value":
            dims.append(int(dim.dim_value))
            continue
        name = dim.dim_param
        if not name:
            name = f"{value.name}_{axis}"
            while name in names or name in known:
                name += "_"
        dims.append(known.setdefault(name, tirx.Var(name, "int64")))
    return dims


def _check_rank(value: onnx.ValueInfoProto, what: str) -> None:
    rank = len(value.type.tensor_type.shape.dim)
    if rank > MAX_RANK:
        raise RefusalError(f"{what} {value.name!r} has {rank} axes; inputs and outputs have at most {MAX_RANK}")
