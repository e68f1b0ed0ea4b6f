"""Custom operators for onnxruntime: equal to the functions that they stand for, and nothing that ends the process."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from softq.artifact import manifest
from softq.artifact.operators.writing import write_operators
from softq.codegen.cpu.operators import compile_operators
from softq.compiler.attention_functions import FoundFunctions
from softq.errors import RefusalError
from softq.provenance import RowFunction
from tests.ort_cases import Feeds, compare, operators_run, session
from tests.ort_library import LONGEST, MACHINE, Case, cases, hard_scores, model_of, programs, write_library

MASKED, EXACT, _, PER_HEAD, *_ = programs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_library(tmp_path_factory.mktemp("operators") / "built")


@pytest.fixture
def library(folder: Path) -> Path:
    return folder / manifest.OPERATOR_LIBRARY


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_equal_to_the_function(case: Case, library: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{case.name}.onnx"
    path.write_bytes(case.model)
    compare(path, library, case.runs)


@pytest.mark.parametrize("to", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_every_score_of_16_bits(to: int, library: Path, tmp_path: Path) -> None:
    proto = onnx.load_from_string(model_of(MASKED, 2))
    proto.graph.input[0].name = "wide"
    proto.graph.node.insert(0, onnx.helper.make_node("Cast", ["wide"], ["scores"], to=to))
    path = tmp_path / "half.onnx"
    onnx.save(proto, path)
    bits = np.arange(2**16, dtype=np.uint16)
    if to == onnx.TensorProto.FLOAT16:
        every = bits.view(np.float16).astype(np.float32)
    else:
        every = (bits.astype(np.uint32) << 16).view(np.float32)
    # Neighbours share a row, and matter there; infinite scores and NaN, which hide all others, have rows of their own.
    scores = np.concatenate([np.sort(every[np.isfinite(every)]), every[~np.isfinite(every)]]).reshape(256, 256)
    rng = np.random.default_rng(0)
    compare(path, library, [{"wide": scores, "valid": rng.random(scores.shape) < 0.9}])


MASKS = [(64,), (1,), (5, 64), (5, 1), (3, 1, 64), (1, 1, 1, 64), (2, 1, 1, 64), (2, 3, 1, 1), (2, 3, 5, 64)]
LEADING = [(2, 1, 1, 1, 64), (1, 4, 1, 1, 64), (2, 1, 3, 1, 64), (1, 4, 3, 5, 1), (2, 4, 1, 1, 1), (3, 5, 64)]


@pytest.mark.parametrize(("scores", "masks"), [((2, 3, 5, 64), MASKS), ((2, 4, 3, 5, 64), LEADING)], ids=["4", "5"])
def test_masks_broadcast(scores: tuple[int, ...], masks: list[tuple[int, ...]], library: Path, tmp_path: Path) -> None:
    for shape in masks:
        path = tmp_path / "model.onnx"
        path.write_bytes(model_of(MASKED, len(scores), mask_rank=len(shape)))
        valid = np.random.default_rng(len(shape)).random(shape) < 0.6
        compare(path, library, [{"scores": hard_scores(scores, MASKED.program.scores), "valid": valid}])


def test_rows_without_elements(library: Path) -> None:
    # The function's reductions keep such an axis in onnxruntime; the operator gives the shape that is documented.
    made = session(model_of(MASKED, 3), library)
    weights, normalizer = made.run(None, {"scores": np.zeros((2, 3, 0), np.float32), "valid": np.ones((1, 1, 0), bool)})
    assert (np.asarray(weights).shape, np.asarray(normalizer).tolist()) == ((2, 3, 0), [[[0.0]] * 3] * 2)


def feeds(*shape: int, valid: tuple[int, ...] | None = None, dtype: Any = np.float32) -> Feeds:
    return {"scores": np.zeros(shape, dtype), "valid": np.ones(shape if valid is None else valid, bool)}


@pytest.mark.parametrize(
    ("model", "fed", "message"),
    [
        (lambda: model_of(MASKED, 2), feeds(1, LONGEST + 1), "a row has 2049 elements; it is proved for at most 2048"),
        (lambda: model_of(MASKED, 2), feeds(4, 8, valid=(4, 7)), "valid has 7 elements on axis 1 from the end"),
        (lambda: model_of(MASKED, 1, mask_rank=2), feeds(8, valid=(1, 8)), "valid has 2 axes and the scores have 1"),
        (lambda: model_of(MASKED, 0), feeds(), "scores without an axis"),
        (lambda: model_of(MASKED, 2, np.float64), feeds(2, 8, dtype=np.float64), "scores have element type 11"),
        (lambda: model_of(PER_HEAD, 4), feeds(1, 7, 2, 8), "elements; expected "),
        (lambda: model_of(PER_HEAD, 2), feeds(7, 8), "is given for each head, and the scores have 2 axes"),
    ],
)
def test_what_does_not_fit_is_one_error(model: Callable[[], bytes], fed: Feeds, message: str, library: Path) -> None:
    made = session(model(), library)
    with pytest.raises(Exception, match=message) as caught:
        made.run(None, fed)
    assert "softq::DeferredLog" in str(caught.value)


def test_the_profile_says_which_one_ran(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(MASKED, 2))
    fed = feeds(4, 8)
    assert MASKED.name in operators_run(path, library, fed)
    assert "ReduceMax" in operators_run(path, None, fed)


def test_an_operator_of_another_program_answers_in_the_functions_place(library: Path, tmp_path: Path) -> None:
    # The sentinel: the name is the function's, the numbers are those of another method.
    functions = {EXACT.name: RowFunction(programs()[6].program, LONGEST)}
    other = write_operators(compile_operators(FoundFunctions(functions), MACHINE), MACHINE, tmp_path / "other")
    fed = {"scores": np.linspace(-4, 4, 64, dtype=np.float32).reshape(4, 16)}
    mine = session(model_of(EXACT, 2), other / manifest.OPERATOR_LIBRARY).run(None, fed)
    usual = session(model_of(EXACT, 2), library).run(None, fed)
    assert not np.allclose(np.asarray(mine[0]), np.asarray(usual[0]))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    with pytest.raises(Exception, match="another library of softq's operators is registered"):
        options.register_custom_ops_library(str(other / manifest.OPERATOR_LIBRARY))


@pytest.mark.parametrize("providers", [["CPUExecutionProvider"], ["AzureExecutionProvider", "CPUExecutionProvider"]])
def test_registered_twice_two_sessions_many_runs_at_once(providers: list[str], library: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    for _ in range(2):
        options.register_custom_ops_library(str(library))
    inputs = [
        {"scores": hard_scores((1, 2, 70 + i, 300), MASKED.program.scores), "valid": np.arange(300) % 7 < 5 + i % 2}
        for i in range(6)
    ]
    model = model_of(MASKED, 4, mask_rank=1)
    both = [onnxruntime.InferenceSession(model, options, providers=providers) for _ in range(2)]
    wanted = [both[0].run(None, fed) for fed in inputs]
    with ThreadPoolExecutor(4) as pool:
        jobs = [(i, pool.submit(both[n % 2].run, None, inputs[i])) for n in range(4) for i in range(len(inputs))]
        for i, job in jobs:
            for got, want in zip(job.result(), wanted[i], strict=True):
                np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_the_same_operators_are_the_same_files(folder: Path, tmp_path: Path) -> None:
    again = write_library(tmp_path / "again")
    names = {path.name for path in again.iterdir()}
    assert names == {*manifest.OPERATOR_FILES, manifest.NAME}
    assert [name for name in names if (again / name).read_bytes() != (folder / name).read_bytes()] == []
    told = json.loads((again / manifest.NAME).read_text(encoding="utf-8"))
    assert {operator["name"] for operator in told["operators"]} == {each.name for each in programs()}
    assert bytes(tmp_path) + b"/" not in (again / manifest.OPERATOR_LIBRARY).read_bytes()


def test_a_function_without_a_proof_is_refused_by_name() -> None:
    with pytest.raises(RefusalError, match=f"function softq::{MASKED.name} has no kernel"):
        compile_operators(FoundFunctions({MASKED.name: RowFunction(MASKED.program, 2**31 - 1)}), MACHINE)


_GET_API, _VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32), ctypes.CFUNCTYPE(ctypes.c_void_p)


class _Base(ctypes.Structure):
    _fields_ = (("get_api", _GET_API), ("version", _VERSION))


def test_an_older_runtime_is_refused_with_its_version(library: Path) -> None:
    """A stand-in of the interface of onnxruntime 1.16, which gives no table of version 17."""
    told: list[tuple[int, bytes]] = []
    status_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)

    @status_of
    def create_status(code: int, message: bytes) -> int:
        told.append((code, message))
        return 1

    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value)
    name = ctypes.create_string_buffer(b"1.16.3")
    base = _Base(
        _GET_API(lambda version: ctypes.addressof(table) if version <= 16 else None),
        _VERSION(lambda: ctypes.addressof(name)),
    )
    register = ctypes.CDLL(str(library)).RegisterCustomOps
    register.restype = ctypes.c_void_p
    assert register(None, ctypes.byref(base)) == 1
    assert told == [(9, b"softq's operators need onnxruntime 1.17 or newer; this is 1.16.3")]
