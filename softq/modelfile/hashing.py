"""What names a model without reading its gigabytes: a hash of the graph, and a fingerprint of the weights."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnx_ir as ir

from softq.errors import InputError
from softq.modelfile.external import check_tensor, walk
from softq.modelfile.tensors import LARGE_BYTES, Held, swap_tensors, tensors

SAMPLE_BYTES = 4096
"""How much of a tensor's beginning, middle and end its fingerprint reads."""

# Not part of what a graph computes: notes, who wrote it, and where its weights lie.
_NOTES = frozenset({"doc_string", "metadata_props", "external_data", "data_location"})
_WRITER = ("producer_name", "producer_version", "domain", "model_version")


def graph_hash(model: ir.Model) -> str:
    """Return the SHA-256 of the graph without its weights, in hex.

    The same graph has the same hash on every run, with weights inline or external, under any producer and notes.
    """
    proto = proto_without_weights(model)
    for field in _WRITER:
        proto.ClearField(field)
    for message in walk(proto):
        for field, _ in message.ListFields():
            if field.name in _NOTES:
                message.ClearField(field.name)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


def proto_without_weights(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a proto whose initializers, and attributes above 1 KiB, keep name, type and shape only.

    The proto is for reading: a checker or a runtime misses the data. `model` is the same afterwards.
    """
    with swap_tensors(model, _without_data):
        proto = ir.to_proto(model)
    for message in walk(proto):
        if isinstance(message, onnx.TensorProto):
            message.ClearField("external_data")
            message.ClearField("data_location")
    return proto


_PLACEHOLDER = "softq:no-data"


def _without_data(held: Held) -> ir.TensorProtocol:
    tensor = held.tensor
    if held.kind == "attribute" and tensor.dtype == ir.DataType.STRING:
        return tensor
    if held.kind == "attribute" and tensor.nbytes <= LARGE_BYTES:
        # A file may store the same values as typed fields, as raw bytes or outside; raw bytes stand for all three.
        return ir.LazyTensor(lambda: tensor, tensor.dtype, ir.Shape(tensor.shape.numpy()), name=tensor.name)
    return ir.ExternalTensor(
        _PLACEHOLDER, None, None, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or ""
    )


def weights_fingerprint(model: ir.Model) -> str:
    """Return the SHA-256 over name, type, shape and bounded samples of each tensor that the graph hash leaves out.

    At most 12 KiB of a tensor are read, so other weights can share a fingerprint; trained weights do not.

    Raises:
        InputError: a data file cannot be read.
    """
    digest = hashlib.sha256()
    for held in tensors(model):
        tensor = held.tensor
        if held.kind == "attribute" and (tensor.dtype == ir.DataType.STRING or tensor.nbytes <= LARGE_BYTES):
            continue
        dims = ",".join(str(dim) for dim in tensor.shape.numpy())
        digest.update(f"{held.name}\0{tensor.dtype.name}\0{dims}\0".encode())
        for sample in _samples(tensor):
            digest.update(sample)
    return digest.hexdigest()


def _samples(tensor: ir.TensorProtocol) -> list[bytes]:
    if tensor.dtype == ir.DataType.STRING:
        return [bytes(text) + b"\0" for text in tensor.numpy().reshape(-1)[:SAMPLE_BYTES]]
    size = tensor.nbytes
    if size <= 3 * SAMPLE_BYTES:
        spans = [(0, size)]
    else:
        # No element has more than 16 bytes, so multiples of 16 never cut one.
        middle = (size // 2 - SAMPLE_BYTES // 2) // 16 * 16
        spans = [(start, start + SAMPLE_BYTES) for start in (0, middle, size - SAMPLE_BYTES)]
    if isinstance(tensor, ir.ExternalTensor):
        return _from_file(tensor, spans)
    if tensor.dtype.bitwidth < 8:
        data = tensor.tobytes()
        return [data[start:stop] for start, stop in spans]
    array = tensor.numpy()
    width = array.itemsize
    little = array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype
    return [
        np.asarray(array.flat[start // width : stop // width]).astype(little, copy=False).tobytes()
        for start, stop in spans
    ]


def _from_file(tensor: ir.ExternalTensor, spans: list[tuple[int, int]]) -> list[bytes]:
    path = check_tensor(tensor).path
    offset = tensor.offset or 0
    try:
        with open(path, "rb", buffering=0) as file:
            samples: list[bytes] = []
            for start, stop in spans:
                file.seek(offset + start)
                samples.append(file.read(stop - start))
            return samples
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}") from error
