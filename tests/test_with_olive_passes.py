"""Olive's configuration, pass and surgeon, where Olive is installed: `make integrations` runs this."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import softq
from softq.errors import RefusalError
from tests.attention import attention, inputs, run

pytestmark = [pytest.mark.slow, pytest.mark.integrations]
PAGE = Path(__file__).parent.parent / "docs" / "integrations.md"
PLAIN = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Abs(x) }')


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("olive")
    monkeypatch.chdir(tmp_path)


def work(step: dict[str, Any], model: onnx.ModelProto) -> onnx.ModelProto:
    """Return what a workflow of one step makes of a model."""
    ours, workflows = pytest.importorskip("softq.integrations.olive"), pytest.importorskip("olive.workflows")
    onnx.save(model, "model.onnx")
    source = {"type": "ONNXModel", "model_path": "model.onnx"}
    config = {"input_model": source, "passes": {"step": step}, "output_dir": "out"}
    workflows.run(config, package_config=ours.package_config())
    return onnx.load("out/model.onnx")


def functions(model: onnx.ModelProto) -> list[str]:
    return [function.name for function in model.functions]


def test_the_configuration_is_olives_own_and_one_pass() -> None:
    ours = pytest.importorskip("softq.integrations.olive")
    config = pytest.importorskip("olive.package_config").OlivePackageConfig
    own, made = config.load_default_config().passes, config.model_validate(ours.package_config())
    assert made.passes.keys() - own.keys() == {"softq"}
    assert own.keys() < made.passes.keys()
    assert made.import_pass_module("Softq") is ours.Softq


def test_the_command_line_as_the_page_has_it() -> None:
    page = PAGE.read_text("utf-8")
    (config,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (lines,) = re.findall(r"```\n([^`]*olive run[^`]*)```", page)
    onnx.save(attention(), "model.onnx")

    def olive(text: str) -> subprocess.CompletedProcess[str]:
        Path("config.json").write_text(text)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(["sh", "-ec", lines], capture_output=True, text=True, env={**os.environ, "PATH": path})

    done = olive(config)
    assert done.returncode == 0, done.stderr
    made = onnx.load("out/model.onnx")
    assert np.array_equal(run(made, inputs()), run(softq.convert(attention(), bits=4).model, inputs()))
    wrong = olive(config.replace('"bits": 4', '"bits": 40'))
    assert wrong.returncode == 1
    assert wrong.stderr.splitlines()[-1] == (
        "ValueError: deferred-log bits is 40; allowed is a whole number from 2 to 8"
    )


def test_a_plan_is_followed_and_read_anew() -> None:
    options = {"plan": "plan.json"}
    for method, bits, name in (("log2", 3, "Log2_b3"), ("uniform", 8, "Uniform_b8_t1")):
        Path("plan.json").write_text(softq.convert(attention(), method=method, bits=bits).plan.to_text())
        # Olive keeps what it made for a configuration.
        assert functions(work({"type": "Softq", "options": options}, attention())) == [name]
    surgery = {"surgeon": "SoftqSurgeon", "options": options}
    assert functions(work({"type": "GraphSurgeries", "surgeries": [surgery]}, attention())) == ["Uniform_b8_t1"]


def test_weights_outside_the_model_come_along() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 64] x) => (float[2, 64] out) { s = MatMul (x, w) p = Softmax (s) out = MatMul (p, w) }""")
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype("f")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    expected = run(softq.convert(model, bits=4, all_sites=True).model, {"x": weights[:2]})
    onnx.convert_model_to_external_data(model, location="weights.bin")
    made = work({"type": "Softq", "bits": 4, "options": {"all_sites": True}}, model)
    assert len(functions(made)) == 1
    assert np.array_equal(run(made, {"x": weights[:2]}), expected)
    assert not Path("out/weights.bin").exists()
    assert Path("out/model.onnx.data").stat().st_size >= weights.nbytes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "lgo2"}, "unknown method 'lgo2'"),
        ({"bits": 40}, "bits is 40"),
        ({"options": {"everything": True}}, r"unknown option 'everything' of softq\.convert; there are: "),
        ({"options": {"bits": 4}}, "bits is among the options; it stands beside them"),
        ({"options": {"sites": "raw"}}, "sites is 'raw'; expected a list"),
        ({"options": {"sites": ["none"]}}, "no softmax matches 'none'"),
        ({"options": {"plan": "none.json"}}, r"plan none\.json: No such file"),
        ({"options": {"plan": {"schema": 1}}}, "plan: "),
        ({"options": {"calibration": "none.npz"}}, r"none\.npz: no such file"),
    ],
)
def test_what_a_user_has_to_mend_ends_the_workflow(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        work({"type": "Softq", **given}, attention())
    with pytest.raises(ValueError, match=message):
        work({"type": "GraphSurgeries", "surgeries": [{"surgeon": "SoftqSurgeon", **given}]}, attention())
    assert not Path("out/model.onnx").exists()


def test_a_refusal_is_olives_failed_pass(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(FileNotFoundError):
        work({"type": "Softq", "options": {"require": True}}, PLAIN)
    assert "RefusalError: the model has no softmax: nothing to convert" in caplog.text
    assert "No output model produced" in caplog.text


def test_the_plan_of_another_model() -> None:
    plan = softq.convert(attention()).plan.to_json()
    with pytest.raises(ValueError, match="the plan was made for another graph"):
        work({"type": "Softq", "options": {"plan": plan}}, PLAIN)


@pytest.mark.parametrize(
    "step", [{"type": "Softq"}, {"type": "GraphSurgeries", "surgeries": [{"surgeon": "SoftqSurgeon"}]}]
)
def test_a_model_without_a_softmax(step: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "softq.integrations.olive"):
        made = work(step, PLAIN)
    assert [node.op_type for node in made.graph.node] == ["Abs"]
    said = [record.getMessage() for record in caplog.records if record.name == "softq.integrations.olive"]
    assert said == ["the model has no softmax: nothing to convert"]


def test_the_surgeon() -> None:
    ours = pytest.importorskip("softq.integrations.olive")
    registry = pytest.importorskip("olive.passes.onnx.graph_surgeries").Surgeon.registry
    assert registry["softqsurgeon"] is ours.SoftqSurgeon
    made = ours.SoftqSurgeon("log2", bits=3, options={"inline": True})(attention())
    assert not made.functions
    assert "Softmax" not in [node.op_type for node in made.graph.node]
    with pytest.raises(RefusalError, match="the model has no softmax"):
        ours.SoftqSurgeon(options={"require": True})(PLAIN)
