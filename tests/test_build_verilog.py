"""`softq build --target verilog`: the cores of a converted model compute what its functions do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from softq.cli import main
from softq.errors import RefusalError, UsageError
from softq.methods import METHODS
from softq.modelfile import save
from softq.plans import Plan
from softq.rowprog import DType, run
from tests.simulators import compile_core, simulate

SMALL, LARGE, LENGTH = 0.0625, 0.125, 24
SHAPE = f"[1, 2, rows, {LENGTH}]"
MODEL = f"""<ir_version: 10, opset_import: ["": 21]>
    scores (int8{SHAPE} a, uint8{SHAPE} b, int8{SHAPE} c, float[1, 2, rows, free] d) =>
        (float{SHAPE} p, float{SHAPE} q, float{SHAPE} r, float[1, 2, rows, free] s)
    <float small = {{{SMALL}}}, float large = {{{LARGE}}}, uint8 middle = {{128}}> {{
      x = DequantizeLinear(a, small)
      p = Softmax<axis = -1>(x)
      y = DequantizeLinear(b, large, middle)
      q = Softmax<axis = -1>(y)
      z = DequantizeLinear(c, small)
      r = Softmax<axis = -1>(z)
      s = Softmax<axis = -1>(d)
    }}"""
ONE = f"""<ir_version: 10, opset_import: ["": 21]>
    attention (int8{SHAPE} a, float[1, 2, {LENGTH}, 4] v) => (float[1, 2, rows, 4] out) <float small = {{{SMALL}}}> {{
      x = DequantizeLinear(a, small)
      p = Softmax<axis = -1>(x)
      out = MatMul(p, v)
    }}"""


def converted(method: str = "deferred-log", text: str = MODEL, **settings: int | float | str) -> onnx.ModelProto:
    return softq.convert(parser.parse_model(text), method=method, settings=settings, all_sites=True).model


def fitted(clip: float | tuple[float, ...], text: str = ONE) -> onnx.ModelProto:
    """Return the model with a method of which a number is fitted, as a plan says it."""
    return with_numbers("exaq", {"clip": clip}, text)


def with_numbers(method: str, numbers: Mapping[str, float | tuple[float, ...]], text: str = ONE) -> onnx.ModelProto:
    """Return the model with a method of which these numbers are fitted."""
    model = parser.parse_model(text)
    plan: Plan = softq.convert(model, method=method, all_sites=True).plan
    scopes = {name: "head" if isinstance(value, tuple) else "site" for name, value in numbers.items()}
    sites = [replace(s, options={**s.options, **scopes}, fitted=numbers) for s in plan.sites]
    return softq.convert(model, plan=replace(plan, sites=tuple(sites))).model


def test_softmaxes_of_one_function_have_cores_by_the_scale_of_their_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "quantized.onnx"
    save(converted(), model)
    with pytest.raises(SystemExit, match="0"):
        main(["build", str(model), str(tmp_path / "cores"), "--target", "verilog,lanes=2"])
    said = capsys.readouterr()
    assert "length of its rows is not known in the model; length=N gives the longest" in said.err
    assert said.err.count("\n") == 1
    manifest = json.loads((tmp_path / "cores" / "manifest.json").read_text())
    cores = {core["module"]: core for core in manifest["cores"]}
    found = {name: (core["sites"], core["options"]["step"], core["scores"]) for name, core in cores.items()}
    assert found == {"deferred_log": (["p", "r"], SMALL, "i8"), "deferred_log_2": (["q"], LARGE, "u8")}
    assert [(each["sites"], each["function"]) for each in manifest["refused"]] == [
        (["s"], cores["deferred_log"]["function"])
    ]
    for name in cores:
        assert f"{name}  " in said.out
        done = simulate(tmp_path / "cores", compile_core(tmp_path / "cores", name, "iverilog"), valid=70, ready=60)
        assert done.startswith("PASS"), done


@pytest.mark.parametrize("method", ["deferred-log", "ita", "tflite-int8"])
def test_the_program_of_a_core_computes_what_the_function_in_the_model_does(tmp_path: Path, method: str) -> None:
    """onnxruntime runs the function on dequantized scores; the core's program is for their codes."""
    # The others round float scores to their step.
    model = converted(method) if method == "deferred-log" else converted(method, step=SMALL)
    built = softq.build(model, tmp_path / "cores", target="verilog,length=64")
    core = next(core for core in built.manifest["cores"] if "p" in core["sites"])
    random = np.random.default_rng(0)
    codes = np.clip(random.normal(size=(1, 2, 50, LENGTH)) * 30, -128, 127).astype(np.int8)
    nothing = {"b": codes.astype(np.uint8), "c": codes, "d": codes.astype(np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["p"], {"a": codes, **nothing})
    chosen = METHODS.get(method)
    out = run(chosen.program(chosen.configure(core["options"]), scores=DType.I8), codes)
    found = np.divide(out["weights"], out["normalizer"], dtype=np.float64)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-6)


def test_cores_leave_out_numbers_that_no_row_changes(tmp_path: Path) -> None:
    """By an option of the target, each core its own."""
    model = converted("ita", step=SMALL, output="uint8")
    for constants in ("yes", "no"):
        built = softq.build(model, tmp_path / constants, target=f"verilog,length=64,constants={constants}")
        for core in built.manifest["cores"]:
            assert core["constants"] == {"normalizer": 256}
            assert any(port["name"] == "n_axis_tdata" for port in core["ports"]) == (constants == "yes")


def test_fitted_numbers_are_constants_of_a_core(tmp_path: Path) -> None:
    built = softq.build(fitted(4.5), tmp_path / "cores", target="verilog")
    first = built.manifest["cores"][0]
    assert (first["options"]["clip"], first["fitted"]) == (4.5, {"clip": 4.5})
    assert "table_0" in (tmp_path / "cores" / "exaq.v").read_text()
    simulated = simulate(tmp_path / "cores", compile_core(tmp_path / "cores", "exaq", "iverilog"))
    assert simulated.startswith("PASS"), simulated


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        ("exaq", {"clip": (4.5, 5.75)}),
        ("deferred-log", {"r": (20.0, 23.0), "first": (0.2, 0.25), "shift": (1.0, 1.1), "weight_bits": (8.0, 6.0)}),
    ],
)
def test_numbers_that_are_fitted_per_head_are_tables_of_a_core(
    tmp_path: Path, method: str, numbers: Mapping[str, tuple[float, float]]
) -> None:
    built = softq.build(with_numbers(method, numbers), tmp_path / "cores", target="verilog,registers=yes")
    (core,) = built.manifest["cores"]
    assert (core["heads"], core["fitted"]) == (2, {name: list(values) for name, values in numbers.items()})
    tables = {table["name"]: table["initial"] for table in core["registers"]["tables"]}
    chosen = METHODS.get(method)
    codes = np.arange(-128, 128).astype(np.int8)  # every distance from the greatest
    for head in range(2):
        options = chosen.configure({**core["options"], **{name: values[head] for name, values in numbers.items()}})
        out = run(chosen.program(options, scores=DType.I8), codes[None])
        np.testing.assert_array_equal(out["codes"][0], np.array(tables["codes"][head])[127 - codes.astype(int)])
        np.testing.assert_array_equal(out["weights"][0], np.array(tables["weights"][head])[out["codes"][0]])
    command = compile_core(tmp_path / "cores", core["module"], "iverilog")
    simulated = simulate(tmp_path / "cores", command, valid=80, ready=60)
    assert simulated.startswith("PASS"), simulated


def test_numbers_that_are_not_those_of_the_plan_are_refused(tmp_path: Path) -> None:
    model = fitted(4.5)
    (call,) = [node for node in model.graph.node if node.domain == "softq"]
    (rate,) = [node.attribute[0].t for node in model.graph.node if node.output[0] == call.input[1]]
    rate.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(rate) * 2, rate.name))
    with pytest.raises(RefusalError, match="its fitted numbers are not those of the plan"):
        softq.build(model, tmp_path / "cores", target="verilog,length=24")


REFUSED: Mapping[str, tuple[Callable[[], onnx.ModelProto], str, str]] = {
    "floats": (lambda: converted("exact-online"), "", "scores of method exact-online are floats"),
    "weights": (lambda: converted("qlinear", ONE, step=SMALL), "", r"program qlinear: .* is a float"),
    "per head": (lambda: fitted((4.5, 5.0)), "", "clip is fitted per head, 2 numbers; a core without registers"),
    "step": (lambda: converted("ita", ONE, step=0.5), "", "scores is 0.0625 and step of its method is 0.5"),
    "asked": (lambda: converted(text=ONE), "step=0.5", "scale of its scores is 0.0625 and step of the target is 0.5"),
    "type": (lambda: converted(text=ONE), "scores=uint8", "its scores are i8; u8 is asked for"),
    "length": (lambda: converted(text=ONE), "length=20", "length of its rows is 24; 20 is asked for"),
    "scan": (lambda: converted("edge-moe", ONE), "lanes=2", "a scan takes one element after the other; lanes is 2"),
    "no function": (lambda: parser.parse_model(ONE), "", "calls no function of the domain softq"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_core_is_one_line_that_names_the_value(tmp_path: Path, case: str) -> None:
    make, options, message = REFUSED[case]
    with pytest.raises(RefusalError, match=message) as raised:
        softq.build(make(), tmp_path / "cores", target=f"verilog,{options}".strip(","))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "cores").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("lanes=3", "lanes is 3; allowed is 1, 2, 4, 8"),
        ("lanes=x", "lanes is 'x'; expected a whole number"),
        ("length=0", "length is 0; allowed is 1 to"),
        ("step=x", "step is 'x'; expected a number"),
        ("step=0", "step is 0; it must be a number above 0"),
        ("step=nan", "step is nan; it must be a number above 0"),
        ("scores=float32", "scores are 'float32'; allowed is int8 or uint8"),
        ("clock=0", "clock is 0; allowed is up to 2000 MHz"),
        ("reset=maybe", "reset is 'maybe'; allowed is yes or no"),
        ("registers=1", "registers is '1'; allowed is yes or no"),
        ("speed=2", "has no option 'speed'; its options are: lanes, length"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        softq.build(converted(), tmp_path / "cores", target=f"verilog,{options}")


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two processes whose sets and dictionaries are in other orders write the same files."""
    save(converted(), tmp_path / "quantized.onnx")
    for seed in "12":
        target = "verilog,length=24,step=0.125"
        command = [
            sys.executable,
            "-m",
            "softq",
            "build",
            tmp_path / "quantized.onnx",
            tmp_path / seed,
            "--target",
            target,
        ]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "2").iterdir())
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
