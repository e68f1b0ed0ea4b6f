"""Data from functions and from iterables of dicts."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

import numpy as np

from softq.data._arrays import Array, Header, line
from softq.data._dataset import Dataset, Part
from softq.errors import InputError, UsageError
from softq.own_files import check_trusted, import_file
from softq.wording import kind_of

FUNCTION = re.compile(r"(?:[^\W\d][\w.]*|.+\.py):[^\W\d][\w.]*")


def load_function(text: str, noun: str) -> Callable[..., object]:
    """Return the function that `package.module:function` or `path/to/file.py:function` names.

    Modules in the working directory are found too; a file finds those beside it.

    Args:
        text: Module or file and function, joined by a colon.
        noun: What the function is, for messages.

    Raises:
        UsageError: there is no such module or function, or the module cannot be imported.
    """
    found = load_object(text, noun)
    if not callable(found):
        name = text.rpartition(":")[2]
        raise UsageError(f"{noun} {text!r}: there is no function {name!r}; it is {kind_of(found)}")
    return found


def load_object(text: str, noun: str) -> object:
    """Return what `package.module:name` or `path/to/file.py:name` names; arguments and errors as `load_function`."""
    if not FUNCTION.fullmatch(text):
        raise UsageError(f"{noun} {text!r} is not of the form package.module:function or file.py:function")
    check_trusted(text)
    module_name, _, path = text.rpartition(":")
    is_file = module_name.endswith(".py")
    if is_file and not os.path.isfile(module_name):
        raise UsageError(f"{noun} {text!r}: no such file: {module_name}")
    # Stays on the path, as with other tools that take module:function: the function may import its neighbours later.
    folder = os.path.dirname(os.path.abspath(module_name)) if is_file else os.getcwd()
    if folder not in sys.path and (is_file or "" not in sys.path):
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        found: object = import_file(module_name) if is_file else importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{noun} {text!r}: cannot import {module_name}: {line(error)}") from error
    for step in path.split("."):
        found = getattr(found, step, None)
    if found is None:
        what = "file" if is_file else "module"
        raise UsageError(f"{noun} {text!r}: {what} {module_name} has no function {path!r}")
    return found


def repeat_call(name: str) -> Callable[[], Iterator[object]]:
    """Return what calls a data function, each time anew."""
    function = load_function(name, "data function")

    def again() -> Iterator[object]:
        try:
            items = function()
        except (Exception, SystemExit) as error:
            raise InputError(f"{name}: raised {type(error).__name__}: {line(error)}") from error
        if not isinstance(items, Iterable) or isinstance(items, (str, Mapping)):
            raise InputError(f"{name}: returned {kind_of(items)}; expected an iterable of dicts of arrays")
        return _guarded(name, cast("Iterable[object]", items))

    return again


def _guarded(name: str, items: Iterable[object]) -> Iterator[object]:
    try:
        yield from items
    except (Exception, SystemExit) as error:
        raise InputError(f"{name}: raised {type(error).__name__}: {line(error)}") from error


def repeat_items(items: Iterable[Mapping[str, Array]]) -> Callable[[], Iterator[object]]:
    """Return what goes over the items, once more each time if they can be read again."""
    if isinstance(items, Mapping):
        raise InputError("<dict>: data is an iterable of dicts; put the one dict into a list")
    used = False

    def again() -> Iterator[object]:
        nonlocal used
        iterator = iter(items)
        if used and iterator is items:
            raise InputError(f"<{type(items).__name__}>: can be read only once; pass a list, or a function")
        used = True
        return iterator

    return again


def open_items(
    name: str, again: Callable[[], Iterator[object]], begin: Callable[[str, Mapping[str, Header]], Dataset]
) -> Dataset:
    """Return the data that an iterable of dicts holds; `begin` takes the headers of its first item now."""
    # The labels must be known before the first batch, so the first item is taken now and kept for the first pass.
    pending: Iterator[object] | None = again()
    try:
        first = next(pending)
    except StopIteration:
        raise InputError(f"{name}: yields no data") from None
    pending = itertools.chain([first], pending)
    where = f"{name}: item 0"
    data = begin(where, headers_of(where, first))

    def parts() -> Iterator[Part]:
        nonlocal pending
        items, pending = pending, None
        for index, item in enumerate(again() if items is None else items):
            where = f"{name}: item {index}"
            yield Part(where, lambda where=where, item=item: data.read(where, _arrays(where, item)))

    return data.of_parts(parts, None)


def headers_of(where: str, item: object) -> dict[str, Header]:
    """Return type and shape of each array of an item."""
    return {name: Header(array.dtype, array.shape) for name, array in _arrays(where, item).items()}


def _arrays(where: str, item: object) -> dict[str, Array]:
    if not isinstance(item, Mapping):
        raise InputError(f"{where} is {kind_of(item)}; expected a dict of arrays")
    arrays: dict[str, Array] = {}
    for name, array in cast("Mapping[object, object]", item).items():
        if not isinstance(name, str) or not isinstance(array, (np.ndarray, np.generic)):
            raise InputError(f"{where}: {name!r} is {kind_of(array)}; expected a numpy array under a name")
        arrays[name] = np.asarray(array)
    return arrays
