"""The commands of the soak, and what they give where nothing goes wrong."""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil

import softq
from softq.cli import main
from softq.sweeps.records import read
from tests.attention import attention, inputs

METHODS = ("exact", "deferred-log")
WRITTEN = ("out.onnx", "plan.json", "found.json", "found.measured.json", "artifact", "sweep")
HANGS = 240.0
"""Seconds after which a command hangs."""

_MEASURED = ("--data", "data.npz", "--metric", "cosine", "--methods", "uniform,log2", "--bits", "3-8", "--threads", "1")


class SoakError(Exception):
    """Something that must not happen."""


@dataclass
class Expected:
    """What quiet runs give.

    Attributes:
        inspected: What inspect prints.
        models: What convert writes.
        plans: What convert and plan write.
        artifacts: What an artifact of each model gives.
        outcomes: What the sweep measures, without the time that it takes.
    """

    inspected: str = ""
    models: set[bytes] = field(default_factory=set[bytes])
    plans: set[str] = field(default_factory=set[str])
    artifacts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    outcomes: set[str] = field(default_factory=set[str])


def commands(method: str) -> list[tuple[str, ...]]:
    """Return one of each command; what they write is shared by all processes."""
    return [
        ("inspect", "model.onnx", "--json"),
        ("convert", "model.onnx", "out.onnx", "--method", method, "--save-plan", "plan.json"),
        ("sweep", "model.onnx", *_MEASURED, "--out", "sweep"),
        ("plan", "model.onnx", *_MEASURED, "--out", "found.json", "--max-drop", "0.5"),
        ("build", f"{method}.onnx", "artifact", "--target", "cpu"),
        ("run", "artifact", "--data", "data.npz", "--metric", "cosine", "--reference", "model.onnx", "--limit", "0.5"),
        ("report", "sweep", "--out", "report"),
    ]


def start(arguments: tuple[str, ...], said: Path, room: int | None = None) -> int:
    """Start a command as a child and return its number.

    Args:
        arguments: The command.
        said: File for what it prints.
        room: Bytes that its address space may have beside ours; no limit by default.
    """
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        number = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(number, 1)
        os.dup2(number, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if room is not None:
            most = psutil.Process().memory_info().vms + room
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        main(arguments)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int) -> int:
    """Return a child's exit code, or the signal that ended it as a negative number."""
    end = time.monotonic() + HANGS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    raise SoakError(f"a command hangs: process {child}")


def measured(folder: Path) -> set[str]:
    """Return the outcomes of a sweep, without the time that they took."""
    return {repr((o.setting, o.metric, o.loss, o.samples)) for o in read(folder)[1]}


def outputs(artifact: str) -> tuple[str, bytes]:
    """Return of which model an artifact is, and what it gives."""
    with softq.load(artifact) as model:
        return str(model.manifest["model"]), model(inputs())["out"].tobytes()  # pyright: ignore


def quiet(said: Path) -> Expected:
    """Fill the current folder, run every command where nothing goes wrong, and return what they give."""
    onnx.save(attention(), "model.onnx")
    np.savez("data.npz", **inputs(batch=16))  # pyright: ignore
    Path("report").mkdir(exist_ok=True)
    expected = Expected()
    for method in METHODS:
        softq.modelfile.save(softq.convert("model.onnx", method=method).model, f"{method}.onnx")
    for method in METHODS:
        for arguments in commands(method):
            code = wait(start(arguments, said))
            if code != 0:
                raise SoakError(f"{arguments} ends with {code} where nothing goes wrong: {said.read_text()}")
            if arguments[0] == "inspect":
                expected.inspected = said.read_text()
        expected.models.add(Path("out.onnx").read_bytes())
        expected.plans |= {Path(name).read_text() for name in ("plan.json", "found.json")}
        name, found = outputs("artifact")
        expected.artifacts[name] = found
    expected.outcomes = measured(Path("sweep"))
    return expected


def look(expected: Expected, seen: dict[str, Any]) -> None:
    """Read all that lies in the current folder; `seen` is what was there before."""

    def there(name: str) -> bool:
        if Path(name).exists():
            seen[name] = True
            return True
        if seen.get(name):
            raise SoakError(f"{name} was there, and is lost")
        return False

    if there("out.onnx") and Path("out.onnx").read_bytes() not in expected.models:
        raise SoakError("out.onnx is none that a quiet run writes")
    for name in ("plan.json", "found.json"):
        if there(name) and Path(name).read_text() not in expected.plans:
            raise SoakError(f"{name} is none that a quiet run writes")
    if there("artifact"):
        name, found = outputs("artifact")
        if expected.artifacts.get(name) != found:
            raise SoakError(f"the artifact gives other numbers than that of model {name}")
    if there("sweep/outcomes.jsonl"):
        now, before = measured(Path("sweep")), seen.get("measured", set[str]())
        if not now <= expected.outcomes:
            raise SoakError("the sweep holds an outcome that a quiet run does not give")
        if not before <= now:
            raise SoakError(f"the sweep lost {len(before - now)} outcomes")
        seen["measured"] = now
