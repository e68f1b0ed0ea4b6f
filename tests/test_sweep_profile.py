"""`softq sweep --for`: what a device asks for as rows beside the float model and the methods of its kernels."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.errors import UsageError
from softq.profiles import convert_for, load_profile
from softq.sweeps import run
from softq.sweeps.profiled import with_codes
from tests.profile_cases import attention, feed_of
from tests.profile_cases import run as run_model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An attention of floats as model.onnx, and random inputs for it as data.npz, in the current folder."""
    monkeypatch.chdir(tmp_path)
    model = attention(None, None, factor=True)
    onnx.save(model, "model.onnx")
    np.savez("data.npz", allow_pickle=False, **feed_of(model))
    return tmp_path


def sweep(*arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["sweep", "model.onnx", "--data", "data.npz", "--metric", "relative-error", "--out", "out", *arguments]
    )


def test_each_type_of_codes_is_a_row_with_the_error_of_the_converted_model(here: Path) -> None:
    done = sweep("--for", "qnn-htp", "--calibration", "data.npz", "--json")
    assert done.exit_code == 0, done.output
    outcomes = json.loads(done.stdout)["outcomes"]
    assert [one["setting"]["method"] for one in outcomes] == ["for qnn-htp"] * 2
    model, profile = onnx.load("model.onnx"), load_profile("qnn-htp")
    feed = feed_of(model)
    exact = run_model(model, feed).astype(np.float64)

    def error_of(made: onnx.ModelProto) -> float:
        return float(np.linalg.norm(run_model(made, feed).astype(np.float64) - exact) / np.linalg.norm(exact))

    for one in outcomes:
        kind = one["setting"]["options"]["codes"]
        converted = convert_for(model, with_codes(profile, kind), calibration=[feed]).model
        kinds = {value.type.tensor_type.elem_type for value in converted.graph.value_info}
        assert getattr(onnx.TensorProto, kind.upper()) in kinds
        assert one["metric"]["value"] == pytest.approx(error_of(converted), rel=1e-3)
    assert outcomes[0]["setting"]["options"] == {"codes": "uint16"}
    assert outcomes[0]["metric"]["value"] < outcomes[1]["metric"]["value"] / 10
    with Path("out/report.csv").open(encoding="utf-8") as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"for qnn-htp"}
    assert "for qnn-htp codes=uint8" in Path("out/report.html").read_text(encoding="utf-8")


def test_methods_are_those_of_the_profiles_kernels_unless_others_are_named(here: Path) -> None:
    text = sweep("--for", "onnxruntime-cpu").stdout
    assert "\nqlinear " in text
    assert "\nfor onnxruntime-cpu codes=uint8 " in text
    text = sweep("--for", "onnxruntime-cpu", "--methods", "exact", "--cost", "verilog", "--time", "--force").stdout
    assert "\nexact " in text
    assert "qlinear" not in text
    assert "\nfor onnxruntime-cpu codes=uint8 " in text


def test_a_sweep_of_a_profile_goes_on_and_knows_its_rules(here: Path) -> None:
    first = sweep("--for", "onnxruntime-cpu", "--json")
    assert json.loads(sweep("--for", "onnxruntime-cpu", "--json").stdout) == json.loads(first.stdout)
    done = sweep("--methods", "qlinear")
    assert done.exit_code == 2
    assert "out" in done.stderr


def test_what_a_profile_cannot_take_is_left_out_with_a_reason(here: Path) -> None:
    done = sweep("--for", "openvino")
    assert done.exit_code == 2
    assert "give --calibration DATA" in done.stderr
    done = sweep("--for", "openvino", "--methods", "exact", "--force")
    assert done.exit_code == 0
    assert done.stderr.count("left out: for openvino codes=") == 2


def test_a_profile_is_measured_in_one_process(here: Path) -> None:
    with pytest.raises(UsageError, match="in one process"):
        run("model.onnx", "data.npz", out="out", metric="relative-error", profile="openvino", workers=2)
    assert "unknown profile" in sweep("--for", "nothing").stderr


def test_a_model_of_any_batch_is_measured_for_a_device_that_wants_known_shapes(here: Path) -> None:
    model = onnx.load("model.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    # 16-bit codes came with 21.
    model.opset_import[0].version = 20
    onnx.save(model, "model.onnx")
    found = json.loads(sweep("--for", "qnn-htp", "--calibration", "data.npz", "--json").stdout)["outcomes"]
    errors = {one["setting"]["options"]["codes"]: one["metric"]["value"] for one in found}
    assert errors["uint16"] < errors["uint8"] / 10
    done = sweep("--for", "vitis-ai", "--calibration", "data.npz", "--out", "second")
    assert "\nfor vitis-ai codes=int8 " in done.stdout
