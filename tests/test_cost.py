"""What settings take on a target, before it is built: in a sweep, in its report, and in a plan."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from softq.building import TargetSpec
from softq.cli import main
from softq.errors import RefusalError, UsageError
from softq.rtl import rtl
from softq.sweeps import Sweep, run
from softq.sweeps.costs import Costs, CostSpec, parse_cost
from softq.sweeps.formatting import sweep_to_text
from softq.sweeps.planner import Planner, Selection
from softq.sweeps.records import read
from softq.sweeps.report import gather, report
from softq.targets import TARGETS, Amount, Amounts, Target, TargetOptions, Use

MODELS = Path(__file__).parent.parent / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"
GIVEN: dict[str, Any] = {"metric": "kl", "limit": 8, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cost") / "out"


@pytest.fixture(scope="module")
def swept(folder: Path) -> Sweep:
    return run(
        VIT, IMAGES, out=folder, methods="deferred-log,ita,uniform", bits="3-5", cost="verilog,step=0.06", **GIVEN
    )


def test_a_sweep_tells_what_the_core_of_each_setting_takes(swept: Sweep, folder: Path) -> None:
    """The estimate of the core that `softq rtl` writes for rows of the model's length."""
    (shape,) = {tuple(site["shape"]) for site in swept.study.sites}
    for outcome in swept.outcomes:
        one, cost = outcome.setting, outcome.cost
        assert cost is not None
        if one.method == "uniform":
            assert (cost.amounts, "are floats" in cost.refused) == ({}, True)
            continue
        core = rtl(one.method, {"step": 0.06, **one.options}, length=shape[-1], rows=0).core
        assert cost.amounts["LUT4"] == Amount(core.resources.lut4, "tables")
        assert cost.amounts["clocks"].value == core.latency(shape[-1])
    assert read(folder)[1] == swept.outcomes
    text = sweep_to_text(swept)
    assert "LUT4_in_all" in text
    assert "no cost of uniform: scores of method uniform are floats" in text


def test_the_front_can_be_one_of_loss_and_a_cost(swept: Sweep, folder: Path) -> None:
    found = gather(swept.study, swept.outcomes, axis="LUT4")
    rows = [row for row in found.settings if "LUT4" in row.numbers]
    points = {row.setting: (row.numbers["LUT4"].value or 0, row.loss.value or 0) for row in rows}
    front = {at for at, (cost, loss) in points.items() if not any(c <= cost and x <= loss and (c, x) != (cost, loss)
                                                                  for c, x in points.values())}  # fmt: skip
    assert set(found.answer.front) == front
    assert found.answer.axis == "LUT4"
    assert any("uniform" in note for note in found.notes)
    least = min(rows, key=lambda row: points[row.setting])
    assert gather(swept.study, swept.outcomes, budget=1e9, axis="LUT4").answer.setting == least.setting
    with pytest.raises(UsageError, match=r"--front LUT: no setting of .* has it; there is bits, .*, LUT4,"):
        report(folder, front="LUT")
    written = report(folder, front="BRAM")
    assert written.content.studies[0].answer.axis == "BRAM"
    head, *lines = csv.reader((folder / "report.csv").read_text().splitlines())
    told = {int(line[head.index("setting")]): line[head.index("LUT4")] for line in lines}
    assert {setting: float(cost) for setting, cost in told.items() if cost} == {s: p[0] for s, p in points.items()}


def test_a_sweep_goes_on_with_the_same_cost_only(swept: Sweep, folder: Path) -> None:
    with pytest.raises(UsageError, match="cost"):
        run(VIT, IMAGES, out=folder, methods="deferred-log,ita,uniform", bits="3-5", cost="verilog,step=0.1", **GIVEN)


@pytest.mark.parametrize(
    ("text", "message"),
    [("nothing", "nothing"), ("cpu", "target cpu says no costs before a build; these do: verilog"),
     ("verilog,lane=2", "no option 'lane'")],
)  # fmt: skip
def test_bad_costs_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    out = str(tmp_path / "out")
    line = ["sweep", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--out", out, "--cost", text]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2
    assert message in done.output
    assert not Path(out).exists()


def test_any_target_can_say_costs() -> None:
    """A target is asked once for each method, options and length; it says why there is none."""
    asked: list[Use] = []

    def cost(use: Use, options: TargetOptions) -> Amounts:
        asked.append(use)
        if use.method == "uniform":
            raise RefusalError("nothing uniform here")
        return {"flash": Amount(100 * int(use.options["bits"]), "bytes")}

    target = Target("toy", "", "", "nothing", tuple, cost=cost)
    costs = Costs(CostSpec("toy", TargetSpec(target, TargetOptions())), Planner(VIT, Selection()))
    amounts = [costs.of("deferred-log", {"bits": bits}).amounts for bits in (3, 4, 3)]
    assert [found["flash"].value for found in amounts] == [300, 400, 300]
    assert costs.of("uniform", {"bits": 2}).refused == "nothing uniform here"
    assert len(asked) == 3
    assert {use.row_length for use in asked} == {50}
    named = Costs(CostSpec("toy", TargetSpec(target, TargetOptions()), "RAM"), Planner(VIT, Selection()))
    with pytest.raises(UsageError, match="target toy says no RAM; it says flash"):
        named.of("deferred-log", {"bits": 3})


def test_amounts_have_the_same_names_for_every_method() -> None:
    """Of each target that says any."""
    for name, target in TARGETS.entries().items():
        if target.cost is None:
            continue
        spec = parse_cost(f"{name},step=0.06" if "step" in target.options.help() else name)
        found = [target.cost(Use(method, {}, 16, masked), spec.target.options)
                 for method, masked in itertools.product(("ita", "exaq"), (False, True))]  # fmt: skip
        assert len({tuple(amounts) for amounts in found}) == 1
        assert all(amount.value >= 0 and amount.unit for amounts in found for amount in amounts.values())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["LUT4", "BRAM"])
def test_a_plan_saves_a_cost_instead_of_bits(tmp_path: Path, name: str) -> None:
    """Where everything keeps the budget, it has the least of it there is; methods without it are left out."""
    out, line = tmp_path / "plan.json", ["plan", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--samples", "16"]
    line += ["--methods", "deferred-log,uniform", "--bits", "3,4,8", "--max-drop", "1000", "--out", str(out)]
    done = CliRunner().invoke(main, [*line, "--cost", f"verilog,step=0.06:{name}", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    cores = [rtl("deferred-log", {"step": 0.06, "bits": b}, length=50, rows=0).core for b in (3, 4, 8)]
    least = min(core.resources.lut4 if name == "LUT4" else core.resources.bram for core in cores)
    assert set(said["cost"]["sites"].values()) == {least}
    assert (said["cost"]["name"], said["cost"]["total"]) == (name, least * len(said["cost"]["sites"]))
    assert any("uniform has no cost" in note for note in said["notes"])
    assert json.loads(out.with_suffix(".measured.json").read_text())["cost"] == said["cost"]


def test_a_plan_saves_one_cost(tmp_path: Path) -> None:
    line = ["plan", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--max-drop", "1", "--out", str(tmp_path / "p")]
    for cost, message in (
        ("verilog,step=0.06", "expected TARGET[,KEY=VALUE...]:NAME"),
        ("verilog,step=1:LUT", "no LUT;"),
    ):
        done = CliRunner().invoke(main, [*line, "--methods", "deferred-log", "--bits", "4", "--cost", cost])
        assert done.exit_code == 2
        assert message in done.output
