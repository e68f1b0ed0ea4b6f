"""Writing a model so that it appears whole or not at all, beside its weights or with a copy of them.

A model that lies in the folder of its weights, or above, refers to the same files. Elsewhere the files are copied;
never linked, because readers refuse links and a hard link makes even the source unloadable. Files are written under
temporary names, flushed and renamed: data first, the model last. No data file that exists is ever written over.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from types import MappingProxyType

import onnx
import onnx_ir as ir

from softq.errors import InputError, UsageError
from softq.files import write_files
from softq.modelfile.external import LOCATION_KEY, DataFile, check_tensor, place_in_file
from softq.modelfile.reading import MAX_PROTO_BYTES, SOURCE_KEY, as_model, load
from softq.modelfile.staging import Staging
from softq.modelfile.tensors import LARGE_BYTES, Held, swap_tensors, tensors

# Readers map tensors from the file: this is the alignment that vector loads want, and one page holds many of them.
_ALIGNMENT = 64


def save(
    model: ir.Model | onnx.ModelProto,
    path: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    also: Mapping[Path, bytes] = MappingProxyType({}),
) -> None:
    """Write the model to `path`; on an error nothing is left behind, and a file that was there is as it was.

    The same model gives the same bytes on every run. Tensors in memory stay inside the file while it is below 2 GB.

    Args:
        model: The model, as `convert` gives it; it is the same afterwards.
        path: The file to write. A link there is replaced, not followed.
        source: The file that the model was made from, which `path` must not be; a model from `load` knows its own.
        also: Files that are written with it, all or none.

    Raises:
        UsageError: `path` is the source, one of its data files, or no place for a file.
        InputError: the folder is absent, cannot be written, or the disk is full; or weights cannot be read; or a
            proto refers to external data (it does not know its folder).
    """
    if isinstance(model, onnx.ModelProto):
        model = as_model(model)
    target = os.fspath(path)
    files = {id(tensor): check_tensor(tensor) for tensor in _external(model)}
    folder = _check_target(target, [source, model.meta.get(SOURCE_KEY), *(file.path for file in files.values())])
    try:
        with Staging(folder, os.path.basename(target)) as staging:
            _stage(model, files, staging)
            write_files(also, staging.commit)
    except OSError as error:
        raise InputError(f"cannot write {target!r}: {error.strerror or error}") from error


def _external(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    return (held.tensor for held in tensors(model) if isinstance(held.tensor, ir.ExternalTensor))


def data_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the files that hold the weights of a model, without the model's own."""
    try:
        model = load(path)
    except InputError:
        return []  # the command that reads it says what is wrong
    return sorted({check_tensor(tensor).path for tensor in _external(model)})


def files_size(path: str | os.PathLike[str]) -> int:
    """Return how many bytes a model's files take, weights too."""
    return sum(os.stat(file).st_size for file in (path, *data_files(path)))


def check_output(path: str | os.PathLike[str], *, source: str | os.PathLike[str]) -> None:
    """Say before the work what `save` would say after it, as far as the path alone shows it.

    Raises:
        UsageError: `path` is the source, or no place for a file.
        InputError: the folder is absent or cannot be written.
    """
    target = os.fspath(path)
    folder = _check_target(target, [source])
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target!r}: the folder {folder!r} is not writable")


def _check_target(target: str, inputs: list[str | os.PathLike[str] | None]) -> str:
    """Return the folder that the target lies in."""
    if not os.path.basename(target):
        raise UsageError(f"output {target!r} is not a file name")
    for path in inputs:
        if path is None:
            continue
        same = os.path.realpath(path) == os.path.realpath(target)
        if not same and os.path.exists(path) and os.path.exists(target):
            same = os.path.samefile(path, target)
        if same:
            raise UsageError(f"output {target!r} is the input {os.fspath(path)!r}; inputs are never written")
    if os.path.lexists(target):
        mode = os.lstat(target).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise UsageError(f"output {target!r} is {kind}; it must be a file name")
    folder = os.path.realpath(os.path.dirname(target) or ".")
    if not os.path.isdir(folder):
        raise InputError(f"cannot write {target!r}: the folder {folder!r} does not exist")
    return folder


def _stage(model: ir.Model, files: dict[int, DataFile], staging: Staging) -> None:
    names: dict[str, str] = {}
    for tensor in _external(model):
        file = files[id(tensor)]
        if file.path not in names:
            names[file.path] = _name_in(staging, file, tensor)

    def refer(held: Held) -> ir.TensorProtocol:
        if not isinstance(held.tensor, ir.ExternalTensor):
            return held.tensor
        file = files[id(held.tensor)]
        return place_in_file(held.tensor, file, location=names[file.path])

    inline = sum(held.tensor.nbytes for held in tensors(model) if not isinstance(held.tensor, ir.ExternalTensor))
    with swap_tensors(model, refer):
        proto = None if inline > MAX_PROTO_BYTES else ir.to_proto(model)
        if proto is None or proto.ByteSize() > MAX_PROTO_BYTES:
            proto = _with_data_outside(model, staging)
        if proto.ByteSize() > MAX_PROTO_BYTES:
            raise InputError(
                f"the graph alone has {proto.ByteSize()} bytes; an ONNX file has at most {MAX_PROTO_BYTES}"
            )
        staging.write_model(proto.SerializeToString(deterministic=True))


def _name_in(staging: Staging, file: DataFile, tensor: ir.ExternalTensor) -> str:
    if os.path.commonpath((file.path, staging.folder)) == staging.folder:
        return os.path.relpath(file.path, staging.folder).replace(os.sep, "/")
    location = tensor.meta.get(LOCATION_KEY, os.fspath(tensor.location))
    return staging.copy_data(file.path, PureWindowsPath(location).name)


def _with_data_outside(model: ir.Model, staging: Staging) -> onnx.ModelProto:
    """Write the large initializers that are in memory to a data file, one after the other, and refer to it."""
    places: dict[int, tuple[int, int]] = {}
    end = 0
    large: list[ir.TensorProtocol] = []
    for held in tensors(model):
        tensor = held.tensor
        outside = isinstance(tensor, ir.ExternalTensor) or tensor.dtype == ir.DataType.STRING
        if held.kind == "attribute" or outside or tensor.nbytes <= LARGE_BYTES or id(tensor) in places:
            continue
        start = math.ceil(end / _ALIGNMENT) * _ALIGNMENT
        places[id(tensor)] = (start, tensor.nbytes)
        end = start + tensor.nbytes
        large.append(tensor)

    def pieces() -> Iterator[bytes]:
        position = 0
        for tensor in large:
            start, length = places[id(tensor)]
            yield bytes(start - position)
            yield tensor.tobytes()
            position = start + length

    name = staging.write_data(pieces())

    def refer(held: Held) -> ir.TensorProtocol:
        place = places.get(id(held.tensor))
        if place is None or held.kind == "attribute":
            return held.tensor
        shape = ir.Shape(held.tensor.shape.numpy())
        return ir.ExternalTensor(name, *place, held.tensor.dtype, shape=shape, name=held.tensor.name or "")

    with swap_tensors(model, refer):
        return ir.to_proto(model)
