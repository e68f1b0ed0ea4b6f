"""Where external tensors lie, and which of those places softq is willing to read.

A model file is data from strangers, and its `external_data` entries name files. The rules, with the advisories that
taught each one to onnx's own readers (onnx-ir applies some of them, and none where the base folder is empty):

* Only the keys of the specification; each at most once (CVE-2026-34445: unknown keys became attributes of objects).
* The location is relative and never leaves the folder, whatever lies between its `..` (CVE-2022-25882, CVE-2024-27318);
  the same holds for the names that `save` writes to (CVE-2024-5187).
* With all links followed, the file lies in the folder of the model, or in the folder that the model's own link leads
  to (CVE-2026-27489 and CVE-2026-34447: a link, or a linked parent folder, beside the model). The second folder is
  what caches of links need: `snapshots/1/model.onnx -> blobs/a`, `snapshots/1/model.onnx_data -> blobs/b`.
* The file is a regular one without a second hard link (CVE-2026-34446: a hard link is a name for a file elsewhere).
  Nobody can tell a hostile hard link from a harmless one, and onnx and onnx-ir refuse to read either kind.
* Offset and length are counts within the file, and the length is what element type and shape ask for.

softq never fetches anything (CVE-2026-28500 was a download without a question): a URL is the name of an absent file.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from softq.errors import InputError

LOCATION_KEY = "softq.location"
"""Key under which the meta of an `ir.ExternalTensor` keeps the location that the model file names."""

_KEYS = frozenset({"location", "offset", "length", "checksum", "basepath"})
_MOST_TIMES, _ALWAYS = 16, 1 << 26
"""How many times its size the tensors in a data file may have together: tied weights are one place twice."""

_COUNT = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class DataFile:
    """A data file that passed the rules.

    Attributes:
        folder: The allowed folder that holds it: absolute, free of links.
        name: Its path inside `folder`, free of links, with `/` between the parts.
        size: Its size in bytes.
    """

    folder: str
    name: str
    size: int

    @property
    def path(self) -> str:
        """The file's absolute path, free of links."""
        return os.path.join(self.folder, self.name)


def model_folders(path: str) -> tuple[str, ...]:
    """Return the folders whose files the model at `path` may use: its own, and the one that its own link leads to."""
    given = os.path.realpath(os.path.dirname(path) or ".")
    return tuple(dict.fromkeys((given, os.path.dirname(os.path.realpath(path)))))


def find_data_file(location: str, folders: Sequence[str], tensor: str) -> DataFile:
    """Return the file that `location` names in the first of `folders` that has it.

    Raises:
        InputError: the location breaks a rule of this module, or no such file can be used; `tensor` is named.
    """
    what = f"external data of tensor {tensor!r}: location {location!r}"
    _check_location(location, what)
    candidates = [os.path.join(folder, location) for folder in folders]
    candidate = next((c for c in candidates if os.path.lexists(c)), None)
    if candidate is None:
        raise InputError(f"{what}: no such file in {folders[0]}")
    real = os.path.realpath(candidate)
    folder = next((folder for folder in folders if _is_inside(real, folder)), None)
    if folder is None:
        raise InputError(f"{what} leads outside the model's folder, to {real}; data must lie in {folders[0]} or below")
    try:
        status = os.stat(real)
    except OSError as error:
        raise InputError(f"{what} cannot be used: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{what} is not a regular file")
    if status.st_nlink > 1:
        raise InputError(f"{what} has {status.st_nlink} hard links, so it may be another file's second name; copy it")
    if not os.access(real, os.R_OK):
        raise InputError(f"{what} cannot be read: permission denied")
    return DataFile(folder, os.path.relpath(real, folder).replace(os.sep, "/"), status.st_size)


def _check_location(location: str, what: str) -> None:
    if not location or "\0" in location:
        raise InputError(f"{what} is not a file name")
    # A backslash is part of a name on one system and a separator on another: the stricter reading decides.
    windows = PureWindowsPath(location)
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        raise InputError(f"{what} is absolute; it must be relative to the model's folder")
    depth = 0
    for part in windows.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise InputError(f"{what} leads outside the model's folder; data must lie in it or below")
    if depth == 0:
        raise InputError(f"{what} is a folder, not a file")


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder and path != folder


def tensor_bytes(dtype: int, dims: Sequence[int], tensor: str) -> int:
    """Return the bytes that a tensor's raw data has by its element type and shape.

    Raises:
        InputError: the element type is unknown or has no fixed size, or a dimension is negative.
    """
    try:
        element = ir.DataType(dtype)
        bits = element.bitwidth
    except (ValueError, TypeError) as error:
        raise InputError(f"tensor {tensor!r} has element type {dtype}, whose size is not known") from error
    if any(dim < 0 for dim in dims):
        raise InputError(f"tensor {tensor!r} has shape {list(dims)}; a dimension cannot be negative")
    return -(-math.prod(dims) * bits // 8)


def check_extent(offset: int, length: int | None, expected: int, file: DataFile, tensor: str) -> None:
    """Check that a tensor's bytes lie within its file and are as many as `expected`.

    Raises:
        InputError: they do not or are not.
    """
    what = f"external data of tensor {tensor!r} in {file.name!r}"
    if length is not None and length != expected:
        raise InputError(f"{what}: length is {length}; its element type and shape ask for {expected}")
    if offset < 0 or offset + expected > file.size:
        raise InputError(f"{what}: bytes {offset} to {offset + expected} do not lie within the file of {file.size}")


def check_proto(proto: onnx.ModelProto, folders: Sequence[str]) -> dict[str, DataFile]:
    """Check every tensor of a model and return the file of each external location.

    Args:
        proto: The model.
        folders: The folders whose files it may use; none for a model that came without a folder.

    Raises:
        InputError: a tensor breaks a rule of this module, or its own data is not of its size.
    """
    files: dict[str, DataFile] = {}
    told: dict[str, int] = {}
    for tensor in walk(proto):
        if isinstance(tensor, onnx.AttributeProto) and not tensor.ref_attr_name:
            _check_attribute(tensor)
        if not isinstance(tensor, onnx.TensorProto):
            continue
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            _check_inline(tensor)
            continue
        if not folders:
            raise InputError(
                f"tensor {tensor.name!r} is external, and a proto does not say where; pass the model's path"
            )
        entries = _entries(tensor)
        location = entries.get("location", "")
        if location not in files:
            files[location] = find_data_file(location, folders, tensor.name)
        offset = _count(entries.get("offset", "0"), "offset", tensor.name)
        length = _count(entries["length"], "length", tensor.name) if "length" in entries else None
        expected = tensor_bytes(tensor.data_type, tensor.dims, tensor.name)
        check_extent(offset, length, expected, files[location], tensor.name)
        told[location] = told.get(location, 0) + expected
        if told[location] > _MOST_TIMES * files[location].size + _ALWAYS:
            raise InputError(
                f"external data in {files[location].name!r}: its tensors have more than {_MOST_TIMES} times its "
                f"{files[location].size} bytes, so that many must be the same ones"
            )
    return files


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise InputError(f"external data of tensor {tensor.name!r} has key {entry.key[:80]!r}; allowed are {known}")
        if entry.key in entries:
            raise InputError(f"external data of tensor {tensor.name!r} has key {entry.key!r} twice")
        entries[entry.key] = entry.value
    return entries


def _count(text: str, key: str, tensor: str) -> int:
    if not _COUNT.fullmatch(text):
        raise InputError(f"external data of tensor {tensor!r}: {key} is {text[:80]!r}; it must be a count of bytes")
    return int(text)


def _check_inline(tensor: onnx.TensorProto) -> None:
    if tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
        expected = tensor_bytes(tensor.data_type, tensor.dims, tensor.name)
        size = len(tensor.raw_data)
        if size != expected:
            raise InputError(f"tensor {tensor.name!r} has {size} bytes; its element type and shape ask for {expected}")
        return
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    if math.prod(tensor.dims) and not any(len(getattr(tensor, field)) for field in fields):
        # onnx-ir would make zeros of it, as many as the file says.
        raise InputError(f"tensor {tensor.name!r} has no values; its shape asks for {math.prod(tensor.dims)}")
    try:
        # Values in typed fields: which field a type uses, and how it packs them, onnx-ir knows.
        ir.from_proto(tensor).numpy().reshape(tuple(tensor.dims))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"tensor {tensor.name!r} has values that do not fit its type and shape: {reason}") from error


def walk(message: Message) -> Iterator[Message]:
    """Yield a message and all that are inside it; what is empty in a sparse tensor is not there."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in (value,) if isinstance(value, Message) else value:
                # The size last: to know it protobuf writes the message.
                if not isinstance(message, onnx.SparseTensorProto) or child.ByteSize():
                    yield from walk(child)


def _check_attribute(attribute: onnx.AttributeProto) -> None:
    kind = attribute.type
    absent = (kind == onnx.AttributeProto.TENSOR and not attribute.HasField("t")) or (
        kind == onnx.AttributeProto.GRAPH and not attribute.HasField("g")
    )
    if kind == onnx.AttributeProto.UNDEFINED or absent:
        raise InputError(
            f"the model is damaged: attribute {attribute.name!r} has {'no value' if absent else 'no type'}"
        )


def check_tensor(tensor: ir.ExternalTensor) -> DataFile:
    """Return the file of an external tensor that somebody else made.

    An empty base folder means the current one, as it does to whoever opens the file; it is no permission to skip rules.

    Raises:
        InputError: the tensor breaks a rule of this module.
    """
    base = os.path.realpath(os.fspath(tensor.base_dir) or ".")
    file = find_data_file(os.fspath(tensor.location), (base,), tensor.name)
    expected = tensor_bytes(tensor.dtype.value, [int(dim) for dim in tensor.shape.numpy()], tensor.name)
    check_extent(tensor.offset or 0, tensor.length, expected, file, tensor.name)
    return file


def place_in_file(tensor: ir.ExternalTensor, file: DataFile, location: str | None = None) -> ir.ExternalTensor:
    """Return the tensor as it lies in `file`: with an absolute base folder, and no link on the way.

    Args:
        tensor: The tensor; it is not changed.
        file: Its file.
        location: What the new tensor's location says instead of the file's name in its folder.
    """
    result = ir.ExternalTensor(
        location or file.name,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
        base_dir=file.folder,
    )
    result.meta.update(tensor.meta)
    result.meta.setdefault(LOCATION_KEY, os.fspath(tensor.location))
    return result
