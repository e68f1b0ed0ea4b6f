"""The folder of a fault: the smallest scores that show it, the file, and a program that runs them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from softq.audit.faults import Fault
from softq.audit.records import FaultRecord
from softq.audit.runtimes import Runtime
from softq.audit.subject import Subject
from softq.audit.task import Array
from softq.errors import InputError
from softq.files import write_files

_PROGRAM = Path(__file__).parent / "assets" / "reproduce.txt"


def write_case(
    folder: Path, name: str, fault: Fault, subject: Subject, runtime: Runtime, options: Mapping[str, str], about: str
) -> FaultRecord:
    """Write what shows a fault, and return its record.

    `data.npz` has `scores`, `exact` and, if there was a result, `found`; the file is the runtime's own, `reproduce.py`
    needs NumPy and the runtime, and `README.md` says what is wrong.

    Raises:
        InputError: the folder cannot be written.
    """
    case = fault.case
    axis, threads = case.task.axis, case.task.threads
    task, scores = subject.ask(case.scores, axis, threads)
    arrays: dict[str, Array] = {"scores": scores}
    for key, values in (("exact", case.expected), ("found", case.found)):
        if values is not None:
            arrays[key] = subject.arrange(values, axis)
    contents: dict[str, bytes] = {"data.npz": _npz(arrays)}
    if runtime.file:
        contents[runtime.file] = runtime.make(task, options)
    script = runtime.script(task, options)
    if script:
        contents["reproduce.py"] = _program(fault, about, script).encode()
    contents["README.md"] = _readme(fault, about, arrays, sorted([*contents, "README.md"])).encode()
    home = folder / "faults" / name
    try:
        for place in (home.parent, home):
            if place.is_symlink():
                raise InputError(f"cannot write '{place}': it is a symbolic link, which is not followed here")
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write '{home}': {error.strerror or error}") from error
    write_files({home / file: content for file, content in contents.items()})
    return FaultRecord(fault.kind, fault.text, fault.count, tuple(scores.shape), f"faults/{name}")


def _npz(arrays: Mapping[str, Array]) -> bytes:
    held = io.BytesIO()
    np.savez(held, allow_pickle=False, **arrays)
    return held.getvalue()


def _program(fault: Fault, about: str, script: str) -> str:
    imports, _, calls = script.partition("\n\n")
    return _PROGRAM.read_text(encoding="utf-8").format(about=about, text=fault.text, imports=imports, calls=calls)


def _readme(fault: Fault, about: str, arrays: Mapping[str, Array], files: list[str]) -> str:
    shown = "\n".join(f"{name:6} {np.array2string(values, threshold=24)}" for name, values in arrays.items())
    return f"# {about}\n\n{fault.text}.\n\n```\n{shown}\n```\n\nFiles: {', '.join(files)}.\n"
