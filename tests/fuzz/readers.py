"""Everything that reads a file, as a function of its bytes, with files that it reads."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

import softq
from softq import limits
from softq.artifact import manifest
from softq.artifact.device import steps
from softq.audit import auditing
from softq.cli import configuration, main
from softq.data import TensorSpec, open_data
from softq.modelfile import as_model, load, save
from softq.plans import PLAN_KEY
from softq.profiles import load_profile
from softq.profiles.loading import FOLDER
from softq.provenance import row_functions
from softq.rtl import rtl
from softq.rtl.description import read_core
from softq.rtl.writing import kernel_folder
from softq.static_quantization import quantize_overrides
from softq.sweeps import records
from softq.sweeps.plan.record import read_record, record_text
from tests.fuzz.artifacts import read_weights, weights
from tests.fuzz.mutation import mutate_bytes, mutate_model, mutate_text
from tests.hostile import BOMBS, WRONG, calls, chain, nested, text

logging.getLogger("onnx_ir").setLevel(logging.ERROR)

Mutate = Callable[[bytes, np.random.Generator, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
        read: Reads bytes, with a folder to put them in.
        seeds: Files that it reads.
        mutate: Makes another file of one, given the others.
    """

    read: Callable[[bytes, Path], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate


def _read_model(data: bytes, folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(data)
    # Little, so that a case takes little.
    with limits.limited(memory=1 << 26, seconds=1):
        softq.inspect(path)
        found = softq.convert(path, all_sites=True)
        save(found.model, folder / "out.onnx", source=path)
        load(folder / "out.onnx")


_ATTENTION = "r = MatMul(x, x) m = Where(c, r, low) low2 = Constant<value=float{2.0}>() q = Mul(m, low2)"


@cache
def models() -> Sequence[bytes]:
    """Return small models with softmaxes of many forms."""
    masked = text(f"low = Constant<value=float{{-10000.0}}>() {_ATTENTION}")
    written = text("e = Exp(x) k = Constant<value_ints=[-1]>() t = ReduceSum(e, k) q = Div(e, t)")
    sized = text("s = Shape(x) n = Size(x) f = Reshape(x, s) q = Transpose<perm=[0,1,3,2]>(f)")
    made = [
        text("q = Identity(x)"),
        masked,
        written,
        sized,
        calls(3, 2),
        chain("Add(@, @)", 5),
        chain("LogSoftmax(@)", 3),
    ]
    made += [model for make, _ in WRONG.values() if isinstance(model := make(), onnx.ModelProto)]
    small = ("range", "expand", "tile", "pad", "add-chain", "function-twice")
    made += [model for name in small if isinstance(model := BOMBS[name][0](), onnx.ModelProto)]
    made += [onnx.ModelProto.FromString(_proto_of(nested(3)))]
    return [model.SerializeToString(deterministic=True) for model in made]


def _proto_of(model: object) -> bytes:
    import onnx_ir as ir

    assert isinstance(model, ir.Model)
    return ir.to_proto(model).SerializeToString()


_SPECS = [TensorSpec("x", "float32", ("n", 3))]


def _read_data(data: bytes, folder: Path) -> None:
    path = folder / "data.npz"
    path.write_bytes(data)
    with limits.limited(memory=1 << 26):
        for _ in open_data(path, _SPECS).batches():
            pass


def _read_header(data: bytes, folder: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("x.npy", data)
    _read_data(held.getvalue(), folder)


@cache
def _archives() -> Sequence[bytes]:
    found: list[bytes] = []
    for write in (np.savez, np.savez_compressed):
        held = io.BytesIO()
        arrays: dict[str, Any] = {"x": np.ones((4, 3), np.float32), "label.y": np.arange(4)}
        write(held, **arrays)
        found.append(held.getvalue())
    return found


@cache
def _arrays() -> Sequence[bytes]:
    found: list[bytes] = []
    for array in (
        np.ones((4, 3), np.float32),
        np.asfortranarray(np.ones((2, 3))),
        np.array(["a", "b"]),
        np.zeros((0, 3)),
    ):
        held = io.BytesIO()
        np.save(held, array)
        found.append(held.getvalue())
    return found


def _read_plan(data: bytes, folder: Path) -> None:
    path = folder / "plan.json"
    path.write_bytes(data)
    softq.convert(text("q = Identity(x)"), plan=path, allow_substitute=True)


@cache
def _plans() -> Sequence[bytes]:
    model = text("q = Identity(x)")
    settings = [("deferred-log", {}), ("log2", {}), ("i-exp", {}), ("relu", {}), ("exact", {})]
    plans = [
        softq.convert(model, method=method, settings=more, allow_substitute=True).plan for method, more in settings
    ]
    return [plan.to_text().encode() for plan in plans]


def _read_study(data: bytes, folder: Path) -> None:
    (folder / "outcomes.jsonl").write_text("")
    (folder / "study.json").write_bytes(data)
    records.read(folder)


def _read_outcomes(data: bytes, folder: Path) -> None:
    (folder / "study.json").write_bytes(_study())
    (folder / "outcomes.jsonl").write_bytes(data)
    records.read(folder)


def _study() -> bytes:
    plain = {
        "schema": records.SCHEMA, "softq": "0", "model": "m", "data": "d", "samples": 3, "metric": "m", "unit": "%",
        "direction": "up", "relative": False, "reference": {"value": 1.0, "low": None, "high": None}, "seconds": 1.0,
        "sites": [{"id": "s"}], "command": "c", "conditions": {},
    }  # fmt: skip
    return json.dumps(plain).encode()


def _outcome() -> bytes:
    number = {"value": 1.0, "low": 0.5, "high": 1.5}
    plain = {
        "setting": {"method": "exact", "bits": None}, "metric": number, "loss": number, "samples": 3, "seconds": 1.0,
        "sites": {"s": {"rows": 3, "row_sums": [1, 1]}},
    }  # fmt: skip
    return json.dumps(plain).encode() + b"\n"


def _read_manifest(data: bytes, folder: Path) -> None:
    (folder / manifest.NAME).write_bytes(data)
    for name in ("weights.bin", "libmodel.so", "softq.h"):
        (folder / name).write_bytes(name.encode())
    softq.load(folder)


def _manifest() -> bytes:
    tensor = {"name": "x", "dtype": "float32", "shape": [2, "n"], "size": 4}
    files = {name: {"bytes": len(name), "sha256": "0" * 64} for name in ("weights.bin", "libmodel.so", "softq.h")}
    plain = {
        "kind": manifest.KIND, "schema": manifest.SCHEMA, "softq": "0", "target": "cpu", "inputs": [tensor],
        "outputs": [tensor], "files": files, "machine": {"name": "host", "triple": "x86_64-unknown-linux-gnu"},
    }  # fmt: skip
    return json.dumps(plain, indent=1).encode()


def _read_config(data: bytes, folder: Path) -> None:
    path = folder / "softq.toml"
    path.write_bytes(data)
    context = click.Context(main)
    commands = {name: one for name in main.list_commands(context) if (one := main.get_command(context, name))}
    said = configuration.read(path, commands)
    for name in commands:
        configuration.values_of(name, said, str(path), commands)


def _configs() -> Sequence[bytes]:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    return [page.split("```toml\n")[1].split("```")[0].encode()]


def _read_profile(data: bytes, folder: Path) -> None:
    path = folder / "my_npu.toml"
    path.write_bytes(data)
    load_profile(str(path))


def _profiles() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(FOLDER.glob("*.toml"))]


def _read_record(data: bytes, folder: Path) -> None:
    (folder / "plan.json").write_bytes(_plans()[0])
    (folder / "plan.measured.json").write_bytes(data)
    read_record(folder / "plan.json")


def _records() -> Sequence[bytes]:
    text = record_text({"schema": records.SCHEMA}, _plans()[0].decode(), metric="m", budget="1%", command="softq plan")
    return [text.encode()]


def _read_core(data: bytes, folder: Path) -> None:
    (folder / "core.json").write_bytes(data)
    (folder / "deferred_log.v").write_bytes(b"")
    read_core(folder / "core.json")
    kernel_folder(folder)


@cache
def _cores() -> Sequence[bytes]:
    facts = dict(rtl("deferred-log", {"bits": 3, "step": 0.06}, length=8, rows=0).facts)
    return [json.dumps(facts).encode()]


_CONDITIONS = {"runtime": "onnxruntime", "options": {}, "seed": 0}


def _read_steps(data: bytes, folder: Path) -> None:
    (folder / auditing.CONDITIONS).write_text(json.dumps(_CONDITIONS))
    (folder / auditing.STEPS).write_bytes(data)
    with (folder / auditing.STEPS).open("r+b") as file:
        auditing.resume(folder, _CONDITIONS, force=False, stream=file.fileno())


def _steps() -> bytes:
    fault = {"kind": "value", "text": "wrong", "count": 1, "shape": [2, 3], "folder": "faults/values-1"}
    step = {"name": "values", "title": "Values", "seconds": 0.1, "facts": {"rows": {"worst": []}}, "faults": [fault]}
    return json.dumps(step).encode() + b"\n"


def _launches() -> bytes:
    kept: dict[str, object] = dict.fromkeys(("slots", "steps", "limits"), ())
    tensors = [[name, "float32", ["n", ["*", "n", 4]], "io", 0] for name in ("x", "y")]
    plain = {
        "schema": steps.SCHEMA,
        "inputs": ["x"],
        "outputs": ["y"],
        "tensors": tensors,
        "weights": {},
        "launches": {},
    }
    return json.dumps({**plain, **kept}).encode()


@cache
def _converted() -> bytes:
    return softq.convert(text("q = Identity(x)"), bits=3).model.SerializeToString()


def _read_carried(data: bytes, folder: Path) -> None:
    model = onnx.ModelProto.FromString(_converted())
    for entry in model.metadata_props:
        if entry.key == PLAN_KEY:
            entry.value = data.decode("utf-8", "replace")
    row_functions(as_model(model))
    quantize_overrides(model)


def _make_carried() -> Sequence[bytes]:
    model = onnx.ModelProto.FromString(_converted())
    return [entry.value.encode() for entry in model.metadata_props if entry.key == PLAN_KEY]


READERS: dict[str, Reader] = {
    "onnx": Reader(_read_model, models, mutate_bytes),
    "structure": Reader(_read_model, models, mutate_model),
    "npz": Reader(_read_data, _archives, mutate_bytes),
    "npy": Reader(_read_header, _arrays, mutate_bytes),
    "plan": Reader(_read_plan, _plans, mutate_text),
    "study": Reader(_read_study, lambda: [_study()], mutate_text),
    "outcomes": Reader(_read_outcomes, lambda: [_outcome(), _outcome() * 3], mutate_text),
    "manifest": Reader(_read_manifest, lambda: [_manifest()], mutate_text),
    "config": Reader(_read_config, _configs, mutate_bytes),
    "profile": Reader(_read_profile, _profiles, mutate_bytes),
    "record": Reader(_read_record, _records, mutate_text),
    "core": Reader(_read_core, _cores, mutate_text),
    "steps": Reader(_read_steps, lambda: [_steps() * 2], mutate_text),
    "launches": Reader(
        lambda data, _: steps.from_json(data.decode("utf-8", "replace")), lambda: [_launches()], mutate_text
    ),
    "carried": Reader(_read_carried, _make_carried, mutate_text),
    "weights": Reader(read_weights, lambda: [weights()], mutate_bytes),
}
