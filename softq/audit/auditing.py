"""An audit: its steps, one after another, each kept when it is done."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from softq._version import __version__
from softq.audit.cases import write_case
from softq.audit.checks import Setting, checks_in_order
from softq.audit.checks.values import CHECK as _VALUES
from softq.audit.checks.values import slack_after
from softq.audit.faults import Result
from softq.audit.identification import identify
from softq.audit.process import FailureError, RuntimeProcess
from softq.audit.records import IDENTIFICATION, IDENTIFIED, TABLE, Audit, Step, step_of
from softq.audit.rows import long_rows, pairs
from softq.audit.runtimes import RUNTIMES, Runtime
from softq.audit.subject import TOLERANCES, Subject, encodings
from softq.audit.table import extract, to_method
from softq.audit.task import FLOATS, INTEGERS, Array, Encoding, check_dtype
from softq.audit.writing import write_reports
from softq.errors import InputError, UsageError
from softq.files import lock, make_folder, open_descriptor, parse_json, read_json, write_text
from softq.progress import Progress

CONDITIONS, STEPS, METHOD_FILE = "conditions.json", "steps.jsonl", "table_method.py"
_NamedStep: TypeAlias = tuple[str, str, Callable[[], Result]]
"""A step's name, its title, and what does it."""

_AGAIN = "--force starts anew, another --out keeps both"


@dataclass(frozen=True)
class _Work:
    """What the steps need."""

    subject: Subject
    runtime: Runtime
    options: Mapping[str, str]
    setting: Setting
    folder: Path
    about: str
    known: dict[str, Any]
    """Rows and the runtime's results for them, for the last two steps, once they are asked for."""


def audit(
    runtime: str,
    out: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    dtype: str = "float32",
    scores: Encoding | None = None,
    result: Encoding | None = None,
    length: int = 197,
    longest: int = 65_536,
    axis: int = -1,
    tolerance: float | None = None,
    budget: float | None = None,
    timeout: float = 60.0,
    python: str | None = None,
    seed: int = 0,
    only: Sequence[str] = (),
    force: bool = False,
    progress: Progress = lambda step, done, total: None,
) -> Audit:
    """Find out which softmax a runtime computes, and what is wrong with it.

    What is found is written into a folder: `audit.json`, `audit.md` and, with `softq[report]`, `audit.html`; for each
    fault a folder with the smallest scores that show it; and, where weights are a table of the distance,
    `table_method.py`. Each step is kept when it is done: the same call goes on where an earlier one ended.

    Args:
        runtime: Name of a runtime of `softq.audit.runtimes`.
        out: The folder.
        options: The runtime's.
        dtype: NumPy's name of the scores' type.
        scores: What integer scores stand for; by default 0.05 a unit, and zero point 0.
        result: What integer results stand for; by default as the runtime has it.
        length: Elements of the rows that are looked at most.
        longest: Elements of the longest row that is tried.
        axis: Along which rows are given, counted from the end: -1 is the last one.
        tolerance: Units by which a result may be wrong before that is a fault; by default that of the type.
        budget: Seconds after which no further step is begun.
        timeout: Seconds after which a call counts as hung.
        python: The interpreter of another environment that has the runtime, with NumPy beside it.
        seed: Of the random rows.
        only: Names of the steps to do; all if none is named.
        force: Start anew whatever the folder holds.
        progress: Is called with the title of each step.

    Raises:
        UsageError: an argument is wrong, or the folder holds an audit of something else.
        InputError: the runtime cannot be used, or the folder not be written.
    """
    chosen, options = RUNTIMES.get(runtime), dict(options or {})
    _check(chosen, options, dtype, length, longest, axis)
    scores, result = encodings(dtype, scores, result, chosen.results.get(dtype))
    tolerance = TOLERANCES[dtype] if tolerance is None else tolerance
    folder = Path(out)
    with RuntimeProcess(chosen, options, python, timeout) as process, _open_steps(make_folder(out)) as stream:
        conditions: dict[str, Any] = {
            "runtime": chosen.name,
            "options": options,
            "versions": dict(process.read_version()),
            "dtype": dtype,
            "scores": None if scores is None else asdict(scores),
            "result": None if result is None else asdict(result),
            "axis": axis,
            "length": length,
            "longest": longest,
            "tolerance": tolerance,
            "seed": seed,
            "softq": __version__,
        }
        done = resume(folder, conditions, force, stream)
        subject = Subject(process, dtype, scores, result, tolerance, chosen.any_axis, axis)
        about = f"{_name(chosen, conditions)}, softmax of {dtype}"
        work = _Work(subject, chosen, options, Setting(length, longest, seed), folder, about, {})
        _try(subject, about)
        end = float("inf") if budget is None else time.monotonic() + budget
        missing: list[str] = []
        steps = _chosen(_steps(work, done), only)
        for number, (name, title, run) in enumerate(steps):
            progress(title, number, len(steps))
            if _VALUES.name in done:
                subject.slack = slack_after(subject, done[_VALUES.name].facts)
            if name in done:
                continue
            if time.monotonic() > end:
                missing.append(name)
                continue
            begun = time.monotonic()
            found = run()
            records = tuple(
                write_case(folder, f"{name}-{index}", fault, subject, chosen, options, about)
                for index, fault in enumerate(found.faults, 1)
            )
            done[name] = Step(name, title, round(time.monotonic() - begun, 3), found.facts, records)
            os.write(stream, (json.dumps(asdict(done[name]), allow_nan=False) + "\n").encode())
    made = Audit(conditions, tuple(done[name] for name, _, _ in steps if name in done), tuple(missing))
    write_reports(made, folder)
    return made


def _try(subject: Subject, about: str) -> None:
    """Refuse a runtime that takes no row of four zeros.

    Raises:
        InputError: it refuses it, in these words.
    """
    try:
        subject.compute(np.zeros((1, 4)))
    except FailureError as error:
        if error.kind == "refused":
            raise InputError(f"{about}: {error}") from error


def _name(runtime: Runtime, conditions: Mapping[str, Any]) -> str:
    version = next(iter(conditions["versions"].items()), ("", ""))
    chosen = "".join(f", {key}={value}" for key, value in conditions["options"].items())
    return f"{version[0]} {version[1]}{chosen}" if runtime.name in version[0] else f"{runtime.name}{chosen}"


def _check(runtime: Runtime, options: Mapping[str, str], dtype: str, length: int, longest: int, axis: int) -> None:
    for key in options:
        if key not in runtime.options:
            known = ", ".join(runtime.options) or "none"
            raise UsageError(f"runtime {runtime.name} has no option {key!r}; its options are: {known}")
    if dtype not in (*FLOATS, *INTEGERS):
        raise UsageError(f"dtype is {dtype!r}; allowed is {', '.join((*FLOATS, *INTEGERS))}")
    check_dtype(dtype, runtime.dtypes, runtime.name)
    for name, value in (("length", length), ("longest", longest)):
        if not 1 <= value <= 2**22:
            raise UsageError(f"{name} is {value}; allowed is 1 to {2**22}")
    if not -5 <= axis <= -1:
        raise UsageError(f"axis is {axis}; allowed is -5 to -1, counted from the last one")


@contextlib.contextmanager
def _open_steps(folder: Path) -> Generator[int]:
    """Give the file of steps, open for reading and appending, to one process at a time."""
    try:
        stream = open_descriptor(folder / STEPS, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise InputError(f"cannot write '{folder / STEPS}': {error.strerror or error}") from error
    try:
        if not lock(stream):
            raise UsageError(f"{folder}: another audit writes into this folder")
        yield stream
    finally:
        os.close(stream)


def resume(folder: Path, conditions: Mapping[str, Any], force: bool, stream: int) -> dict[str, Step]:
    """Return the steps that are done, and leave the folder ready for more.

    Raises:
        UsageError: the folder holds an audit of something else.
    """
    there = folder / CONDITIONS
    done: dict[str, Step] = {}
    try:
        if there.exists() and not force:
            before = read_json(there, follow=False)
            for key, value in conditions.items():
                if before.get(key) != value:
                    raise UsageError(
                        f"{folder} holds an audit with {key} {before.get(key)!r}; now it is {value!r}; {_AGAIN}"
                    )
            text = os.pread(stream, os.fstat(stream).st_size, 0)
            # A line that a kill cut short has no end.
            whole = text[: text.rfind(b"\n") + 1]
            os.ftruncate(stream, len(whole))
            done = {step.name: step for step in (step_of(parse_json(line)) for line in whole.splitlines())}
        else:
            os.ftruncate(stream, 0)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds no audit that can be read ({error}); {_AGAIN}") from error
    write_text(there, json.dumps(conditions, indent=2, allow_nan=False) + "\n")
    return done


def _chosen(steps: Sequence[_NamedStep], only: Sequence[str]) -> Sequence[_NamedStep]:
    known = [name for name, _, _ in steps]
    for name in only:
        if name not in known:
            raise UsageError(f"unknown step {name!r}; there are: {', '.join(known)}")
    return [step for step in steps if not only or step[0] in only]


def _steps(work: _Work, done: Mapping[str, Step]) -> Sequence[_NamedStep]:
    checks = [
        (check.name, check.title, lambda run=check.run: run(work.subject, work.setting)) for check in checks_in_order()
    ]
    return [
        *checks,
        (IDENTIFICATION, IDENTIFIED, lambda: _identify(work)),
        (TABLE, "Its table", lambda: _extract(work, done)),
    ]


def _answered(work: _Work) -> list[tuple[Array, Array]]:
    if "answered" not in work.known:
        rows = [pairs(work.subject), long_rows(work.subject, work.setting.length, work.setting.random())[1]]
        work.known["answered"] = [(x, work.subject.compute(x)) for x in rows]
    return work.known["answered"]


def _identify(work: _Work) -> Result:
    try:
        found = identify(work.subject, _answered(work), work.setting.random())
    except FailureError as error:
        return Result({"skipped": f"ordinary rows have no result: {error}"})
    return Result({"candidates": [{**asdict(one), "is_equal": one.is_equal} for one in found]})


def _extract(work: _Work, done: Mapping[str, Step]) -> Result:
    subject = work.subject
    if subject.scores is None or subject.scores.high - subject.scores.low > 255:
        return Result({"skipped": "only scores of 8 bits have a table"})
    known = done[IDENTIFICATION].facts.get("candidates", []) if IDENTIFICATION in done else []
    if any(one["is_equal"] for one in known):
        return Result({"skipped": "a method is equal to the bit"})
    longest = 1
    if "lengths" in done:
        longest = max([1, *(t["length"] for t in done["lengths"].facts["tried"] if t["outcome"] == "as exact")])
    try:
        found = extract(subject, _answered(work), max(longest, min(work.setting.length, 64)))
    except FailureError as error:
        return Result({"skipped": f"rows have no result: {error}"})
    if isinstance(found, str):
        return Result({"skipped": found})
    name = METHOD_FILE.removesuffix(".py").replace("_", "-")
    write_text(work.folder / METHOD_FILE, to_method(found, name, subject.scores.scale, work.about))
    widest = float(np.max(np.array(found.high) - np.array(found.low)))
    return Result(
        {
            "weights": [round(weight, 9) for weight in found.weights],
            "widest_interval": widest,
            "rounding": found.rounding,
            "equal": found.equal,
            "greatest": found.greatest,
            "method_file": METHOD_FILE,
        }
    )
