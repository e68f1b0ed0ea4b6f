"""`softq audit` finds each kind of fault, and none where there is none; it knows methods by their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from softq.audit import Encoding, audit, audit_recorded
from softq.audit.records import Audit
from softq.cli import main
from softq.errors import InputError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, run

BROKEN = Path(__file__).with_name("broken_softmax.py")


def look(out: Path, function: str, dtype: str = "float32", **given: object) -> Audit:
    return audit("function", out, options={"of": f"{BROKEN}:{function}"}, dtype=dtype, longest=512, length=40, **given)  # type: ignore[arg-type]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    ("function", "dtype", "kinds"),
    [
        ("wraps", "int8", {"values": "wraps"}),
        ("off", "float32", {"values": "value"}),
        ("short_rows", "float32", {"lengths": "length"}),
        ("last_axis", "float32", {"axes": "axis"}),
        ("neighbours", "float32", {"batches": "batch"}),
        ("no_nan", "float32", {"special-values": "special"}),
        ("clipped_mask", "float32", {"masks": "mask", "values": "value"}),
        ("shuffled", "float32", {"repeats": "repeat"}),
        ("swaps", "float32", {"values": "order"}),
        ("ends", "float32", {"lengths": "length"}),
        ("refuses", "float32", {"lengths": "length"}),
        ("transposed", "float32", {"axes": "axis"}),
    ],
)
def test_each_kind_of_fault_is_found(function: str, dtype: str, kinds: dict[str, str], tmp_path: Path) -> None:
    made = look(tmp_path / "out", function, dtype, only=tuple(kinds))
    for name, kind in kinds.items():
        step = made.step(name)
        assert step is not None
        assert kind in {fault.kind for fault in step.faults}, [fault.text for fault in made.faults]
    for fault in made.faults:
        folder = tmp_path / "out" / fault.folder
        with np.load(folder / "data.npz") as data:
            assert data["scores"].shape == fault.shape
        assert fault.text in (folder / "README.md").read_text(encoding="utf-8")


def test_a_call_without_an_answer_is_given_up(tmp_path: Path) -> None:
    made = look(tmp_path / "out", "hangs", timeout=2.0, only=("lengths",))
    assert [fault.kind for fault in made.faults] == ["length"]
    assert "no answer within 2 s" in made.faults[0].text
    assert made.faults[0].shape[-1] > 300


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_exact_softmax_has_no_fault(dtype: str, tmp_path: Path) -> None:
    made = look(tmp_path / "out", "right", dtype)
    assert not made.faults
    assert not made.missing
    values = made.step("values")
    assert values is not None
    # Rounding to the nearest alone.
    assert values.facts["pairs"]["greatest_error"] <= 0.5
    assert values.facts["pairs"]["order_lost"] == 0


def test_the_smallest_case_of_a_wrapped_code_is_one_score(tmp_path: Path) -> None:
    made = look(tmp_path / "out", "wraps", "int8", only=("values",))
    with np.load(tmp_path / "out" / made.faults[0].folder / "data.npz") as data:
        assert data["found"].min() == -128
        assert data["exact"].flat[int(np.argmin(data["found"]))] == 127
    assert made.faults[0].count > 5000


@pytest.mark.slow
def test_an_approximation_is_no_fault_of_lengths_axes_or_masks_and_its_table_is_read_off(tmp_path: Path) -> None:
    made = look(tmp_path / "out", "coarse", "int8")
    assert {fault.kind for fault in made.faults} == {"value"}
    table = made.step("table")
    assert table is not None
    d = np.arange(256)
    expected = np.rint(2.0 ** (-np.floor(d * 0.05 * 2 / np.log(2)) / 2) * 255) / 255
    np.testing.assert_allclose(table.facts["weights"], expected, atol=0.01)
    assert table.facts["rounding"] == "down"
    assert table.facts["equal"] > 0.95
    # The method that was written weighs as the table does.
    method = METHODS.get(str(tmp_path / "out" / "table_method.py"))
    program = method.program(method.configure({}), scores=DType.I8)
    out = run(program, np.array([[100, 90, 60]], np.int8))
    np.testing.assert_allclose(out["weights"][0] / 2**15, np.array(table.facts["weights"])[[0, 10, 40]], atol=2**-15)


@pytest.mark.slow
def test_a_method_is_known_by_its_results(tmp_path: Path) -> None:
    method = METHODS.get("index-softmax")
    program = method.program(method.configure({"step": 0.05, "bits": 4, "output": "uint8"}), scores=DType.I8)
    x = np.stack([a.ravel() for a in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))], 1).astype(np.int8)
    rng = np.random.default_rng(1)
    y = np.clip(np.rint(rng.normal(size=(200, 50)) * 40), -128, 127).astype(np.int8)
    arrays: dict[str, np.ndarray] = {}
    for name, rows in (("pairs", x), ("rows", y)):
        out = run(program, rows)
        arrays[f"scores.{name}"] = rows
        arrays[f"result.{name}"] = out["weights"].astype(np.uint8)
        one = int(out["normalizer"].flat[0])
    np.savez(tmp_path / "device.npz", allow_pickle=False, **arrays)
    made = audit_recorded(
        tmp_path / "device.npz",
        tmp_path / "out",
        scores=Encoding("int8", 0.05, 0),
        result=Encoding("uint8", 1 / one, 0),
    )
    candidates = made.steps[-1].facts["candidates"]
    assert candidates[0]["method"] == "index-softmax"
    assert candidates[0]["is_equal"]
    assert candidates[0]["options"]["bits"] == 4
    # One code that is another one, and it is no longer equal.
    arrays["result.rows"] = arrays["result.rows"] ^ np.eye(1, 50, dtype=np.uint8)
    np.savez(tmp_path / "device.npz", allow_pickle=False, **arrays)
    made = audit_recorded(
        tmp_path / "device.npz",
        tmp_path / "again",
        scores=Encoding("int8", 0.05, 0),
        result=Encoding("uint8", 1 / one, 0),
    )
    assert not made.steps[-1].facts["candidates"][0]["is_equal"]


def test_rows_may_lie_along_another_axis(tmp_path: Path) -> None:
    assert not look(tmp_path / "first", "right", axis=-2, only=("values", "lengths", "batches")).faults
    made = look(tmp_path / "last", "last_axis", axis=-2, only=("values",))
    assert "value" in {fault.kind for fault in made.faults}


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begun = look(out, "right", budget=0.0)
    assert not begun.steps
    assert "values" in begun.missing
    some = ("values", "masks")
    whole = look(out, "right", only=some)
    assert not whole.missing
    before = (out / "steps.jsonl").read_text(encoding="utf-8")
    # A kill in the middle of a line.
    (out / "steps.jsonl").write_text(before[:-20], encoding="utf-8")
    again = look(out, "right", only=some)
    assert [step.name for step in again.steps] == [step.name for step in whole.steps]
    assert again.steps[0].seconds == whole.steps[0].seconds
    with pytest.raises(UsageError, match="holds an audit with options"):
        look(out, "wraps", "float32", only=some)


@pytest.mark.slow
def test_onnxruntime_and_litert_are_looked_at_by_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["audit", "--runtime", "onnxruntime", "--dtype", "int8", "--longest", "256", "--json", "--out",
               str(tmp_path / "ort")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["steps"][-2]["facts"]["candidates"][0]["method"] == "qlinear"
    page = (tmp_path / "ort" / "audit.html").read_text(encoding="utf-8")
    assert "No fault found" in page


@pytest.mark.slow
def test_a_runtime_that_ends_its_process_is_reproduced_by_the_program_of_the_fault(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    made = audit("litert", tmp_path / "out", options={"kernels": "reference"}, dtype="int8")
    assert [fault.kind for fault in made.faults] == ["length"]
    assert made.faults[0].shape == (1, 512)
    candidate = made.steps[-2].facts["candidates"][0]
    assert (candidate["method"], candidate["is_equal"]) == ("tflite-int8", True)
    folder = tmp_path / "out" / made.faults[0].folder
    done = subprocess.run([sys.executable, "reproduce.py"], cwd=folder, capture_output=True, check=False)
    assert done.returncode < 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runtime", "nothing"], "unknown runtime 'nothing'"),
        (["--runtime", "onnxruntime,colour=red"], "no option 'colour'"),
        (["--runtime", "onnxruntime", "--dtype", "int4"], "dtype is 'int4'"),
        (["--runtime", "torch", "--dtype", "int8"], "takes scores of float32"),
        (["--runtime", "onnxruntime", "--scores", "scale=0.1"], "has no scale"),
        (["--runtime", "onnxruntime", "--dtype", "int8", "--scores", "scale=x"], "expected a number"),
        (["--runtime", "onnxruntime", "--python", "/no/python"], "cannot start"),
        (["--runtime", "absent:function"], "cannot"),
        (["--recorded", "absent.npz"], "absent.npz"),
        ([], "one of --runtime and --recorded"),
        (["--runtime", "onnxruntime", "--length", "0"], "length is 0"),
        (["--runtime", "onnxruntime", "--only", "colours"], "unknown step 'colours'"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["audit", *arguments, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_softmaxes_that_softq_builds_have_no_fault(target: str, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    wrapper = tmp_path / "built.py"
    wrapper.write_text(
        f"""
import numpy as np
import softq
from onnx import helper, TensorProto

made = {{}}


def softmax(x, axis):
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1)).reshape(-1, x.shape[axis])
    if rows.shape not in made:
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, rows.shape)
        node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
        graph = helper.make_graph([node], "rows", [value("x")], [value("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        folder = {str(tmp_path)!r} + f"/built{{len(made)}}"
        softq.build(model, folder, target={target!r})
        made[rows.shape] = softq.load(folder)
    found = np.asarray(made[rows.shape]({{"x": rows}})["y"])
    moved = np.moveaxis(x, axis, -1)
    return np.ascontiguousarray(np.moveaxis(found.reshape(moved.shape), -1, axis))
""",
        encoding="utf-8",
    )
    made = audit(
        "function", tmp_path / "out", options={"of": f"{wrapper}:softmax"}, length=61, longest=256, timeout=300
    )
    assert not made.faults, [fault.text for fault in made.faults]
    candidates = made.steps[-2].facts["candidates"]
    assert candidates[0]["greatest"] <= 32  # units of 2^-23: what sums of floats in another order differ by


def test_recorded_arrays_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "device.npz", scores=np.zeros((2, 3), np.int8), result=np.zeros((3, 2), np.int8))
    with pytest.raises(InputError, match="of its shape"):
        audit_recorded(tmp_path / "device.npz", tmp_path / "out")
