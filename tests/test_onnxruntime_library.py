"""The library of operators that comes with softq: what it covers, and which of its kernels a processor gets."""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import softq
import softq.onnxruntime
from softq.artifact import manifest
from softq.artifact.features import architecture
from softq.artifact.operators.library import Level, OperatorLibrary
from softq.artifact.operators.writing import write_operators
from softq.codegen.cpu.operator_levels import MachineLevel, compile_levels
from softq.errors import InputError
from softq.prebuilt.building import LEVELS, build_library, levels_of
from softq.prebuilt.functions import WIDTHS, functions
from softq.rowprog import DType
from tests.fused import ATTENTIONS, DIMS
from tests.ort_cases import compare, operators_run, session
from tests.ort_library import DROP_IN, MACHINE, Chosen, calls, hard_scores, model_of

FAST, SMALL = "deferred-log", "i-exp"
LACKED = "xop" if platform.machine() == "x86_64" else "sve2"
"""A feature that this computer lacks."""


CALLS = (
    ((2, 3, 5, 64), (1, 3, 5, 64)),
    ((1, 3, 9, 337), (1, 1, 9, 1)),
    ((1, 3, 4, 7), (7,)),
    ((2, 2, 3, 4, 17), (1, 2, 3, 4, 1)),
)
"""Shapes of scores and of their masks."""


def check(each: Chosen, library: Path, folder: Path) -> None:
    """Compare an operator with its function: masks with all kinds of strides, rows of several lengths."""
    path = folder / f"{each.name}.onnx"
    for shape, mask in CALLS:
        path.write_bytes(model_of(each, len(shape), mask_rank=len(mask)))
        feeds = {"scores": hard_scores(shape, each.program.scores)}
        if each.program.masked:
            feeds["valid"] = np.random.default_rng(1).random(mask) < 0.7
        compare(path, library, [feeds])


@pytest.fixture(scope="module")
def slice_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of two methods at 4 bits, for one level."""
    made = compile_levels(functions((FAST, SMALL), [4]), [MachineLevel(MACHINE)])
    return write_operators(made, MACHINE, tmp_path_factory.mktemp("slice") / "operators", slim=True)


@pytest.fixture
def ours(slice_of: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The slice in the place of the library that comes with softq."""
    monkeypatch.setattr(softq.onnxruntime, "_OURS", slice_of)
    return slice_of


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("each", [*calls((FAST, SMALL), (4,))], ids=lambda each: each.name)
def test_equal_to_the_function(each: Chosen, slice_of: Path, tmp_path: Path) -> None:
    check(each, slice_of / manifest.OPERATOR_LIBRARY, tmp_path)


def converted(**settings: Any) -> onnx.ModelProto:
    return softq.convert(ATTENTIONS["added-mask"].model(), **settings).model


SETTINGS = {
    "default": {},
    "fused": {"fuse_attention": True},
    "qdq": {"qdq": True},
    "small": {"method": SMALL, "bits": 4},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_converted_model_needs_no_folder(settings: Mapping[str, Any], ours: Path, tmp_path: Path) -> None:
    proto, feeds = converted(**settings), ATTENTIONS["added-mask"].feeds({**DIMS, "S": 33, "N": 70})
    path = tmp_path / "quantized.onnx"
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    softq.onnxruntime.register(options)
    made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(
        np.asarray(made.run(None, feeds)[0]), np.asarray(session(path, None).run(None, feeds)[0])
    )
    (name,) = softq.onnxruntime.coverage(proto).covered
    assert name in operators_run(path, Path(softq.onnxruntime.library()), feeds)


@pytest.mark.parametrize(("axis", "opset", "dtype"), [(-1, 13, "float"), (1, 11, "float"), (0, 23, "float16")])
def test_forms_of_a_softmax_have_one_function(axis: int, opset: int, dtype: str, ours: Path, tmp_path: Path) -> None:
    shape = f"{dtype}[3, 2, 5, 40]"
    graph = f"g ({shape} x) => ({shape} y) {{ y = Softmax<axis = {axis}>(x) }}"
    plain = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')
    path = tmp_path / "model.onnx"
    onnx.save(softq.convert(plain, all_sites=True).model, path)
    feeds = {"x": hard_scores((3, 2, 5, 40), DType.F32).astype({"float": np.float32, "float16": np.float16}[dtype])}
    results = [session(path, used).run(None, feeds)[0] for used in (Path(softq.onnxruntime.library()), None)]
    np.testing.assert_array_equal(np.asarray(results[0]), np.asarray(results[1]))
    assert len(softq.onnxruntime.coverage(path).covered) == 1


def test_what_is_not_covered_is_told(ours: Path) -> None:
    for settings in ({"bits": 5}, {"fuse_attention": True}):
        told = softq.onnxruntime.coverage(converted(**settings))
        assert len(told.missing) == 1
        assert "softq build MODEL OUT --target onnxruntime" in "".join(told.missing.values())
    assert len(told.covered) == 1
    told = softq.onnxruntime.coverage(converted(max_length=70_000))
    assert [*told.missing.values()] == ["rows may have 70,000 elements, and its operator refuses more than 65,536"]


def test_an_installation_without_a_library_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(softq.onnxruntime, "_OURS", tmp_path / "none")
    for call in (
        softq.onnxruntime.library,
        lambda: softq.onnxruntime.register(onnxruntime.SessionOptions()),
        lambda: softq.onnxruntime.coverage(converted()),
    ):
        with pytest.raises(InputError, match="has no library of operators: wheels for Linux"):
            call()


def leveled(best: tuple[str, ...], oldest: tuple[str, ...] = ()) -> tuple[str, OperatorLibrary]:
    """Return a name and a library whose best level computes another method under it.

    Args:
        best: Features that the best level needs beyond this computer's.
        oldest: Those that the oldest needs.
    """
    first, last = (next(f for f in functions((method,), [4]) if not f.program.masked) for method in (FAST, SMALL))
    made = [compile_levels([each], [MachineLevel(MACHINE)]) for each in (first, last)]
    (other,), (usual,) = (each.operators for each in made)
    machine = dataclasses.replace(MACHINE, requires=(*MACHINE.requires, *best))
    levels = (Level(machine, (dataclasses.replace(other, name=usual.name),)),)
    objects = [*made[0].objects, *made[1].objects]
    return usual.name, OperatorLibrary((usual,), (), objects, levels)


@pytest.mark.parametrize("features", [(), (LACKED,)], ids=["best", "oldest"])
def test_kernels_are_those_of_the_first_level_that_the_processor_has(features: tuple[str, ...], tmp_path: Path) -> None:
    name, library = leveled(features)
    folder = write_operators(library, MACHINE, tmp_path / "operators")
    each = next(each for each in calls((SMALL,), (4,)) if each.name == name)
    scores = np.linspace(-4, 4, 64, dtype=np.float32).reshape(4, 16)
    model, used = model_of(each, 2), folder / manifest.OPERATOR_LIBRARY
    operator, function = (np.asarray(session(model, where).run(None, {"scores": scores})[0]) for where in (used, None))
    assert np.array_equal(operator, function) == bool(features)


def test_a_processor_without_any_level_is_told_what_it_lacks(tmp_path: Path) -> None:
    _, library = leveled((LACKED,))
    machine = dataclasses.replace(MACHINE, requires=(LACKED,))
    folder = write_operators(library, machine, tmp_path / "operators")
    with pytest.raises(InputError, match=f"built for {MACHINE.cpu}: this processor has no {LACKED}"):
        softq.onnxruntime.register(onnxruntime.SessionOptions(), folder)


FAMILY = next(name for name in LEVELS if architecture(levels_of(name)[-1].machine) == architecture(MACHINE))


@pytest.fixture(scope="module", params=range(len(LEVELS[FAMILY])))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole library as this computer loads it, and each level below the best one alone."""
    folder, level = tmp_path_factory.mktemp("whole") / "operators", levels_of(FAMILY)[request.param]
    if request.param:
        return write_operators(compile_levels(functions(), [level]), level.machine, folder)
    build_library(folder, FAMILY)
    assert (folder / manifest.OPERATOR_LIBRARY).stat().st_size <= 3_000_000
    return folder


@pytest.mark.slow
def test_every_method_is_equal_to_its_functions(whole: Path, tmp_path: Path) -> None:
    try:
        softq.onnxruntime.register(onnxruntime.SessionOptions(), whole)
    except InputError as error:
        if "this processor has no avx512" in str(error):
            return
        raise
    told = json.loads((whole / manifest.NAME).read_text(encoding="utf-8"))
    names = {operator["name"] for operator in told["operators"]}
    for each in calls(DROP_IN, WIDTHS):
        check(each, whole / manifest.OPERATOR_LIBRARY, tmp_path)
        names.remove(each.name)
    assert not names


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (manifest.OPERATOR_LIBRARY, None, f"{manifest.OPERATOR_LIBRARY} is missing"),
        (manifest.OPERATOR_LIBRARY, b"\x7fELF", "has 4 bytes; .* truncated or was changed"),
        ("manifest.json", None, "has no manifest.json"),
    ],
)
def test_a_damaged_installation_is_told_before_onnxruntime_loads_it(
    name: str, content: bytes | None, told: str, slice_of: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "operators"
    shutil.copytree(slice_of, folder)
    monkeypatch.setattr(softq.onnxruntime, "_OURS", folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    for call in (softq.onnxruntime.library, lambda: softq.onnxruntime.register(onnxruntime.SessionOptions())):
        with pytest.raises(InputError, match=told):
            call()
