"""From what a user asks for (methods, widths, options) to the settings of a sweep."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from softq.errors import UsageError
from softq.methods import FITTED_SCOPES, METHODS, Method, OptionValue
from softq.nearest import nearest
from softq.sweeps.records import Setting
from softq.sweeps.task import Task

ALL = "all"
"""The word for every method that serves a model trained with the exact softmax."""

Granularity = Literal["site", "head"]

_MOST_BITS = 32


def parse_bits(text: str) -> tuple[int, ...]:
    """Return the widths that `2-8`, `4` or `2,4,6-8` name, each once, rising.

    Raises:
        UsageError: it is none of these, or a range is empty.
    """
    widths: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part.strip())
        first, last = (0, 0) if ends is None else (int(ends.group(1)), int(ends.group(2) or ends.group(1)))
        if not 1 <= first <= last <= _MOST_BITS:
            raise UsageError(
                f"bits {text!r}: expected widths from 1 to {_MOST_BITS} such as 4, 2-8 or 2,4,6-8, the lower first"
            )
        widths.update(range(first, last + 1))
    return tuple(sorted(widths))


def parse_methods(text: str) -> tuple[str, ...]:
    """Return the names that `all` (methods that serve a model trained with the softmax) or `NAME,NAME` stands for.

    A name may be the file of a method of one's own.

    Raises:
        UsageError: a method is unknown, or named twice.
    """
    every = [name for name, method in METHODS.entries().items() if method.drop_in]
    names = every if text == ALL else [METHODS.open(name.strip()).name for name in text.split(",")]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"methods {text!r}: {name} is named twice")
    return tuple(names)


def hash_files(settings: Sequence[Setting], task: Task) -> dict[str, str]:
    """Return the SHA-256 of the file of each method that is of a file of the user's own, by the method's name.

    Raises:
        UsageError: there is one, and other processes are to measure.
    """
    files = {one.method: METHODS.file_of(one.method) for one in settings}
    if task.distributed and any(files.values()):
        raise UsageError("methods of files are measured in one process; workers know those of installed packages")
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path is not None}


def expand(
    methods: str, bits: str, options: Sequence[str], calibrated: bool, granularity: Granularity = "site"
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return every legal combination of method and width, and a note for each method of which some were left out.

    The widths of a method follow each other, the narrow ones first: they mostly share a session of the runtime.

    Args:
        methods: `all`, or names joined by commas.
        bits: Widths: see `parse_bits`.
        options: `METHOD.KEY=VALUE`, for all settings of the method.
        calibrated: Whether there are calibration data.
        granularity: `head` fits one number per head where a method would fit one per site; what `options` names stays.

    Raises:
        UsageError: an argument is wrong, or heads are to be fitted without calibration data, or no combination is
            legal, or the only one that was asked for is not.
    """
    if granularity == "head" and not calibrated:
        raise UsageError("granularity is head: a number per head is fitted on data; give --calibration DATA")
    names, widths = parse_methods(methods), parse_bits(bits)
    given = parse_options(options, names)
    lenient = methods == ALL or len(widths) > 1
    settings: list[Setting] = []
    notes: list[str] = []
    for name in names:
        method = METHODS.get(name)
        if not _has_width(method, given[name]):
            settings.append(_legal(method, given[name], calibrated, granularity))
            continue
        left: list[tuple[int, UsageError]] = []
        for width in widths:
            try:
                settings.append(_legal(method, {"bits": width} | given[name], calibrated, granularity))
            except UsageError as error:
                if not lenient:
                    raise
                left.append((width, error))
        if left:
            notes.append(f"left out: {name} with {_joined([width for width, _ in left])} bits: {left[0][1]}")
    if not settings:
        raise UsageError(f"no setting of {', '.join(names)} is legal with bits {bits}: {'; '.join(notes)}")
    chosen = ((METHODS.get(setting.method), setting.options) for setting in settings)
    doubts = (method.doubt(method.resolve(method.configure(given), calibrated)) for method, given in chosen)
    return tuple(settings), (*notes, *filter(None, dict.fromkeys(doubts)))


def _joined(widths: Sequence[int]) -> str:
    if len(widths) > 2 and widths[-1] - widths[0] == len(widths) - 1:
        return f"{widths[0]} to {widths[-1]}"
    *most, last = map(str, widths)
    return f"{', '.join(most)} and {last}" if most else last


def _has_width(method: Method, given: Mapping[str, OptionValue]) -> bool:
    return "bits" in method.options.specs() and "bits" not in given


def _legal(method: Method, options: Mapping[str, OptionValue], calibrated: bool, granularity: Granularity) -> Setting:
    resolved = method.resolve(method.configure(options), calibrated)
    # Options are fitted together: where the user names a scope, those that are not named go with it. And one may take
    # others with it, so each is looked at after the one before.
    if granularity == "head" and not any(value in FITTED_SCOPES for value in options.values()):
        for name, spec in method.options.specs().items():
            if resolved.fitted.get(name) == "site" and "head" in spec.words:
                options = {**options, name: "head"}
                resolved = method.resolve(method.configure(options), calibrated)
    if resolved.fitted and not calibrated:
        name, scope = next(iter(resolved.fitted.items()))
        raise UsageError(
            f"{method.name}: {name}={scope} is fitted on data; give --calibration DATA, or a number for {name}"
        )
    if len(set(resolved.fitted.values())) > 1:
        each = ", ".join(f"{name}={scope}" for name, scope in resolved.fitted.items())
        raise UsageError(f"{method.name}: options are fitted together for a site or for a head, not {each}")
    return Setting(method.name, dict(options))


def parse_options(options: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, OptionValue]]:
    """Return the options of each named method that `METHOD.KEY=VALUE` give.

    Raises:
        UsageError: the form is another, the method is none of `names`, or it has no such option or value.
    """
    given: dict[str, dict[str, OptionValue]] = {name: {} for name in names}
    for text in options:
        form = re.fullmatch(r"([^.=]+)\.([^.=]+)=(.*)", text)
        if form is None:
            raise UsageError(f"--set {text!r}; expected METHOD.KEY=VALUE")
        name, key, value = form.groups()
        if name not in given:
            shown = ", ".join(names if len(names) <= 8 else nearest(name, names))
            raise UsageError(f"--set {text!r}: {name} is none of the methods here{': ' if shown else ''}{shown}")
        if key in given[name]:
            raise UsageError(f"--set {name}.{key} is given twice")
        METHODS.get(name).configure({key: value})
        given[name][key] = METHODS.get(name).options.specs()[key].parse(f"{name} {key}", value)
    return given
