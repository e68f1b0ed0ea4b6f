"""Results that were recorded on a device, beside the exact softmax and every method."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from softq._version import __version__
from softq.audit.checks.values import CHECK as VALUES
from softq.audit.checks.values import describe
from softq.audit.identification import identify
from softq.audit.records import IDENTIFICATION, IDENTIFIED, Audit, FaultRecord, Step
from softq.audit.subject import TOLERANCES, Subject, encodings
from softq.audit.task import FLOATS, INTEGERS, UNIT_RESULTS, Array, Encoding
from softq.audit.writing import write_reports
from softq.data import read_npz
from softq.errors import InputError
from softq.files import make_folder
from softq.wording import counted, in_units

_SCORES, _RESULT = "scores", "result"


def audit_recorded(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scores: Encoding | None = None,
    result: Encoding | None = None,
    tolerance: float | None = None,
) -> Audit:
    """Compare recorded results with the exact softmax and with every method; write the reports into a folder.

    Args:
        file: A .npz file with arrays [R, N] `scores` and `result`, or several pairs `scores.NAME` and `result.NAME`.
        out: The folder.
        scores: What integer scores stand for; by default 0.05 a unit, and zero point 0.
        result: What integer results stand for; by default their range is 0 to 1.
        tolerance: Units by which a result may be wrong; by default that of the type.

    Raises:
        UsageError: an argument is wrong.
        InputError: the file holds no such arrays, or the folder cannot be written.
    """
    answered = _read(file)
    dtype, kind = answered[0][0].dtype.name, answered[0][1].dtype.name
    scores, result = encodings(dtype, scores, result, UNIT_RESULTS.get(kind))
    tolerance = TOLERANCES[dtype] if tolerance is None else tolerance
    subject = Subject(None, dtype, scores, result, tolerance, any_axis=False)
    wanted = subject.task((1,)).result_dtype
    if any(x.dtype.name != dtype or found.dtype.name != wanted for x, found in answered):
        raise InputError(f"{file}: expected scores of {dtype} and results of {wanted} in all arrays")
    length = max(x.shape[1] for x, _ in answered)
    conditions = {
        "runtime": "recorded",
        "options": {"file": Path(file).name},
        "versions": {},
        "dtype": dtype,
        "scores": None if scores is None else asdict(scores),
        "result": None if result is None else asdict(result),
        "axis": -1,
        "length": length,
        "longest": length,
        "tolerance": tolerance,
        "seed": 0,
        "softq": __version__,
    }
    folder = make_folder(out)
    facts = {f"rows of {x.shape[1]}": describe(subject, x, found) for x, found in answered}
    found = [{**asdict(one), "is_equal": one.is_equal} for one in identify(subject, answered, None)]
    wrong = sum(part["beyond_tolerance"] for part in facts.values())
    text = f"{counted(wrong, 'row is', 'rows are')} wrong by more than {in_units(tolerance)}"
    fault = FaultRecord("value", text, wrong, (), "audit.json")
    steps = (
        Step(VALUES.name, VALUES.title, 0.0, facts, (fault,) * bool(wrong)),
        Step(IDENTIFICATION, IDENTIFIED, 0.0, {"candidates": found}, ()),
    )
    made = Audit(conditions, steps, ())
    write_reports(made, folder)
    return made


def _read(file: str | os.PathLike[str]) -> list[tuple[Array, Array]]:
    """Return the pairs of scores and results of a file.

    Raises:
        InputError: it holds none.
    """
    held = read_npz(Path(file))
    pairs: list[tuple[Array, Array]] = []
    for name, x in held.items():
        if not name.startswith(_SCORES):
            continue
        found = held.get(_RESULT + name.removeprefix(_SCORES))
        if found is None or x.ndim != 2 or found.shape != x.shape or x.size == 0:
            raise InputError(f"{file}: {name} needs an array {_RESULT}{name.removeprefix(_SCORES)} of its shape [R, N]")
        if x.dtype.name not in (*FLOATS, *INTEGERS):
            raise InputError(f"{file}: {name} is {x.dtype.name}; allowed is {', '.join((*FLOATS, *INTEGERS))}")
        pairs.append((x, found))
    if not pairs:
        raise InputError(f"{file} holds no array {_SCORES}")
    return pairs
