"""Every public function, given every kind of bad file: what comes out is an error of softq's own, in one line."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx
import pytest

import softq
from softq import limits
from softq.artifact import check_folder, write
from softq.audit import audit, audit_recorded
from softq.calibration import Sampling
from softq.compare import score
from softq.conversion import expose
from softq.data import TensorSpec, look_at, open_data
from softq.errors import SoftqError
from softq.modelfile import as_model, check_functions, check_output, data_files, load, save
from softq.passes.prepare import prepare
from softq.profiles import convert_for, judge, load_profile
from softq.provenance import plan_of
from softq.rtl import MadeCore, MadeFunction, read_core, write_hls, write_rtl
from softq.samples import Input, cast_arrays, find_inputs, read_images, read_texts
from softq.sweeps import records
from softq.sweeps import run as sweep
from softq.sweeps.plan.record import read_record
from softq.sweeps.report import report
from softq.vectors import Vectors, write_vectors
from tests.hostile import BOMBS, WRONG, text

if TYPE_CHECKING:
    from softq.artifact import Machine, Program

GOOD = text("q = Identity(x)")
VECTORS = cast("Vectors", None)
CORE = cast("MadeCore", None)
FUNCTION = cast("MadeFunction", None)
PLAN = softq.convert(GOOD).plan
DATA = [{"x": np.ones((2, 4, 8, 8), np.float32)}]

Call = Callable[[Path], object]

PIXELS, TOKENS = Input("x", "float32", (None, 1, 2, 2), "values"), Input("x", "int64", (None, 4), "indices")

OF_MODELS: Mapping[str, Call] = {
    "find-inputs": find_inputs,
    "judge": lambda path: judge(path, load_profile("litert")),
    "convert-for": lambda path: convert_for(path, load_profile("litert")),
    "inspect": softq.inspect,
    "explain": lambda path: softq.explain(path, "s"),
    "convert": softq.convert,
    "convert-inline": lambda path: softq.convert(path, inline=True, all_sites=True),
    "convert-plan": lambda path: softq.convert(path, plan=PLAN),
    "convert-calibration": lambda path: softq.convert(path, calibration=DATA, sampling=Sampling(rows=2)),
    "build": lambda path: softq.build(path, path.parent / "out", target="cpu"),
    "check": lambda path: softq.check(path, GOOD, DATA),
    "check-candidate": lambda path: softq.check(GOOD, path, DATA),
    "score": lambda path: score(path, DATA, metrics=["top1-agreement"]),
    "expose": lambda path: expose(path, PLAN),
    "load-model": load,
    "prepare": lambda path: prepare(load(path)),
    "save": lambda path: save(as_model(path), path.parent / "again.onnx", source=path),
    "plan-of": lambda path: plan_of(as_model(path)),
    "check-functions": lambda path: (check_functions(path), load(path)),
    "data-files": lambda path: (data_files(path), load(path)),
    "calibrate": lambda path: softq.calibrate(path, DATA),
    "sensitivity": lambda path: softq.sensitivity(
        path, DATA, out=path.parent / "sites", metric="cosine", methods="log2", bits="3"
    ),
    "plan": lambda path: softq.plan(path, DATA, metric="cosine", max_drop="1%", methods="log2", bits="3"),
    "sweep": lambda path: sweep(path, DATA, out=path.parent / "sweep", metric="cosine", methods="log2", bits="3"),
}

OF_OTHERS: Mapping[str, Call] = {
    "load": softq.load,
    "load-plan": softq.load_plan,
    "convert-with": lambda path: softq.convert(GOOD, plan=path),
    "calibrate-on": lambda path: softq.convert(GOOD, calibration=path),
    "check-on": lambda path: softq.check(GOOD, GOOD, path),
    "read-study": records.read,
    "read-record": read_record,
    "open-data": lambda path: list(open_data(path, [TensorSpec("x", "float32", None)]).batches()),
    "look-at": look_at,
    "check-output": lambda path: check_output(path / "under" / "it", source=path),
    "save-to": lambda path: save(as_model(GOOD), path / "under" / "it"),
    "check-folder": lambda path: check_folder(path / "under" / "it"),
    "write": lambda path: write(cast("Program", None), cast("Machine", None), path / "under" / "it"),
    "sweep-on": lambda path: sweep(GOOD, path, out=path.parent / "sweep", metric="cosine", methods="log2", bits="3"),
    "report": lambda path: report(path),
    "save-result": lambda path: softq.save(PLAN, path / "under" / "it"),
    "audit": lambda path: audit("function", path / "under" / "it", options={"of": "math:floor"}),
    "audit-recorded": lambda path: audit_recorded(path, path.parent / "audit"),
    "read-core": read_core,
    "write-core": lambda path: write_rtl(CORE, path / "under" / "it"),
    "write-function": lambda path: write_hls(FUNCTION, path / "under" / "it"),
    "cast-arrays": lambda path: cast_arrays(str(path), [PIXELS]),
    "read-images": lambda path: read_images([PIXELS], str(path)),
    "read-texts": lambda path: read_texts([TOKENS], str(path), str(path)),
    "write-vectors": lambda path: write_vectors(VECTORS, path.with_suffix(".npz")),
}

FILES: Mapping[str, bytes] = {
    "empty": b"",
    "text": b"no model",
    "zeros": bytes(4096),
    "json": b'{"schema": 1}',
    "list": b"[]",
    "not-utf8": b"\xff\xfe\xff",
    "deep": b"[" * 100_000,
    "cut": GOOD.SerializeToString()[:-9],
    "zip": b"PK\x03\x04" + bytes(60),
}


NOT_INSTALLED = frozenset(
    {"tvm", "dask", "distributed", "torch"}
    | {"brevitas", "finn", "hls4ml", "litex", "mlflow", "olive", "onnxscript", "optimum"}
)
"""What modules of softq may need that is not there."""


def list_readers() -> dict[CodeType, str]:
    """Return the code of every public function that is given a place of a file, a model or data."""
    found: dict[CodeType, str] = {}
    for place in ("softq", *(info.name for info in pkgutil.walk_packages(softq.__path__, "softq."))):
        if any(part.startswith("_") for part in place.split(".")):
            continue
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name not in NOT_INSTALLED:
                raise
            continue
        for name in getattr(module, "__all__", ()):
            function = getattr(module, name)
            if inspect.isfunction(function) and any(
                re.search("PathLike|ModelLike|DataSource", str(given.annotation))
                for given in inspect.signature(function).parameters.values()
            ):
                found.setdefault(function.__code__, f"{place}.{name}")
    return found


def test_every_public_reader_is_given_bad_files(tmp_path: Path) -> None:
    """One that is new is missing until it has a place in the tables above."""
    missing, path, good = list_readers(), tmp_path / "text", tmp_path / "good.onnx"
    path.write_bytes(FILES["text"])
    good.write_bytes(GOOD.SerializeToString())
    assert {"softq.inspect", "softq.load", "softq.modelfile.save"} <= set(missing.values())

    def note(frame: FrameType, event: str, argument: object) -> None:
        missing.pop(frame.f_code, None)

    for call in (*OF_MODELS.values(), *OF_OTHERS.values(), lambda _: OF_MODELS["convert-calibration"](good)):
        sys.setprofile(note)
        try:
            call(path)
        except SoftqError:
            pass
        finally:
            sys.setprofile(None)
    assert not missing, sorted(missing.values())


def assert_own(call: Call, path: Path) -> None:
    with limits.limited(memory=1 << 26, seconds=1):
        told = ""
        try:
            call(path)
        except SoftqError as error:
            told = str(error)
    assert "\n" not in told


@pytest.mark.parametrize("name", [*OF_MODELS, *OF_OTHERS])
def test_files_that_are_something_else(name: str, tmp_path: Path) -> None:
    call = {**OF_MODELS, **OF_OTHERS}[name]
    for kind, data in FILES.items():
        (tmp_path / kind).write_bytes(data)
        with pytest.raises(SoftqError):
            call(tmp_path / kind)
        assert_own(call, tmp_path / kind)
    for path in (tmp_path / "absent", tmp_path, Path("/dev/null"), tmp_path / ("a" * 300)):
        assert_own(call, path)


@pytest.mark.parametrize("name", [*WRONG, "calls-twice", "many-axes", "function-twice"])
def test_models_that_are_none(name: str, tmp_path: Path) -> None:
    made = {**WRONG, **BOMBS}[name][0]()
    assert isinstance(made, onnx.ModelProto)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    for call in OF_MODELS.values():
        assert_own(call, path)
