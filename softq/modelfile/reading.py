"""From a path, an `onnx.ModelProto` or an `ir.Model` to a model that passes may change."""

from __future__ import annotations

import os
import stat
from collections import Counter
from itertools import chain
from typing import TypeAlias, cast

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from softq.errors import InputError, UsageError, root_line
from softq.modelfile.external import check_proto, check_tensor, model_folders, place_in_file, walk
from softq.modelfile.structure import check_shape, check_structure
from softq.modelfile.tensors import Held, replace_tensors
from softq.wording import kind_of

ModelLike: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model"
"""What softq takes for a model."""

SOURCE_KEY = "softq.source"
"""Key under which `ir.Model.meta` keeps the absolute path of the file that the model was loaded from."""

MAX_PROTO_BYTES = 2**31 - 1
"""What one protobuf message can hold; larger models need external data."""

_OLDEST_IR = 3

_NEWEST_VERSION = (1 << 31) - 1
"""Of operator sets: what onnx can be asked for."""


def load(path: str | os.PathLike[str]) -> ir.Model:
    """Return the model of an ONNX file, its external tensors checked and left on disk until they are read.

    Raises:
        InputError: the file cannot be read, is no binary ONNX model, or has a tensor that breaks the rules of
            `softq.modelfile.external`.
    """
    text = os.fspath(path)
    proto = _parse(_read(text), text)
    _check(proto, repr(text))
    files = check_proto(proto, model_folders(text))
    model = _deserialize(proto, repr(text))

    def put_into_file(held: Held) -> ir.TensorProtocol:
        tensor = held.tensor
        is_external = isinstance(tensor, ir.ExternalTensor)
        return place_in_file(tensor, files[os.fspath(tensor.location)]) if is_external else tensor

    replace_tensors(model, put_into_file)
    model.meta[SOURCE_KEY] = os.path.abspath(text)
    return model


def as_model(model: ModelLike) -> ir.Model:
    """Return a model that may be changed freely: loaded from a path, or a copy of a model in memory.

    The argument is never changed. Weights are shared with it, not copied.

    Raises:
        UsageError: it is none of these.
        InputError: as in `load`; or a proto refers to external data (a proto does not know its folder).
    """
    if isinstance(model, onnx.ModelProto):
        _check(model, "the model proto")
        check_proto(model, ())
        return _own(_deserialize(model, "the model proto"))
    if isinstance(model, ir.Model):
        check_structure(model, "the model")
        try:
            copy = model.clone()
        except Exception as error:
            raise InputError(f"the model's graph is not well formed: {root_line(error, 200)}") from error
        _open_unknown(copy)
        copy.meta.update(model.meta)
        return _own(copy)
    return load(check_path(model))


def check_path(model: object) -> str | os.PathLike[str]:
    """Return what can only be the path of a model.

    Raises:
        UsageError: it is no path.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise UsageError(f"the model is {kind_of(model)}; expected a path, an onnx.ModelProto or an onnx_ir.Model")
    return cast("str | os.PathLike[str]", model)


def check_functions(model: str | os.PathLike[str] | onnx.ModelProto) -> None:
    """Check that a model whose functions a runtime will open has no more nodes then than `softq.limits` allows.

    Raises:
        InputError: it has, or the file cannot be read.
    """
    proto = model if isinstance(model, onnx.ModelProto) else _parse(_read(os.fspath(model)), os.fspath(model))
    if proto.functions:
        bare = onnx.ModelProto()
        bare.CopyFrom(proto)
        del bare.graph.initializer[:]
        bare.graph.input.extend(onnx.ValueInfoProto(name=tensor.name) for tensor in proto.graph.initializer)
        _check(bare, "the model")
        _deserialize(bare, "the model")


def _read(path: str) -> bytes:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path!r} is a folder; an ONNX file is needed")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path!r} is not a regular file; an ONNX file is needed")
        if status.st_size > MAX_PROTO_BYTES:
            raise InputError(
                f"{path!r} has {status.st_size} bytes; an ONNX file has at most {MAX_PROTO_BYTES}, "
                "larger models keep their weights in external data"
            )
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot read {path!r}: {reason}") from error


def _parse(data: bytes, path: str) -> onnx.ModelProto:
    if not data:
        raise InputError(f"{path!r} is empty; an ONNX file is needed")
    if data.startswith(b"version https://git-lfs"):
        raise InputError(f"{path!r} is a Git LFS pointer, not the model itself; fetch it with git lfs pull")
    if data[4:8] == b"ORTM":
        raise InputError(f"{path!r} is in onnxruntime's own format; the ONNX file that it was made from is needed")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise InputError(f"{path!r} is not an ONNX file in binary form, or it is damaged or cut off") from error
    return proto


def _check(proto: onnx.ModelProto, what: str) -> None:
    # Protobuf reads much that is no model: unknown fields are legal, and so is a message that ends early.
    if not proto.HasField("graph"):
        raise InputError(f"{what} is not an ONNX model, or it is cut off: it has no graph")
    if not _OLDEST_IR <= proto.ir_version <= onnx.IR_VERSION:
        raise InputError(f"{what} has IR version {proto.ir_version}; this onnx reads {_OLDEST_IR} to {onnx.IR_VERSION}")
    if not proto.opset_import:
        raise InputError(f"{what} is not an ONNX model, or it is cut off: it imports no operator set")
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = entry.domain or "ai.onnx"
        # onnx's own merging of models names a version twice.
        if versions.setdefault(domain, entry.version) != entry.version:
            raise InputError(f"{what} imports two versions of the operator set {domain!r}")
    for entry in (*proto.opset_import, *(entry for function in proto.functions for entry in function.opset_import)):
        if not 1 <= entry.version <= _NEWEST_VERSION:
            raise InputError(
                f"{what} imports version {entry.version} of {entry.domain or 'ai.onnx'!r}; versions start at 1"
            )
    functions = Counter((function.domain, function.name, function.overload) for function in proto.functions)
    for (_, name, _), count in functions.items():
        if count > 1:
            raise InputError(f"{what} is not a well formed ONNX model: function {name!r} stands {count} times in it")
    for message in walk(proto):
        _check_text(message, what)
    # onnx-ir drops both without a word.
    if proto.graph.sparse_initializer:
        raise InputError(
            f"{what} has the sparse initializer {proto.graph.sparse_initializer[0].values.name!r}; "
            "only dense ones are supported"
        )
    if proto.training_info:
        raise InputError(f"{what} carries training information, which softq cannot keep; export it for inference")


def _check_text(message: Message, what: str) -> None:
    # Protobuf hands out text that is no UTF-8 as bytes, and only the writer complains, long after.
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in [value] if isinstance(value, (str, bytes)) else value:
                if isinstance(text, bytes):
                    raise InputError(f"{what} is damaged: the {field.name} {text[:80]!r} is not UTF-8 text")


def _deserialize(proto: onnx.ModelProto, what: str) -> ir.Model:
    try:
        model = ir.from_proto(proto)
    except Exception as error:
        raise InputError(f"{what} is not a well formed ONNX model: {root_line(error, 200)}") from error
    for container in (model, *model.functions.values()):
        imports = container.opset_imports
        if "ai.onnx" in imports:
            # onnx-ir spells the domain of nodes "" but keeps the import as it was written.
            imports[""] = imports.pop("ai.onnx")
    check_structure(model, what)
    _open_unknown(model)
    return model


def _open_unknown(model: ir.Model) -> None:
    """Make axes of a negative length, and those named "?", unknown ones: runtimes take each as its own."""
    tops = (model.graph, *(function.graph for function in model.functions.values()))
    for graph in chain.from_iterable((top, *top.subgraphs()) for top in tops):
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            check_shape(value.shape, value.name)
            dims = list(value.shape or ())
            if any(map(_is_unknown, dims)):
                value.shape = ir.Shape([None if _is_unknown(dim) else dim for dim in dims])


def _is_unknown(dim: int | ir.SymbolicDim) -> bool:
    return dim < 0 if isinstance(dim, int) else dim.value == "?"


def _own(model: ir.Model) -> ir.Model:
    """Give the model tensor objects of its own over the same data: renaming a value renames its tensor."""
    replace_tensors(model, _view)
    # What passes left in meta may name values of the model that this is a copy of.
    for body in (model.graph, *model.functions.values()):
        for node in body.all_nodes():
            node.meta.clear()
            for value in node.outputs:
                value.meta.clear()
    return model


def _view(held: Held) -> ir.TensorProtocol:
    tensor = held.tensor
    if isinstance(tensor, ir.ExternalTensor):
        return place_in_file(tensor, check_tensor(tensor))
    if held.kind == "attribute":
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    if tensor.dtype == ir.DataType.STRING:
        return ir.StringTensor(tensor.numpy(), shape=shape, name=tensor.name)
    notes = dict(tensor.metadata_props)
    return ir.LazyTensor(
        lambda: tensor, tensor.dtype, shape, name=tensor.name, doc_string=tensor.doc_string, metadata_props=notes
    )
