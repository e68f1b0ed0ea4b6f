"""Profiles on the real thing: LiteRT, CMSIS-NN, OpenVINO's CPU plug-in, and onnxruntime's CPU provider."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from softq.profiles import convert_for, judge, load_profile
from softq.profiles.checks import Output
from tests import litert
from tests.profile_cases import CASES, INT8, UINT8, alone, attention, feed_of, operator


@pytest.mark.parametrize(("kind", "scale", "zero"), [("int8", 1 / 256, -128), ("int16", 1 / 32768, 0)])
def test_litert_computes_the_codes_that_its_profile_asks_for(kind: str, scale: float, zero: int) -> None:
    pytest.importorskip("ai_edge_litert")
    dtype = np.dtype(kind).type
    profile = load_profile("litert")
    assert judge(alone(kind, (kind, scale, zero)), profile)[0].taken == "as it is"
    step, spread = (0.0625, 64) if kind == "int8" else (2.0**-12, 16384)
    x = np.random.default_rng(1).integers(-spread, spread, size=(50, 16)).astype(dtype)
    got = (litert.softmax(x, step, dtype, scale, zero).astype(np.float64) - zero) * scale
    e = np.exp((x - x.max(-1, keepdims=True).astype(np.float64)) * step)
    # One code and a half: the kernels round the exponentials, and 1.0 has no code.
    assert np.abs(got - e / e.sum(-1, keepdims=True)).max() <= (1.5 / 256 if kind == "int8" else 8 / 32768)


def test_litert_refuses_what_its_profile_refuses() -> None:
    pytest.importorskip("ai_edge_litert")
    x = np.zeros((1, 4), np.int16)
    with pytest.raises(RuntimeError):
        litert.softmax(x, 2.0**-12, np.int16, 1 / 32768, 5)
    rulings = judge(alone("int16", ("int16", 1 / 32768, 5)), load_profile("litert"))[0].rulings
    assert [one.subject for one in rulings if one.state != "met"] == ["output"]


# In a process of its own: with OpenVINO in it, one that catches SIGTERM later ends by a segmentation fault.
_OPENVINO = """
import sys
import openvino
for path in sys.argv[1:]:
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    steps = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    print([info["runtimePrecision"].astype(str) for info in steps if info["layerType"].astype(str) == "Subgraph"][-1])
"""


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs openvino")
def test_openvino_runs_on_integers_what_its_profile_takes(tmp_path: Path) -> None:
    profile, cases = load_profile("openvino"), CASES["openvino"]
    floats = attention(None, None, factor=True)
    written = convert_for(floats, profile, calibration=[feed_of(floats)]).model
    after = convert_for(cases.after, profile).model
    paths = [tmp_path / f"{number}.onnx" for number in range(4)]
    for path, model in zip(paths, (cases.taken, after, written, floats), strict=True):
        onnx.save(model, path)
    done = subprocess.run([sys.executable, "-c", _OPENVINO, *paths], capture_output=True, text=True, check=True)
    # The plug-in makes one step of both products and the softmax, the last but the output.
    assert done.stdout.split() == ["i8", "i8", "i8", "f32"]


def test_codes_that_a_model_is_given_are_not_quantized_by_it() -> None:
    given = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    given (int8[1, 2, 4, 8] q, int8[1, 2, 8, 6] k, int8[1, 2, 6, 8] v) => (float[1, 2, 4, 8] out)
    <float step = {0.0625}>
    {
        qd = DequantizeLinear(q, step)
        kd = DequantizeLinear(k, step)
        vd = DequantizeLinear(v, step)
        s = MatMul(qd, kd)
        p = Softmax(s)
        out = MatMul(p, vd)
    }
    """)
    rulings = [ruling for ruling in judge(given, load_profile("openvino"))[0].rulings if ruling.state != "met"]
    assert [ruling.subject for ruling in rulings] == ["products"]
    assert rulings[0].found.startswith("queries int8 that the model does not make, keys")


def test_cmsis_nn_gave_the_codes_that_its_profile_asks_for() -> None:
    """tests/test_mcu_cmsis_nn.py holds these codes against a hash of what arm_softmax_s8 gave."""
    pytest.importorskip("tvm")
    from benchmarks.mcu.cmsis_nn import SCALE, ours, rows

    rules = [rule.check for rule in load_profile("cmsis-nn").softmax if isinstance(rule.check, Output)]
    encoding = next(one for check in rules for one in check.encodings if (one.scores, one.dtype) == ("int8", "int8"))
    assert encoding.scale is not None
    assert encoding.zero_point is not None
    for x in rows():
        got = (ours(x).astype(np.float64) - encoding.zero_point) * float(encoding.scale)
        e = np.exp((x - x.max(-1, keepdims=True).astype(np.float64)) * SCALE)
        # Half a code, and 1.0 has none: another scale or zero point is further off.
        assert np.abs(got - e / e.sum(-1, keepdims=True)).max() <= 1.01 / 256


# onnxruntime


LEVELS = {name: getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{name}")
          for name in ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")}  # fmt: skip


def taken(model: onnx.ModelProto, folder: Path, level: str = "ENABLE_ALL") -> list[str]:
    """Return the operators that onnxruntime makes of a model for its CPU provider."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = LEVELS[level], 4
    options.optimized_model_filepath = str(folder / f"{level}.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(folder / f"{level}.onnx").graph.node]


def result(model: onnx.ModelProto, feed: dict[str, np.ndarray], level: str) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = LEVELS[level], 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0], np.float64)


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        (alone("uint8", ("uint8", 1 / 256, 0)), True),
        (alone("int8", ("int8", 1 / 256, -128)), True),
        (alone("int8", ("int8", 1 / 256, -128), axis=1), True),
        (alone("int8", ("int8", 1 / 127, 0)), True),
        (alone("uint16", ("uint16", 1 / 65536, 0)), False),
        (alone("uint8", ("int8", 1 / 256, -128)), False),
        (alone("uint8", None), False),
    ],
)
def test_onnxruntime_has_an_integer_kernel_for_the_softmaxes_that_its_profile_takes(
    model: onnx.ModelProto, kernel: bool, tmp_path: Path
) -> None:
    assert (taken(model, tmp_path) == ["QLinearSoftmax"]) == kernel
    assert (judge(model, load_profile("onnxruntime-cpu"))[0].taken == "as it is") == kernel
    if kernel:
        assert taken(model, tmp_path, "ENABLE_BASIC") == ["DequantizeLinear", "Softmax", "QuantizeLinear"]
        assert taken(model, tmp_path, "ENABLE_EXTENDED") == ["QLinearSoftmax"]


def test_onnxruntime_rounds_the_inverse_of_a_scale_down() -> None:
    feed = {"scores": np.array([[[10, 9, 5, 0]]], np.int8)}
    for scale, equal in ((1 / 255, False), (1 / 127, True)):
        model = alone("int8", ("int8", scale, -128 if not equal else 0), shape="1, 1, 4")
        found = [result(model, feed, level) for level in ("DISABLE_ALL", "ENABLE_ALL")]
        assert np.array_equal(found[0], found[1]) == equal
    judged = judge(alone("int8", ("int8", 1 / 255, -128)), load_profile("onnxruntime-cpu"))
    assert [one.subject for one in judged[0].rulings if one.state == "after convert"] == ["output"]


@pytest.mark.parametrize("floats", [attention(None, None), attention(None, None, factor=True)])
@pytest.mark.parametrize("calibrated", [False, True])
def test_onnxruntime_runs_converted_attentions_on_integers(
    floats: onnx.ModelProto, calibrated: bool, tmp_path: Path
) -> None:
    profile, feed = load_profile("onnxruntime-cpu"), feed_of(floats)
    data = [feed] if calibrated else None
    converted = convert_for(floats, profile, calibration=data)
    assert [one.taken for one in converted.converted] == ["after convert"]
    assert not converted.waiting
    kinds = taken(converted.model, tmp_path)
    assert kinds.count("MatMulIntegerToFloat") == 2
    assert "MatMul" not in kinds
    expected = result(floats, feed, "DISABLE_ALL")
    # A score is off by sqrt(2 * 16) * step / sqrt(12) = 0.045 with a step of 3.5 / 127, and so is each weight.
    for level in LEVELS:
        error = np.linalg.norm(result(converted.model, feed, level) - expected) / np.linalg.norm(expected)
        assert 0 < error < 0.045


def test_codes_of_int8_in_front_of_an_operator_are_not_taken_by_onnxruntime(tmp_path: Path) -> None:
    assert "Attention" in taken(operator(), tmp_path)
    assert judge(operator(), load_profile("onnxruntime-cpu"))[0].taken == "no"


def test_onnxruntime_takes_codes_of_16_bits_and_of_int8_in_front_of_a_product_as_floats(tmp_path: Path) -> None:
    for kind in (INT8, 4):
        assert "MatMul" in taken(attention(kind, (kind, 1 / 127)), tmp_path)
        assert judge(attention(kind, (kind, 1 / 127)), load_profile("onnxruntime-cpu"))[0].taken == "no"
    assert "MatMul" not in taken(attention(UINT8, (UINT8, 1 / 255)), tmp_path)
    assert judge(attention(UINT8, (UINT8, 1 / 255)), load_profile("onnxruntime-cpu"))[0].taken == "as it is"


def test_exponentials_keep_what_codes_of_long_rows_lose() -> None:
    """1,024 keys whose weights are all below half a code of 1/256: onnxruntime's own form gives zeros."""
    rng = np.random.default_rng(3)
    feed = {name: rng.normal(size=shape).astype(np.float32) for name, shape in
            (("q", (1, 2, 1024, 16)), ("k", (1, 2, 16, 1024)), ("v", (1, 2, 1024, 16)))}  # fmt: skip
    feed["v"] += 1
    floats = attention(None, None, length=1024, factor=True)
    coded = attention(UINT8, (UINT8, 1 / 256), length=1024, factor=True)
    expected = result(floats, feed, "DISABLE_ALL")
    written = convert_for(floats, load_profile("onnxruntime-cpu"), calibration=[feed]).model
    errors = [np.linalg.norm(result(model, feed, "ENABLE_ALL") - expected) / np.linalg.norm(expected)
              for model in (written, coded)]  # fmt: skip
    assert errors[0] < 0.02
    assert errors[1] > 5 * errors[0]
