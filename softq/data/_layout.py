"""The layout of data: arrays of samples, arrays that all samples share, and the checks against a model.

A part of the data is one file or one dict. The array of an input is called NAME, and its first axis counts samples; or
it is called `shared.NAME`, and each run of the part gets the whole of it. A scalar has no axis that could count, so it
is shared under both names. A part whose inputs are all shared is one sample.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from softq.data._arrays import LABEL, SHARED, Header, TensorSpec, dtype_name
from softq.errors import InputError
from softq.wording import counted


@dataclass(frozen=True)
class Layout:
    """The samples of a part.

    Attributes:
        names: The name of each input's array.
        shared: The inputs whose arrays are the same for all samples.
        samples: Number of samples.
        sizes: The number of each symbolic dimension, without the sample axis.
        fixed_batch: Samples of a run, if the model or a shared array prescribes them.
    """

    names: Mapping[str, str]
    shared: frozenset[str]
    samples: int
    sizes: Mapping[str, int]
    fixed_batch: int | None


def read_layout(
    where: str, headers: Mapping[str, Header], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Layout:
    """Return the layout of the arrays of `where`; outputs are for `without_samples`.

    Raises:
        InputError: an array does not fit; the message names the first.
    """
    names = _match_arrays(where, headers, inputs)
    shared = frozenset(s.name for s in inputs if names[s.name] != s.name or not (s.shape or headers[s.name].shape))
    whole = {names[name] for name in shared}
    for name, header in headers.items():
        if header.dtype.hasobject:
            raise InputError(f"{where}: array {name!r} holds Python objects; expected numbers")
        if name not in whole and not header.shape:
            raise InputError(f"{where}: array {name!r} is a scalar; its first axis must be the samples")
        if name not in whole and math.prod(header.shape) == 0:
            raise InputError(f"{where}: array {name!r} is empty: {header}; at least one sample is needed")
    sizes: dict[str, tuple[int, str]] = {}
    for spec in inputs:
        _bind(where, names[spec.name], headers[names[spec.name]], spec, spec.name in shared, sizes)
    for spec in without_samples(inputs, outputs, shared):
        raise InputError(
            f"{where}: array {spec.name!r}: the first axis of {spec} does not count samples; name it"
            f" {SHARED + spec.name!r}, one array for all samples"
        )
    alone = bool(inputs) and len(shared) == len(inputs)
    counts = {repr(name): header.shape[0] for name, header in headers.items() if name not in whole}
    samples = _count_samples(where, {"a model without a sample axis": 1} | counts if alone else counts)
    firsts = {spec.name: spec.shape[0] for spec in inputs if spec.shape and spec.name not in shared}
    lengths = {dim: size for dim, (size, owner) in sizes.items() if owner in whole}
    fixed = 1 if alone else _find_fixed_batch(where, {name: lengths.get(str(dim), dim) for name, dim in firsts.items()})
    check_multiple(where, samples, fixed)
    return Layout(names, shared, samples, {dim: size for dim, (size, _) in sizes.items()}, fixed)


def without_samples(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], shared: Collection[str] = ()
) -> list[TensorSpec]:
    """Return the inputs whose first axis, as the lengths and names of axes show, does not count samples.

    The sample axis is the most frequent first axis of inputs and outputs. An input begins with another axis if

    * the name of the sample axis is that of one of its further axes,
    * both are numbers and differ,
    * the name of its first axis is that of a further axis of an input, or
    * the sample axis appears twice or more, and no output begins as the input does.

    In the last case a 1 counts samples: each run is one. Inputs that are given as `shared` are left out.
    """
    own = [(spec, spec.shape[0], spec.shape[1:]) for spec in inputs if spec.shape and spec.name not in shared]
    ends = [spec.shape[0] for spec in outputs if spec.shape]
    inner = {dim for spec in inputs for dim in (spec.shape or ())[spec.name not in shared :] if isinstance(dim, str)}
    firsts = [first for _, first, _ in own if first is not None]
    if not firsts:
        return []
    votes = {first: firsts.count(first) + ends.count(first) for first in firsts}
    plain = {first for first in firsts if first == 1 or (isinstance(first, str) and first not in inner)}
    samples = max(votes, key=lambda first: (votes[first], first in plain, isinstance(first, str)))

    def begins_otherwise(first: int | str | None, rest: tuple[int | str | None, ...]) -> bool:
        numbers = isinstance(first, int) and isinstance(samples, int)
        apart = first != 1 and votes[samples] > 1 and first not in ends
        other = first not in (None, samples) and (numbers or first in inner or apart)
        return other or (isinstance(samples, str) and samples in rest)

    others = [spec for spec, first, rest in own if begins_otherwise(first, rest)]
    return others if len(others) < len(own) else []  # The same name for all axes tells nothing.


def check_multiple(where: str, samples: int, fixed: int | None) -> None:
    """Refuse samples that are not whole runs of `fixed`."""
    if fixed is not None and samples % fixed:
        runs = f"takes exactly {fixed} at a time, which leaves {samples % fixed}"
        raise InputError(f"{where}: has {counted(samples, 'sample')}; the model {runs}")


def _match_arrays(where: str, headers: Mapping[str, Header], inputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Return the name of each input's array; refuse arrays that no input has, and inputs that have none or two."""
    specs, names = {spec.name: spec for spec in inputs}, dict[str, str]()
    for name, spec in specs.items():
        keys = [key for key in (name, SHARED + name) if key in headers and (key == name or key not in specs)]
        if not keys:
            raise InputError(f"{where}: no array {name!r}; the model expects {spec}")
        if len(keys) > 1:
            raise InputError(f"{where}: arrays {name!r} and {SHARED + name!r} are of one input; give one of them")
        names[name] = keys[0]
    for name in headers:
        if name not in names.values() and (not name.startswith(LABEL) or name == LABEL):
            wanted = ", ".join(map(repr, specs)) or "none"
            raise InputError(
                f"{where}: unknown array {name!r}; the model takes {wanted}; labels are '{LABEL}NAME', inputs"
                f" that are the same for all samples '{SHARED}NAME'"
            )
    return names


def _bind(
    where: str, name: str, header: Header, spec: TensorSpec, shared: bool, sizes: dict[str, tuple[int, str]]
) -> None:
    """Refuse an array that does not fit; store the number of each symbolic dimension with the array's name."""
    if (kind := dtype_name(header.dtype)) != spec.dtype:
        raise InputError(
            f"{where}: array {name!r} is {kind}; the model expects {spec.dtype}, and nothing is cast"
            + (" unless asked for: softq data MODEL OUT.npz --cast FILE.npz" if where.endswith(".npz") else "")
        )
    wanted = (None,) * len(header.shape) if spec.shape is None else spec.shape
    # The sample axis is cut into runs, so a fixed number there is no demand on the file.
    axes = list(zip(wanted, header.shape, strict=False))[not shared :]
    if len(wanted) != len(header.shape) or any(isinstance(dim, int) and dim != size for dim, size in axes):
        whole = ", one array for all samples" if shared or not spec.shape else ""
        raise InputError(f"{where}: array {name!r} is {header}; the model expects {spec}{whole}")
    for dim, size in axes:
        if isinstance(dim, str) and sizes.setdefault(dim, (size, name))[0] != size:
            other = f"array {sizes[dim][1]!r} has {dim!r} = {sizes[dim][0]}"
            raise InputError(f"{where}: array {name!r} has {dim!r} = {size} in its shape {list(header.shape)}; {other}")


def _count_samples(where: str, counts: Mapping[str, int]) -> int:
    """Return the number of samples, on which all arrays have to agree."""
    leader, samples = next(iter(counts.items()), ("", 0))
    for name, count in counts.items():
        if count != samples:
            hint = f"an array for all samples is named '{SHARED}NAME'"
            raise InputError(f"{where}: array {name} has {counted(count, 'sample')}; {leader} has {samples}; {hint}")
    if not samples:
        raise InputError(f"{where}: contains no arrays")
    return samples


def _find_fixed_batch(where: str, firsts: Mapping[str, int | str | None]) -> int | None:
    """Return the samples of a run, which first axes with a number prescribe, or None; refuse two numbers."""
    fixed = {name: length for name, length in firsts.items() if isinstance(length, int)}
    if len(set(fixed.values())) > 1:
        lengths = ", ".join(f"{name!r} {length}" for name, length in fixed.items())
        raise InputError(f"{where}: the first axes of inputs fix different numbers of samples: {lengths}")
    return next(iter(fixed.values()), None)
