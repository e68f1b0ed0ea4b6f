"""What a runtime declares: the class that every file of this folder makes one of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from softq.audit.task import Array, Encoding, Task

Softmax = Callable[[Array], Array]
"""Scores of a task's shape and type to the result."""

Options = Mapping[str, str]


def _no_file(task: Task, options: Options) -> bytes:
    return b""


@dataclass(frozen=True)
class Runtime:
    """Something that computes a softmax.

    `make` runs in softq's own process, `load` and `version` in another one, which the runtime may end or keep waiting,
    and which may be of an environment that has NumPy and the runtime alone: what they import is imported inside of
    them, and the module that has them has the runtime as RUNTIME.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        dtypes: NumPy's names of the types of scores that it takes.
        load: Returns the softmax of a task from the file that `make` made and the options. What it raises, in words, is
            why the runtime does not take the task; so is what the softmax raises.
        version: Returns the names and versions of what computes.
        make: Returns the file that holds the softmax, empty where none does.
        file: Name of that file, empty where there is none.
        results: How integer results are encoded, by the type of scores.
        options: What else can be chosen: names, and what they are.
        script: Lines of a program that computes `found` from `scores` and the file, for the report of a fault; empty
            where there is none.
        any_axis: Whether it takes another axis than the last.
    """

    name: str
    summary: str
    dtypes: tuple[str, ...]
    load: Callable[[bytes, Task, Options], Softmax]
    version: Callable[[], Mapping[str, str]]
    make: Callable[[Task, Options], bytes] = _no_file
    file: str = ""
    results: Mapping[str, Encoding] = field(default_factory=dict[str, Encoding])
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    script: Callable[[Task, Options], str] = lambda task, options: ""
    any_axis: bool = True
