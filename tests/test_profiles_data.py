"""Conversions for a profile that write codes of operands and scores: with ranges of data, and what is so without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import InputError, RefusalError
from softq.profiles import convert_for, judge, load_profile
from tests.profile_cases import FLOATS, Arrays, attention, feed_of, run

TOLERANCES = {
    # Of the weights: half a step of 1/256, and scores of 8 bits over 12 + 7: e^(19 / 255 / 2) - 1 of a weight.
    "cmsis-nn": 0.04,
    "ethos-u": 0.04,
    "vitis-ai": 0.04,
    # Of the output's norm: a score is off by sqrt(2 * 16) * (3.5 / 127) / sqrt(12) / 4, and 8-bit weights and values.
    "onnxruntime-cpu": 0.02,
    "openvino": 0.02,
    # Codes of 16 bits.
    "qnn-htp": 0.001,
    # 1/127 is a coarse step for 16 weights of about 1/16: half of it is a fifteenth of one.
    "tensorrt-int8": 0.05,
    # 3 bits behind the point: each operand is off by 1/32 of itself on average.
    "tensorrt-fp8": 0.08,
}


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected.astype(np.float64)))


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_floats_become_codes_with_the_ranges_of_data(name: str) -> None:
    model, profile = FLOATS[name], load_profile(name)
    feed = feed_of(model)
    judged = judge(model, profile)
    assert [one.taken for one in judged] == ["after convert"]
    computed = name == "onnxruntime-cpu"
    assert [one.needs_data for one in judged] == [not computed]
    converted = convert_for(model, profile, calibration=[feed])
    onnx.checker.check_model(converted.model, full_check=True)
    assert [one.taken for one in judge(converted.model, profile)] == ["as it is"]
    assert len(converted.converted) == 1
    assert 0 < distance(run(converted.model, feed), run(model, feed)) < TOLERANCES[name]
    # Once more there is nothing to do.
    assert convert_for(converted.model, profile, calibration=[feed]).model == converted.model


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_without_data_a_model_stays_unless_scales_can_be_computed(name: str) -> None:
    model, profile = FLOATS[name], load_profile(name)
    converted = convert_for(model, profile)
    if name == "onnxruntime-cpu":
        assert not converted.waiting
        feed = feed_of(model)
        assert 0 < distance(run(converted.model, feed), run(model, feed)) < TOLERANCES[name]
        return
    assert (len(converted.waiting), converted.converted) == (1, ())
    assert [node.op_type for node in converted.model.graph.node] == [node.op_type for node in model.graph.node]
    with pytest.raises(RefusalError, match="give --calibration DATA"):
        convert_for(model, profile, require=True)


def test_the_mean_key_goes_before_keys_are_coded() -> None:
    """Keys of mean 30 and deviation 1: with it in them 8 bits are steps of 0.27, without it of 0.03."""
    model, profile = attention(None, None, factor=True), load_profile("openvino")
    feed = feed_of(model)
    feed["k"] = np.add(feed["k"], np.float32(30), dtype=np.float32)
    converted = convert_for(model, profile, calibration=[feed]).model
    assert [node.op_type for node in converted.graph.node].count("ReduceMean") == 1
    assert distance(run(converted, feed), run(model, feed)) < 0.02
    without = onnx.ModelProto()
    without.CopyFrom(converted)
    smooth = next(node for node in without.graph.node if node.op_type == "Sub")
    mean = next(node for node in without.graph.node if node.op_type == "ReduceMean")
    # With zeros in the place of the mean, and its range, the same codes are coarse.
    coded = next(
        node for node in without.graph.node if node.op_type == "QuantizeLinear" and smooth.output[0] in node.input
    )
    scale = next(node for node in without.graph.node if coded.input[1] in node.output).attribute[0].t
    scale.CopyFrom(onnx.numpy_helper.from_array(np.array(34 / 127, np.float32)))
    smooth.op_type = "Identity"
    del smooth.input[1:]
    without.graph.node.remove(mean)
    assert distance(run(without, feed), run(model, feed)) > 0.05


def test_a_softmax_between_codes_is_of_float16_where_that_is_asked_for() -> None:
    model, profile = attention(None, None, factor=True), load_profile("tensorrt-int8")
    converted = convert_for(model, profile, calibration=[feed_of(model)]).model
    known = onnx.shape_inference.infer_shapes(converted, strict_mode=True).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*known.value_info, *known.output)}
    softmax = next(node for node in converted.graph.node if node.op_type == "Softmax")
    products = [node for node in converted.graph.node if node.op_type == "MatMul"]
    between = [
        softmax.input[0],
        softmax.output[0],
        *(name for node in products for name in (*node.input, *node.output)),
    ]
    assert {types[name] for name in between} == {onnx.TensorProto.FLOAT16}
    # TensorRT wants codes behind the second product, too.
    assert [node.op_type for node in converted.graph.node if products[1].output[0] in node.input] == ["QuantizeLinear"]
    assert converted.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    casts = [node.attribute[0].i for node in converted.graph.node if node.op_type == "Cast"]
    assert casts == [onnx.TensorProto.FLOAT16] * 3 + [onnx.TensorProto.FLOAT]


def masked(low: float) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    masked (float[1, 2, 16, 16] q, float[1, 2, 16, 16] k, float[1, 2, 16, 16] v, bool[1, 1, 16, 16] hidden)
        => (float[1, 2, 16, 16] out)
    <float low = {{{low}}}, float number = {{0.25}}, float none = {{0.0}}>
    {{
        s = MatMul(q, k)
        t = Mul(s, number)
        mask = Where(hidden, low, none)
        x = Add(t, mask)
        p = Softmax(x)
        out = MatMul(p, v)
    }}
    """)


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "openvino", "qnn-htp", "tensorrt-int8", "tensorrt-fp8"])
@pytest.mark.parametrize("low", [-10000.0, -3.4028234663852886e38])
def test_masks_take_no_codes_from_scores(name: str, low: float) -> None:
    model, profile = masked(low), load_profile(name)
    hidden = np.triu(np.ones((16, 16), bool), 1)[None, None]
    rng = np.random.default_rng(5)
    q, k, v = rng.normal(size=(3, 1, 2, 16, 16)).astype(np.float32)
    feed: Arrays = {"q": q, "k": k, "v": v, "hidden": hidden}
    converted = convert_for(model, profile, calibration=[feed])
    assert [one.taken for one in judge(converted.model, profile)] == ["as it is"]
    got, expected = run(converted.model, feed), run(model, feed)
    assert distance(got, expected) < max(TOLERANCES[name], 0.03)
    # The first row sees one key alone: its value.
    assert np.abs(got.astype(np.float64)[0, :, 0] - v[0, :, 0]).max() < (0.3 if name == "tensorrt-fp8" else 0.03)


def test_codes_behind_a_transpose_are_brought_to_the_product() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    turned (float16[1, 2, 16, 16] q, float16[1, 2, 16, 16] k, float16[1, 2, 16, 16] v)
        => (float16[1, 2, 16, 16] out)
    {
        step = Constant <value = float {0.0625}> ()
        unit = Constant <value = float {0.002232142857142857}> ()
        half = Cast <to = 10> (step)
        u = Cast <to = 10> (unit)
        qc = QuantizeLinear <output_dtype = 17> (q, half)
        qd = DequantizeLinear(qc, half)
        kc = QuantizeLinear <output_dtype = 17> (k, half)
        kd = DequantizeLinear(kc, half)
        kt = Transpose <perm = [0, 1, 3, 2]> (kd)
        vc = QuantizeLinear <output_dtype = 17> (v, half)
        vd = DequantizeLinear(vc, half)
        s = MatMul(qd, kt)
        p = Softmax(s)
        w = Identity(p)
        out = MatMul(w, vd)
    }
    """)
    for node in list(model.graph.node):
        if node.op_type == "Cast":
            source = next(one for one in model.graph.node if one.output[0] == node.input[0])
            array = onnx.numpy_helper.to_array(source.attribute[0].t).astype(np.float16)
            source.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(array))
            source.output[0] = node.output[0]
            model.graph.node.remove(node)
    profile = load_profile("tensorrt-fp8")
    before = {one.subject: one.state for one in judge(model, profile)[0].rulings}
    assert before["products"] == "after convert"
    converted = convert_for(model, profile).model
    turn = next(node for node in converted.graph.node if node.op_type == "Transpose")
    assert turn.input[0] == "kc"
    assert [one.taken for one in judge(converted, profile)] == ["as it is"]


def test_ranges_that_data_do_not_give_are_one_line(tmp_path: Path) -> None:
    model, profile = attention(None, None, factor=True), load_profile("openvino")
    feed = feed_of(model)
    feed["v"] = np.full_like(feed["v"], np.inf)
    with pytest.raises(InputError, match=r"make v.* infinite"):
        convert_for(model, profile, calibration=[feed])
    with pytest.raises(InputError):
        convert_for(model, profile, calibration=str(tmp_path / "absent.npz"))


def test_convert_for_takes_data_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = attention(None, None, factor=True)
    onnx.save(model, "model.onnx")
    np.savez("data.npz", allow_pickle=False, **feed_of(model))
    softq = CliRunner().invoke
    text = softq(main, ["inspect", "model.onnx", "--for", "openvino"]).stdout
    assert "after convert, with data" in text
    text = softq(main, ["convert", "model.onnx", "out.onnx", "--for", "openvino"]).stdout
    assert text.count("--calibration DATA") == 1
    assert "converted 0 of 1 softmax for openvino" in text
    done = softq(main, ["convert", "model.onnx", "out.onnx", "--for", "openvino", "--calibration", "data.npz"])
    assert done.exit_code == 0, done.output
    assert "converted 1 of 1 softmax for openvino; wrote out.onnx" in done.stdout
    assert "1 taken as is" in softq(main, ["inspect", "out.onnx", "--for", "openvino"]).stdout
    done = softq(main, ["convert", "model.onnx", "dry.onnx", "--for", "openvino", "--json", "--dry-run"])
    assert json.loads(done.stdout)["converted"] == []
    done = softq(main, ["convert", "model.onnx", "dry.onnx", "--for", "openvino", "--calibration", "none.npz"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(("name", "opset"), [("tensorrt-fp8", 19), ("tensorrt-int8", 19), ("qnn-htp", 17)])
def test_an_old_model_is_raised_to_the_version_that_has_the_codes(name: str, opset: int) -> None:
    model, profile = attention(None, None, factor=True), load_profile(name)
    model.opset_import[0].version, model.ir_version = 17, 8
    feed = feed_of(model)
    converted = convert_for(model, profile, calibration=[feed]).model
    assert converted.opset_import[0].version == opset
    onnx.checker.check_model(converted, full_check=True)
    assert [one.taken for one in judge(converted, profile)] == ["as it is"]
    tolerance = 0.02 if name == "qnn-htp" else TOLERANCES[name]  # Codes of 8 bits: those of 16 came with 21.
    assert 0 < distance(run(converted, feed), run(model, feed)) < tolerance


OPERATORS = {
    "MultiHeadAttention": """
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        whole (float[2, 16, 64] q, float[2, 24, 64] k, float[2, 24, 64] v) => (float[2, 16, 64] out)
        { out = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v) }""",
    "Attention of com.microsoft": """
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        whole (float[2, 16, 64] x, float[64, 192] w, float[192] b) => (float[2, 16, 64] out)
        { out = com.microsoft.Attention <num_heads = 4> (x, w, b) }""",
    "Attention of ONNX": """
        <ir_version: 11, opset_import: ["" : 23]>
        whole (float[1, 4, 16, 16] q, float[1, 2, 24, 16] k, float[1, 2, 24, 16] v) => (float[1, 4, 16, 16] out)
        { out = Attention <is_causal = 1> (q, k, v) }""",
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", ["onnxruntime-cpu", "openvino", "tensorrt-int8", "vitis-ai"])
def test_operators_of_attention_are_opened_and_coded(operator: str, name: str) -> None:
    model, profile = onnx.parser.parse_model(OPERATORS[operator]), load_profile(name)
    rng = np.random.default_rng(2)
    feed: Arrays = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        feed[value.name] = (rng.normal(size=shape) * (0.2 if value.name == "w" else 1)).astype(np.float32)
    constant = operator.startswith("Attention of com")
    if constant:
        # Weights are part of the model; their first axis counts no samples.
        for name_of in ("w", "b"):
            model.graph.initializer.append(onnx.numpy_helper.from_array(feed.pop(name_of), name_of))
        del model.graph.input[1:]
    converted = convert_for(model, profile, calibration=[feed])
    assert [one.taken for one in judge(converted.model, profile)] == ["as it is"]
    kinds = [node.op_type for node in converted.model.graph.node]
    assert not {"Attention", "MultiHeadAttention"} & set(kinds)
    assert 0 < distance(run(converted.model, feed), run(model, feed)) < 0.06


def test_exponentials_of_rows_that_are_masked_altogether_stay_zeros_or_nan() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    guarded (float[1, 2, 16, 16] q, float[1, 2, 16, 16] k, float[1, 2, 16, 16] v, float[1, 1, 16, 16] mask)
        => (float[1, 2, 16, 16] out)
    <float none = {0.0}>
    {
        s = MatMul(q, k)
        x = Add(s, mask)
        p = Softmax(x)
        GUARD
        out = MatMul(w, v)
    }
    """
    rng = np.random.default_rng(6)
    q, k, v = rng.normal(size=(3, 1, 2, 16, 16)).astype(np.float32)
    mask = np.where(np.arange(16)[:, None] == 3, -np.inf, 0).astype(np.float32) * np.ones((1, 1, 16, 16), np.float32)
    feed: Arrays = {"q": q, "k": k, "v": v, "mask": np.nan_to_num(mask, nan=0.0, neginf=-np.inf)}
    profile = load_profile("onnxruntime-cpu")
    for guard, expected in (("w = Identity(p)", np.nan), ("lost = IsNaN(p)\nw = Where(lost, none, p)", 0.0)):
        model = onnx.parser.parse_model(text.replace("GUARD", guard))
        converted = convert_for(model, profile, calibration=[feed])
        assert len(converted.converted) == 1
        got = run(converted.model, feed).astype(np.float64)
        np.testing.assert_array_equal(got[0, :, 3], np.full((2, 16), expected))
        others = np.delete(got, 3, axis=2)
        assert distance(others, np.delete(run(model, feed), 3, axis=2)) < 0.03


def test_masks_fit_float16() -> None:
    """The least float32 would become -inf, and a row of them NaN; onnxruntime's CPU provider adds in float32."""
    q, k, v = np.random.default_rng(7).normal(size=(3, 1, 2, 16, 16)).astype(np.float32)
    hidden = np.zeros((1, 1, 16, 16), bool)
    hidden[..., 3, :] = True
    feed: Arrays = {"q": q, "k": k, "v": v, "hidden": hidden}
    converted = convert_for(masked(-3.4028234663852886e38), load_profile("tensorrt-int8"), calibration=[feed]).model
    made = {name: node for node in converted.graph.node for name in node.output}
    add = next(node for node in converted.graph.node if node.op_type == "Add")
    cut = made[made[add.input[1]].input[0]]
    assert cut.op_type == "Clip"
    limits = [float(onnx.numpy_helper.to_array(made[name].attribute[0].t)) for name in cut.input[1:]]
    assert limits == [-32768.0, 32768.0]
    assert np.isfinite(run(converted, feed).astype(np.float64)).all()
