"""The functions of `softq`, as programs call them; `make types` checks the types that are stated here."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import softq
from softq.errors import RefusalError, UsageError
from softq.explanation import Explanation
from softq.plans import Plan
from softq.sweeps import Selection, Sweep, Task
from softq.sweeps.plan.search import Found
from softq.sweeps.report import Written
from softq.sweeps.task import TaskOptions, make_task
from tests.attention import attention

MODELS = Path(__file__).parent.parent / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"
RELU = '<ir_version: 8, opset_import: ["": 18]> g (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }'
CALIBRATION = MODELS / "mnist_vit/calibration.npz"


class Steps:
    """Takes progress, and looks at what it is told."""

    def __init__(self) -> None:
        self.seen = set[str]()

    def __call__(self, step: str, done: int, total: int | None) -> None:
        assert 0 <= done
        assert total is None or done <= total
        self.seen.add(step)


def test_a_study_from_sweep_to_file(tmp_path: Path) -> None:
    steps = Steps()
    swept = softq.sweep(
        VIT, IMAGES, out=tmp_path / "swept", metric="top1-accuracy", methods="deferred-log,uniform", bits="2,4",
        samples=32, threads=1, progress=steps,
    )  # fmt: skip
    assert_type(swept, Sweep)
    assert {"float model", "rows", "sweep"} <= steps.seen
    assert len(swept.outcomes) == 4

    steps = Steps()
    alone = softq.sensitivity(
        VIT, IMAGES, out=tmp_path / "alone", metric="top1-accuracy", methods="deferred-log", bits="2", top=1,
        samples=32, threads=1, progress=steps,
    )  # fmt: skip
    assert_type(alone, Sweep)
    assert {"rows", "sensitivity"} <= steps.seen
    sites = [site.id for site in softq.inspect(VIT) if site.takes_method]
    assert sorted(str(one.setting.site) for one in alone.outcomes) == sorted(sites)
    assert [one.samples for one in alone.outcomes].count(32) == 1

    steps, path = Steps(), tmp_path / "plan.json"
    found = softq.plan(
        VIT, IMAGES, metric="top1-accuracy", max_drop="10%", methods="deferred-log", bits="2-3",
        sweep=tmp_path / "swept", samples=64, threads=1, out=path, progress=steps,
    )  # fmt: skip
    assert_type(found, Found)
    assert steps.seen
    assert softq.load_plan(path) == found.plan
    written = softq.report(tmp_path / "swept", tmp_path / "alone", max_drop="10%", plan=path)
    assert_type(written, Written)
    assert written.content.plan is not None
    assert written.content.plan.mean_bits == found.mean_bits

    converted = softq.convert(VIT, plan=found.plan)
    softq.save(converted, tmp_path / "out.onnx")
    report = softq.check(VIT, tmp_path / "out.onnx", IMAGES, max_drop="10%", batch=500)
    assert report.passed
    assert {site.method for site in converted.plan.sites} == {"deferred-log"}


def test_calibrate_gives_the_plan_that_convert_follows(tmp_path: Path) -> None:
    steps = Steps()
    plan = softq.calibrate(VIT, CALIBRATION, bits=2, progress=steps)
    assert_type(plan, Plan)
    assert "calibrate" in steps.seen
    assert all(site.fitted for site in plan.sites)
    at_once = softq.convert(VIT, bits=2, calibration=CALIBRATION)
    assert plan == at_once.plan
    softq.save(plan, tmp_path / "plan.json")
    softq.save(softq.convert(VIT, plan=tmp_path / "plan.json"), tmp_path / "a.onnx")
    softq.save(at_once, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(RefusalError, match="nothing"):
        softq.calibrate(onnx.parser.parse_model(RELU), [{"x": np.ones((1, 2), np.float32)}])


def test_save_takes_all_that_convert_gives(tmp_path: Path) -> None:
    model = attention()
    of_proto, of_ir = softq.convert(model), softq.convert(ir.from_proto(model))
    assert_type(of_proto.model, onnx.ModelProto)
    assert_type(of_ir.model, ir.Model)
    for number, given in enumerate((of_proto, of_proto.model, of_ir, of_ir.model)):
        softq.save(given, tmp_path / f"{number}.onnx")
    assert len({(tmp_path / f"{number}.onnx").read_bytes() for number in range(4)}) == 1
    softq.save(of_proto.plan, tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text("utf-8")) == of_proto.plan.to_json()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match=r"model\.onnx"):
        softq.save(softq.convert(tmp_path / "model.onnx"), tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == model.SerializeToString()


def test_explain() -> None:
    (site,) = softq.inspect(attention())
    told = softq.explain(attention(), site.id, settings={"bits": 3})
    assert_type(told, Explanation)
    assert told.site.id == site.id


def test_options_of_a_study_are_those_of_its_task() -> None:
    own = {"model", "data", "metric", "selection"}
    former = {"limit"}
    assert set(TaskOptions.__annotations__) - former == {one.name for one in (*fields(Task), *fields(Selection))} - own
    made = make_task("m.onnx", "d.npz", "kl", sites=["a"], batch=3, samples=4, sampling=None)
    assert made == Task("m.onnx", "d.npz", "kl", Selection(("a",), batch=3), samples=4)
    with pytest.raises(UsageError, match="sites"):
        make_task("m.onnx", "d.npz", "kl", sites="attention*")
    with pytest.raises(UsageError, match="no option is called 'workerz'; nearest: workers"):
        softq.sweep(VIT, IMAGES, out="x", metric="kl", workerz=2)  # pyright: ignore[reportCallIssue]


def test_what_is_no_model_and_no_data_is_one_line(tmp_path: Path) -> None:
    wrong: Any = 42
    model = "the model is an int; expected a path, an onnx.ModelProto or an onnx_ir.Model"
    for call in (softq.convert, softq.inspect, lambda m: softq.check(m, VIT, IMAGES),  # pyright: ignore
                 lambda m: softq.check(VIT, m, IMAGES, input_shapes={"images": {"batch": 1}}),  # pyright: ignore
                 lambda m: softq.build(m, tmp_path / "built", target="verilog")):  # fmt: skip # pyright: ignore
        with pytest.raises(UsageError, match=model):
            call(wrong)  # pyright: ignore
    nothing: Any = None
    with pytest.raises(UsageError, match=r"data is None; expected a \.npz file"):
        softq.check(VIT, VIT, nothing)


def test_former_names_work_and_say_so(tmp_path: Path) -> None:
    """`limit` is the gate of `check`; of studies it was how many samples. What may be lost is `max_drop` everywhere."""
    common: dict[str, Any] = {"metric": "top1-accuracy", "methods": "uniform", "bits": "4", "threads": 1}
    with pytest.warns(DeprecationWarning, match="limit is samples now") as said:
        swept = softq.sweep(VIT, IMAGES, out=tmp_path, limit=4, **common)
    assert {one.filename for one in said} == {__file__}
    assert swept.study.samples == 4
    with pytest.warns(DeprecationWarning, match="budget is max_drop now") as said:
        former = softq.report(tmp_path, budget="50%").content
    assert {one.filename for one in said} == {__file__}
    assert softq.report(tmp_path, max_drop="50%").content == former
    with pytest.raises(UsageError, match="limit is the name it had"):
        softq.sweep(VIT, IMAGES, out=tmp_path, limit=4, samples=4, **common)
    with pytest.raises(UsageError, match="budget is the name it had"):
        softq.report(tmp_path, max_drop="50%", budget="50%")


def test_what_softq_exports_is_documented_and_typed() -> None:
    for name in softq.__all__:
        found = getattr(softq, name)
        if inspect.isfunction(found):
            assert found.__doc__, name
            for parameter in inspect.signature(found).parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, (name, parameter.name)


def test_a_plan_is_not_written_into_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        softq.plan(VIT, IMAGES, metric="kl", max_drop=1, out=tmp_path)
