"""From what a user gives for a model to a module, and from the headers of its data to a call that traces it."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from softq.data import LABEL, SHARED, Header, load_function
from softq.errors import InputError, UsageError, root_line
from softq.wording import kind_of

MOST_TEXT = 300
"""Characters of a message of torch, which can be pages."""

Shapes = dict[str, dict[int, Any]]
"""Which axes of an argument may change, as torch.export takes it."""


def load_module(model: object) -> tuple[str, nn.Module]:
    """Return a module with what messages call it.

    Raises:
        UsageError: it is neither a module nor the name of something that can be called.
        InputError: the function fails, or returns something else.
    """
    if isinstance(model, nn.Module):
        return f"<{type(model).__name__}>", model
    if not isinstance(model, str):
        raise UsageError(f"a model of torch is a Module, or names a function that returns one; not {kind_of(model)}")
    function = load_function(model, "model")
    if isinstance(function, nn.Module):
        return model, function
    try:
        found = function()
    except (Exception, SystemExit) as error:
        raise InputError(f"{model}: raised {type(error).__name__}: {root_line(error, MOST_TEXT)}") from error
    if not isinstance(found, nn.Module):
        raise InputError(f"{model}: returned {kind_of(found)}; expected a torch.nn.Module")
    return model, found


def match_inputs(name: str, module: nn.Module, source: str, headers: Mapping[str, Header]) -> dict[str, Header]:
    """Return the arrays, by their names, that data hold for the parameters of `forward`, in their order.

    Args:
        name: What messages call the module.
        module: The module.
        source: What they call the data.
        headers: The data's arrays.

    Raises:
        InputError: an array is missing, or is no parameter.
    """
    arrays = {key.removeprefix(SHARED): key for key in headers if not key.startswith(LABEL)}
    parameters = {
        key: one
        for key, one in inspect.signature(module.forward).parameters.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    takes = f"forward of {name} takes {', '.join(parameters) or 'nothing by name'}; labels are '{LABEL}NAME'"
    for key in headers:
        if not key.startswith(LABEL) and key.removeprefix(SHARED) not in parameters:
            raise InputError(f"{source}: array {key!r} is no parameter: {takes}")
        if key in parameters and SHARED + key in headers:
            raise InputError(f"{source}: arrays {key!r} and {SHARED + key!r} are of one parameter; give one of them")
    for key, one in parameters.items():
        if one.default is one.empty and key not in arrays:
            raise InputError(f"{source}: no array {key!r}: {takes}")
    return {arrays[key]: headers[arrays[key]] for key in parameters if key in arrays}


def make_example(
    parts: Sequence[Mapping[str, Header]], samples: int, place: torch.device
) -> tuple[dict[str, Tensor], Shapes]:
    """Return tensors to trace with, of the longest lengths, and which axes may change.

    Args:
        parts: For each file of the data its inputs, by the names of their arrays.
        samples: The length of the sample axes.
        place: Where the tensors are to be.

    Raises:
        InputError: torch has not the type of an array.
    """
    call: dict[str, Tensor] = {}
    shapes: Shapes = {}
    for key, first in parts[0].items():
        name, own = key.removeprefix(SHARED), int(not key.startswith(SHARED) and first.shape != ())  # own sample axis
        lengths = [part[key].shape for part in parts if key in part and len(part[key].shape) == len(first.shape)]
        longest = [max(axis) for axis in zip(*lengths, strict=True)]
        try:
            empty = torch.from_numpy(np.zeros(0, first.dtype))
        except TypeError as error:
            raise InputError(f"array {name!r} is {first.dtype}, which torch has not") from error
        call[name] = torch.zeros((samples,) * own + tuple(longest[own:]), dtype=empty.dtype, device=place)
        axes = [axis for axis in range(len(longest)) if axis < own or len({shape[axis] for shape in lengths}) > 1]
        shapes[name] = dict.fromkeys(axes, torch.export.Dim.AUTO)
    return call, shapes


@contextmanager
def silent() -> Generator[None]:
    """Keep torch from printing while it traces: what goes wrong is raised, and said once."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
