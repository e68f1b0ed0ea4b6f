"""Attentions of built models for GPUs as one kernel: the results of its parts, of onnxruntime and of float64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq import methods
from softq.artifact.device import nvcc
from softq.artifact.device.executor import Executor
from softq.artifact.device.steps import DeviceProgram, Launch, QueryForm, from_json, to_json
from softq.artifact.program import Step, evaluate
from softq.codegen.gpu.dialect.dialects import CUDA
from softq.codegen.gpu.program import device_program, machine_of
from softq.modelfile import as_model
from softq.rowprog import run
from tests.test_gpu_build import Pocl, on_device, on_onnxruntime, opencl_of
from tests.test_gpu_rows import program_of
from tests.test_methods import in_groups
from tests.test_native_attention import inputs, model

Array = NDArray[np.generic]
Both = Callable[[onnx.ModelProto], tuple[DeviceProgram, DeviceProgram]]

METHODS = ["deferred-log", "i-exp", "softermax", "exaq", "limit-exp", "tflite-int8"]
"""Those whose weights are integers, codes of scores that are alike to the bit; sums of the last two have 64 bits."""


def f32(array: Array) -> NDArray[np.float32]:
    return np.asarray(array, np.float32)


def attentions(program: DeviceProgram) -> list[str]:
    return [step.kernel for step in program.program.steps if "attention" in step.kernel]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Return what builds a model with and without attentions in one kernel."""

    def build(converted: onnx.ModelProto) -> tuple[DeviceProgram, DeviceProgram]:
        from softq.codegen.gpu.backend import GpuBackend

        fused = opencl_of(converted)
        with monkeypatch.context() as patched:
            patched.setattr(GpuBackend, "supports_attention", lambda *_: False)
            plain = opencl_of(converted)
        assert attentions(fused)
        assert not attentions(plain)
        return fused, plain

    return build


def whole(given: Mapping[str, Array]) -> dict[str, Array]:
    """Return queries, keys and values as small whole numbers: their products and sums are exact in any order."""
    return {n: np.rint(f32(x) * 2) if n in "qkv" else x for n, x in given.items()}


def beside(given: Mapping[str, Array]) -> dict[str, Array]:
    turned = {f"{n}s": np.ascontiguousarray(np.swapaxes(given[n], 1, 2)) for n in "qkv"}
    return {**turned, **{n: x for n, x in given.items() if n not in "qkv"}}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", [
    {"mask": "byte", "keys": 2}, {"mask": "float", "beside": True}, {"width": "33"}, {"width": "128", "keys": 1},
], ids=str)  # fmt: skip
def test_equal_to_its_parts_to_the_bit(options: dict[str, object], both: Both) -> None:
    converted = softq.convert(model(**{"width": "16", **options}), method="deferred-log").model  # pyright: ignore[reportArgumentType]
    programs = both(converted)
    runs = [on_device(program)[0] for program in programs]
    width, keys = int(str(options.get("width", 16))), int(str(options.get("keys", 4)))
    # One query and few go through the form of few rows, whose tiles have 512 keys.
    for batch, queries, length in ((2, 1, 1), (1, 70, 130), (2, 3, 64), (1, 2, 515)):
        given = whole(inputs(batch, queries, length, width, keys=keys, mask=str(options.get("mask", ""))))
        given = beside(given) if "beside" in options else given
        fused, plain = (f32(one(given)["out"]) for one in runs)
        np.testing.assert_array_equal(fused, plain)
        assert np.any(fused != 0) or length == 1
    # Heads of keys are not repeated, and neither of the operands is copied.
    assert [step.kernel for step in programs[0].program.steps] == attentions(programs[0])


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("method", METHODS)
def test_methods_of_two_passes(method: str, both: Both) -> None:
    fused, plain = (on_device(p)[0] for p in both(softq.convert(model(width="16"), method=method).model))
    given = whole(inputs(1, 20, 70, 16))
    np.testing.assert_array_equal(f32(fused(given)["out"]), f32(plain(given)["out"]))


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["", "byte"])
def test_every_method_is_built(mask: str) -> None:
    built = 0
    for name in methods.METHODS.entries():
        try:
            converted = softq.convert(model(width="32", mask=mask), method=name).model
        except softq.UsageError:
            continue  # another function than a softmax
        if in_groups(name):
            with pytest.raises(softq.UsageError, match=r"maxima over groups.*rows of up to 16,384 elements"):
                opencl_of(converted)
            continue
        assert opencl_of(converted).program.steps
        built += 1
    assert built > 20


def test_against_float64_and_onnxruntime() -> None:
    converted = softq.convert(model(width="64", mask="byte", keys=2), bits=4).model
    found, pocl = on_device(opencl_of(converted))
    given = inputs(2, 70, 130, 64, keys=2, mask="byte")
    result = found(given)["out"].astype(np.float64)
    program = program_of("deferred-log", {"bits": 4})
    assert pocl.launches == [f"softq_attention_deferred_log_{program.structure}_valid"]
    q, k, v = (given[n].astype(np.float64).repeat(1 if n == "q" else 2, 1) for n in "qkv")
    keep = np.broadcast_to(given["keep"], (2, 4, 70, 130))
    scores = np.where(keep, q @ np.swapaxes(k, -1, -2) * np.float32(0.3), -np.inf).astype(np.float32)
    out = run(program, scores)
    with np.errstate(invalid="ignore"):
        wanted = out["weights"].astype(np.float64) @ v / out["normalizer"].astype(np.float64)
    rows = keep.any(-1)
    # A row without an element is what it was in the model: NaN.
    assert np.all(np.isnan(result[~rows]))
    # A score at the boundary of a code may fall on either side: its sum is rounded in another order. Else float32's.
    error = np.abs(result - wanted)[rows]
    assert np.quantile(error, 0.99) <= 1e-5
    assert np.max(error) <= 0.1
    (theirs,) = on_onnxruntime(converted, given)
    error = np.abs(result - theirs.astype(np.float64))[rows]
    assert np.quantile(error, 0.99) <= 1e-5
    assert np.max(error) <= 0.1


def test_the_exact_softmax() -> None:
    plain = model(width="32", mask="float")
    found, pocl = on_device(opencl_of(softq.convert(plain, method="exact").model))
    for queries, length in ((1, 1), (7, 50), (70, 197)):
        given = inputs(1, queries, length, 32, mask="float")
        (wanted,) = on_onnxruntime(plain, given)
        # Scores up to 40 in float32, of which an exponential is taken, and sums of 200 terms.
        np.testing.assert_allclose(f32(found(given)["out"]), f32(wanted), rtol=2e-4, atol=2e-5)
    assert set(pocl.launches) == {"softq_attention_exact_f32", "softq_attention_exact_f32_few"}


@pytest.mark.parametrize("keys", [4, 2])
def test_numbers_of_heads(keys: int, both: Both) -> None:
    plan = softq.convert(model(keys=keys, width="16"), method="deferred-log").plan
    site = replace(plan.sites[0], options={**plan.sites[0].options, "r": "head"}, fitted={"r": (0.5, 0.8, 1.1, 1.7)})
    converted = softq.convert(model(keys=keys, width="16"), plan=replace(plan, sites=(site,))).model
    fused, plain = (on_device(p)[0] for p in both(converted))
    # Blocks of rows reach over the border between two heads that share keys.
    given = whole(inputs(2, 31, 70, 16, keys=keys))
    np.testing.assert_array_equal(f32(fused(given)["out"]), f32(plain(given)["out"]))


def test_not_a_number_stays_in_its_row(both: Both) -> None:
    fused, plain = (on_device(p)[0] for p in both(softq.convert(model(width="16"), method="deferred-log").model))
    given = whole(inputs(1, 60, 70, 16))
    given["q"][0, 1, 3, 5] = np.nan
    given["q"][0, 2, 50] = np.inf
    result = f32(fused(given)["out"])
    np.testing.assert_array_equal(result, f32(plain(given)["out"]))
    assert np.isnan(result[0, 1, 3]).all()


def test_one_query_after_keys_of_the_past(both: Both) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    attention (float[1, 6, n, 8] q, float[1, 2, past, 8] before, float[1, 2, n, 8] x) => (float[1, 6, n, 8] out)
    <int64[1] two = {2}, int64[5] spread = {1, 2, 3, 1, 1}, int64[4] flat = {1, 6, -1, 8}, int64 zero = {0},
     int64 one = {1}, int64[1] first = {0}, int64[2] pair = {-1, 1}, float hidden = {-1e9}>
    {
        keys = Concat <axis = 2> (before, x)
        apart = Unsqueeze (keys, two)
        many = Expand (apart, spread)
        repeated = Reshape (many, flat)
        turned = Transpose <perm = [0, 1, 3, 2]> (repeated)
        scores = MatMul (q, turned)
        p1 = Shape <start = 2, end = 3> (before)
        n1 = Shape <start = 2, end = 3> (x)
        p = Squeeze (p1, first)
        n = Squeeze (n1, first)
        all = Add (p, n)
        columns = Range (zero, all, one)
        row = Range (p, all, one)
        rows = Reshape (row, pair)
        seen = LessOrEqual (columns, rows)
        masked = Where (seen, scores, hidden)
        weights = Softmax <axis = -1> (masked)
        out = MatMul (weights, repeated)
    }
    """
    converted = softq.convert(parser.parse_model(text), method="deferred-log").model
    programs = both(converted)
    fused, plain = (on_device(p)[0] for p in programs)
    assert not [step.kernel for step in programs[0].program.steps if "broadcast" in step.kernel]
    rng = np.random.default_rng(0)
    for past, count in ((7, 1), (600, 1), (5, 3)):
        shapes = {"q": (1, 6, count, 8), "before": (1, 2, past, 8), "x": (1, 2, count, 8)}
        given: dict[str, Array] = {n: rng.integers(-2, 3, s).astype(np.float32) for n, s in shapes.items()}
        result = f32(fused(given)["out"])
        np.testing.assert_array_equal(result, f32(plain(given)["out"]))
        np.testing.assert_allclose(result, f32(on_onnxruntime(converted, given)[0]), rtol=1e-6, atol=1e-6)


def test_memory_grows_as_the_sequence_does(both: Both) -> None:
    fused, plain = both(softq.convert(model(width="64", keys=2), method="deferred-log").model)

    def arena(program: DeviceProgram, length: int) -> int:
        dims = {"batch": 2, "m": length, "n": length}
        return sum(evaluate(size, dims) for size in program.program.slots)

    # A normalizer a row; the parts keep scores and weights, and repeated keys and values.
    assert [arena(fused, n) for n in (1024, 4096)] == [2 * 4 * n * 4 for n in (1024, 4096)]
    assert arena(plain, 4096) > 2 * 2 * 4 * 4096 * 4096 * 4


def as_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with float16 in place of float32."""
    half = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (*half.graph.input, *half.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in half.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float16), tensor.name))
    return half


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("options", "bits"), [
    ({"width": "64", "mask": "byte", "keys": 2}, 4), ({"width": "32", "mask": "float", "beside": True}, 3),
    ({"width": "128", "keys": 1}, 4), ({"width": "96", "mask": "float"}, 2),
], ids=str)  # fmt: skip
def test_float16_on_tensor_cores(options: dict[str, object], bits: int) -> None:
    # The default with 2 and 4 bits, steps found by a root with 3.
    curves: dict[int, dict[str, int | float | str]] = {
        3: {"r": 6.5, "first": 0.4, "shift": 0.8, "steps": "growing"},
    }  # fmt: skip
    settings = curves.get(bits, {})
    converted = softq.convert(as_float16(model(**options)), bits=bits, settings=settings).model  # pyright: ignore[reportArgumentType]
    program = opencl_of(converted)
    found, pocl = on_device(program)
    width, keys, mask = int(str(options["width"])), int(str(options.get("keys", 4))), str(options.get("mask", ""))
    program64 = program_of("deferred-log", {"bits": bits, **settings})
    for batch, queries, length in ((1, 2, 70), (2, 40, 70)):
        drawn = inputs(batch, queries, length, width, keys=keys, mask=mask)
        given = {n: x if x.dtype == bool else np.maximum(f32(x), -6e4).astype(np.float16) for n, x in drawn.items()}
        wide = {n: x.astype(np.float64).repeat(4 // x.shape[1] if n in "kv" else 1, 1) for n, x in given.items()}
        scores = wide["q"] @ np.swapaxes(wide["k"], -1, -2) * np.float64(np.float16(0.3)) + wide.get("bias", 0.0)
        out = run(program64, np.where(np.broadcast_to(given.get("keep", True), scores.shape), scores, -np.inf
                                      ).astype(np.float32))  # fmt: skip
        with np.errstate(invalid="ignore"):
            wanted = out["weights"].astype(np.float64) @ wide["v"] / out["normalizer"].astype(np.float64)
        given = beside(given) if "beside" in options else given
        wanted = np.swapaxes(wanted, 1, 2) if "beside" in options else wanted
        result = found(given)["out"].astype(np.float64)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(wanted))
        # Weights and results are rounded to 11 bits; a score at the boundary of a code may fall on either side.
        error = np.abs(result - wanted)[~np.isnan(wanted)]
        assert np.mean(error) <= 1e-3
        assert np.quantile(error, 0.98) <= 4 * 2.0**-10
        # onnxruntime rounds scores to float16 after each operator: more of them change their code.
        theirs = on_onnxruntime(converted, given)[0].astype(np.float64)
        error = np.abs(result - theirs)[~np.isnan(wanted)]
        assert np.mean(error) <= 1e-2
    # Neither keys nor values are copied, repeated or widened.
    assert [step.kernel for step in program.program.steps] == attentions(program)
    assert {name.removesuffix("_valid") for name in pocl.launches} == {f"softq_attention_f16_{_named(converted)}"}


def _named(converted: onnx.ModelProto) -> str:
    (function,) = converted.functions
    return function.name.replace("DeferredLog", "deferred_log").removesuffix("_valid")


def test_float16_of_other_heads_is_computed_in_parts() -> None:
    converted = softq.convert(as_float16(model(width="40")), bits=4).model
    assert not attentions(opencl_of(converted))


@pytest.mark.parametrize("reason", ["wide", "passes", "scores"])
def test_what_it_does_not_take_is_computed_in_parts(reason: str) -> None:
    given = model(width="256" if reason == "wide" else "16")
    if reason == "scores":
        extra = onnx.helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, ["batch", 4, "m", "n"])
        given.graph.output.append(extra)
    converted = softq.convert(given, method="uniform" if reason == "passes" else "exact").model
    program = opencl_of(converted)
    assert not attentions(program)
    feeds = inputs(1, 3, 9, 256 if reason == "wide" else 16)
    found = f32(on_device(program)[0](feeds)["out"])
    np.testing.assert_allclose(found, f32(on_onnxruntime(converted, feeds)[0]), rtol=1e-3, atol=1e-4)


def test_the_manifest_names_the_kernel(tmp_path: Path) -> None:
    built = softq.build(softq.convert(model(width="32"), bits=4).model, tmp_path / "built", target="cuda,arch=sm_90")
    facts = json.loads((built.folder / "manifest.json").read_text())
    form = program_of("deferred-log", {"bits": 4}).structure
    assert list(facts["sites"].values()) == [[f"softq_attention_deferred_log_{form}"]]


def test_a_launch_is_chosen_by_the_number_of_rows() -> None:
    forms = (QueryForm("few", 8, 64, 8), QueryForm("many", 64, 128, None))
    launch = Launch("attention", "kernels", 0, forms)
    few, many = launch.starts(Step("x", (), ("n", 5), 3, 1))
    assert [(few.symbol, few.threads, evaluate(few.blocks, {"n": 8})), few.when[0].holds({"n": 8})] == [
        ("few", 64, 3),
        True,
    ]
    assert not few.when[0].holds({"n": 9})
    assert (many.symbol, many.threads, evaluate(many.blocks, {"n": 70}), many.when) == ("many", 128, 6, ())


def test_no_rows_are_no_launch() -> None:
    program = opencl_of(softq.convert(model(width="16"), bits=4).model)
    given = inputs(2, 0, 5, 16)
    pocl = Pocl(program.sources)
    assert Executor(from_json(to_json(program)), np.zeros(0, np.uint8), pocl)(given)["out"].shape == (2, 4, 0, 16)
    assert not pocl.launches


@pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_kernels_compile_and_spill_nothing(arch: str) -> None:
    first, second = {"width": "64", "mask": "byte", "keys": 2}, {"width": "128", "mask": "float", "beside": True}
    for options, bits, half in ((first, 3, False), (second, 4, False), (first, 3, True), (second, 4, True)):
        given = model(**options)  # pyright: ignore[reportArgumentType]
        converted = softq.convert(as_float16(given) if half else given, bits=bits).model
        program = device_program(as_model(converted), machine_of(arch), CUDA)
        used = nvcc.compiled(program.sources["kernels"], arch).usage
        assert set(attentions(program)) <= set(used)
        assert len(used) == (1 if half else 2)
        for symbol, usage in used.items():
            assert usage.spilled == 0, (symbol, usage)
            assert usage.shared <= 48 * 1024, (symbol, usage)
