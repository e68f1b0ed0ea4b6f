"""The report of a sweep: what it recommends, that all its forms say the same, and that nothing in it is code."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import InputError, UsageError
from softq.json_values import to_plain
from softq.plans import Plan, SitePlan
from softq.sweeps.plan.record import record_of, record_text
from softq.sweeps.records import OUTCOMES, STUDY, Estimate, Outcome, Setting, SiteErrors, Study, append
from softq.sweeps.report import content_schema, gather, report
from softq.sweeps.report.html import MAX_ERRORS, to_html
from softq.sweeps.report.interval import Interval
from softq.timing import TimeRatio

NAN = math.nan
HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "=cmd()|' /c calc", "a|b`c`_{{7*7}}")


def study(names: Sequence[str] = ("attn/0", "attn/1"), *, relative: bool = False, model: str = "m.onnx") -> Study:
    shape = ["batch", 4, 50, 50]
    sites = tuple(
        {"id": n, "node": f"node {n}", "operator": "Softmax", "role": "attention", "shape": shape} for n in names
    )
    return Study("0.1.0", {"numpy": "2"}, model, "g" * 8, "w" * 8, "d.npz", "h" * 8, 100, "top1-accuracy", "fraction",
                 "higher", relative, Estimate(0.9, 0.85, 0.95), 1.0, sites, "softq sweep m.onnx --data d.npz",
                 conditions={"labels": None, "limit": "10"})  # fmt: skip


def errors(size: float) -> SiteErrors:
    return SiteErrors(size, (1 - size, 1 - size / 2, 1.0, 1.0, 1.0), 1 - size / 4, size / 3, size / 2, 0.0, 64)


def outcome(
    method: str, bits: int | None, loss: float, half: float | None, *,
    site: str | None = None, sites: Mapping[str, SiteErrors] | None = None, **options: float,
) -> Outcome:  # fmt: skip
    ends = (None, None) if half is None else (loss - half, loss + half)
    settings = options | ({} if bits is None else {"bits": bits})
    metric = Estimate(0.9 - loss, 0.85 - loss, 0.95 - loss)
    return Outcome(Setting(method, settings, site), metric, Estimate(loss, *ends), 100, 0.5, sites or {})


def many(names: Sequence[str] = ("attn/0", "attn/1")) -> list[Outcome]:
    """Two methods at all widths, each site alone too; the fewest bits that pass are 3."""
    found: list[Outcome] = []
    for method, worst in (("uniform", 0.3), ("deferred-log", 0.1)):
        for bits in range(2, 7):
            loss = worst if bits == 2 else worst * 4.0**-bits
            sites = {name: errors(2.0**-bits * (1 + i / len(names))) for i, name in enumerate(names)}
            found.append(outcome(method, bits, loss, 0.02, sites=sites))
            found += [outcome(method, bits, loss / 2, 0.02, site=n, sites={n: sites[n]}) for n in names[:3]]
    return found


def heads(names: Sequence[str] = ("attn/0", "attn/1")) -> list[Outcome]:
    """Three heads of each site at two widths, each worse than the one before; they have errors alone."""
    nothing = Estimate(NAN)
    return [
        Outcome(Setting("uniform", {"bits": bits}, name, head), nothing, nothing, 0, 0.0,
                {name: errors(2.0**-bits * (1 + head) / 2)})
        for name in names for bits in (2, 3) for head in range(3)
    ]  # fmt: skip


def folder(path: Path, what: Study, outcomes: Sequence[Outcome]) -> Path:
    path.mkdir(exist_ok=True)
    (path / STUDY).write_text(json.dumps(to_plain(what)), encoding="utf-8")
    (path / OUTCOMES).write_text("", encoding="utf-8")
    for one in outcomes:
        append(path, one)
    return path


class Tags(HTMLParser):
    """Counts elements and gathers what would run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]


def test_without_a_budget_the_answer_is_the_front() -> None:
    """Few data no longer make few bits: 2 bits that these data do not tell from 3 are not preferred to them."""
    outcomes = [outcome("uniform", bits, loss, 0.02) for bits, loss in ((2, 0.012), (3, 0.004), (4, 0.006))]
    content = gather(study(), [*outcomes, outcome("log2", 3, 0.01, 0.02), outcome("log2", 2, NAN, None)])
    answer = content.answer
    assert answer.setting is None
    assert [content.settings[one].name for one in answer.front] == ["uniform with 2 bits", "uniform with 3 bits"]
    assert "uniform with 3 bits, loss +0.004 (at most 0.024 worse with 95 % confidence, 100 samples;" in answer.sentence
    assert "400 would show about 0.014" in answer.sentence
    # The halves of the intervals add up to 0.04, five times 0.008.
    assert answer.peers_sentence == (
        "These data do not tell uniform with 2 bits from uniform with 3 bits; about 2,500 samples would."
    )


def test_few_bits_are_recommended_where_they_are_shown_to_be_enough() -> None:
    content = gather(study(), many(), "0.03")
    answer = content.answer
    assert answer.setting is not None
    chosen = content.settings[answer.setting]
    assert (chosen.method, chosen.bits, chosen.verdict) == ("deferred-log", 3, "same")
    assert "0.89844 against 0.9 in float" in answer.sentence
    assert [content.settings[peer].name for peer in answer.peers] == ["uniform with 3 bits"]
    # Indistinguishable from float is not enough: what may be lost has to be shown.
    none = gather(study(), [outcome("uniform", 4, 0.0, 0.02)], "0.01").answer
    assert none.setting is None
    assert "No setting is shown to keep the budget of +0.01" in none.sentence
    assert "100 samples; 400 would show 0.01" in none.sentence
    assert "no number of samples would" in gather(study(), [outcome("uniform", 4, 0.02, 0.02)], "0.01").answer.sentence


def test_a_budget_admits_what_is_worse_than_float_by_less() -> None:
    outcomes = [outcome("uniform", 2, 0.05, 0.01), outcome("uniform", 4, 0.0, 0.01)]
    within = gather(study(), outcomes, "0.07")
    assert within.answer.setting == 0
    assert "within the budget of +0.07" in within.answer.sentence
    assert gather(study(), outcomes, "0.055").answer.setting == 1  # the interval reaches over it
    assert gather(study(), outcomes, "10%").answer.budget == pytest.approx(0.09)
    assert gather(study(relative=True), outcomes, "10%").answer.budget == pytest.approx(0.1)
    # Losses that are shares of 0.9: 0.09 in the metric's unit is a tenth.
    assert gather(study(relative=True), outcomes, "0.09").answer.budget == pytest.approx(0.1)
    with pytest.raises(UsageError, match="nothing is a share of top1-accuracy 0 of float"):
        gather(replace(study(), reference=Estimate(0.0)), outcomes, "1%")
    with pytest.raises(UsageError, match="nothing is a share of top1-accuracy nan of float"):
        gather(replace(study(), reference=Estimate(NAN)), outcomes, "1%")
    with pytest.raises(UsageError, match="budget is '-1'; it must be a number of at least 0"):
        gather(study(), outcomes, "-1")


def test_without_an_interval_nothing_is_called_the_same() -> None:
    content = gather(study(), [outcome("uniform", 4, 0.001, None), outcome("uniform", 8, 0.0, None)], "0")
    assert [row.verdict for row in content.settings] == ["open", "open"]
    assert content.answer.setting == 1
    assert "no interval" in content.answer.sentence


def test_what_is_no_number_is_never_recommended() -> None:
    outcomes = [outcome("uniform", 2, NAN, None), outcome("uniform", 3, math.inf, None)]
    content = gather(study(), outcomes, "1")
    assert content.answer.setting is None
    assert [row.verdict for row in content.settings] == ["broken", "broken"]
    assert "no loss is a number" in content.answer.sentence
    found = gather(study(), [*outcomes, outcome("uniform", 4, 0.5, 0.1)], "0.1")
    assert found.answer.sentence.startswith("No setting is")


def test_each_budget_has_its_setting() -> None:
    """Random losses with ties and intervals of several widths, against a search through all settings."""
    draw = random.Random(5)
    for _ in range(8):
        outcomes = [
            outcome(method, bits, draw.choice((-0.01, 0.0, 0.01, draw.random() / 10)), draw.choice((None, 0.01, 0.03)))
            for method in ("uniform", "deferred-log", "log2") for bits in (2, 3, 4)
        ]  # fmt: skip
        content = gather(study(()), outcomes)
        steps = content.answer.by_budget
        worst = {row.setting: row.loss.value if row.loss.high is None else row.loss.high for row in content.settings}
        budgets = {max(0.0, end) for end in worst.values() if end is not None} | {0.0}
        assert {step.budget for step in steps} <= budgets
        for budget in budgets:
            good = [(row.bits, row.method != "deferred-log", row.loss.value, worst[row.setting], row.name, row.setting)
                    for row in content.settings if (worst[row.setting] or 0.0) <= budget]  # fmt: skip
            allowed = [step.setting for step in steps if step.budget <= budget]
            assert allowed[-1:] == ([min(good)[-1]] if good else [])  # pyright: ignore
        assert gather(study(()), outcomes, steps[-1].budget).answer.setting == steps[-1].setting


def test_costs_come_from_the_programs() -> None:
    content = gather(study(), [outcome("deferred-log", 4, 0.0, 0.1), outcome("log2", 4, 0.0, 0.1)], "0.1")
    cost = {content.settings[c.setting].method: c for c in content.costs}
    assert cost["deferred-log"].integer_only
    assert not cost["log2"].integer_only
    assert cost["log2"].float_operations > cost["deferred-log"].float_operations > 0
    # 4 heads of 50 x 50 codes of 4 bits, and of 4 bytes.
    assert (cost["log2"].matrix_bytes, cost["log2"].float_bytes) == (5000, 40000)
    assert cost["deferred-log"].widest_integer_bits == 20  # 50 weights of at most 2^14: 2^19.6
    assert content.answer.setting == cost["deferred-log"].setting
    numbers = {row.method: row.numbers for row in content.settings}
    assert [column.name for column in content.columns] == ["float_operations", "widest_integer_bits", "matrix_bytes"]
    assert numbers["log2"]["matrix_bytes"].value == 10_000  # at two sites
    assert numbers["deferred-log"]["widest_integer_bits"].value == 20
    assert numbers["log2"]["float_operations"].value == cost["log2"].float_operations


def test_the_front_can_be_one_of_loss_and_another_number(tmp_path: Path) -> None:
    """uniform takes less time the more bits it has, and loses less: of its settings 6 bits beat the others."""
    outcomes = [
        replace(outcome("uniform", bits, 0.1 / bits, 0.02), time_ratio=TimeRatio(7.5 - bits, 1.0, 9.0, 0.1, 0.1, 9))
        for bits in (2, 4, 6)
    ]
    outcomes.append(replace(outcome("log2", 3, 0.05, 0.02), time_ratio=TimeRatio(1.25, 1.0, 2.0, 0.1, 0.1, 9)))
    untimed = outcome("log2", 2, 0.0, 0.02)
    sweep = folder(tmp_path, study(()), [*outcomes, untimed])
    done = CliRunner().invoke(main, ["report", str(sweep), "--front", "time_ratio"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Less time_ratio for more loss, and what may be lost decides (--max-drop): "
                                  "log2 with 3 bits, time_ratio 1.25, loss +0.05")  # fmt: skip
    content = report(sweep, front="time_ratio", max_drop="0.05").content
    assert [content.settings[one].name for one in content.answer.front] == ["log2 with 3 bits", "uniform with 6 bits"]
    assert content.answer.sentence.startswith("Use uniform with 6 bits: ")
    assert content.answer.axis == "time_ratio"
    assert [(content.settings[one].name) for one in report(sweep).content.answer.front] == ["log2 with 2 bits"]
    with pytest.raises(UsageError, match=r"--front LUT4: no setting of m\.onnx has it; there is bits, time_ratio"):
        report(sweep, front="LUT4")


def test_time_and_size_are_columns_where_they_were_measured(tmp_path: Path) -> None:
    timed = replace(
        outcome("uniform", 4, 0.01, 0.02), time_ratio=TimeRatio(1.25, 1.2, 1.5, 0.001, 0.00125, 9), size_bytes=7654
    )
    content = report(folder(tmp_path, study(()), [timed, outcome("log2", 4, 0.0, 0.02)])).content
    assert [column.name for column in content.columns] == ["time_ratio", "size_bytes"]
    numbers = {row.method: row.numbers for row in content.settings}
    assert numbers == {
        "log2": {},
        "uniform": {"time_ratio": Interval(1.25, 1.2, 1.5), "size_bytes": Interval(7654, None, None)},
    }
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "1.25 (1.2 to 1.5)" in text
        assert "7,654" in text
    rows = {
        row["method"]: row for row in csv.DictReader((tmp_path / "report.csv").read_text(encoding="utf-8").splitlines())
    }
    assert (rows["uniform"]["time_ratio_high"], rows["uniform"]["size_bytes"]) == ("1.5", "7654")
    assert rows["log2"]["time_ratio"] == ""


CASES: dict[str, tuple[Study, list[Outcome]]] = {
    "many": (study(), many()),
    "nan": (study(), [outcome("uniform", 4, NAN, None, sites={"attn/0": errors(NAN)}), outcome("uniform", 8, 0, 0.1)]),
    "no intervals": (replace(study(), reference=Estimate(0.9)), [outcome("log2", 3, 0.1, None)]),
    "no sites": (study(()), [outcome("log2", 3, 0.1, 0.2), outcome("exact", None, 0.0, 0.0)]),
    "nothing": (study(), []),
    "one": (study(), [outcome("uniform", 4, 0.01, 0.1, sites={"attn/0": errors(0.1)})]),
    "only alone": (study(), [outcome("uniform", 4, 0.1, 0.2, site="attn/0", sites={"attn/0": errors(0.1)})]),
    "unknown method": (study(), [outcome("not-here", 4, 0.01, 0.1)]),
    "hostile": (study(HOSTILE, model=HOSTILE[0]), many(HOSTILE)),
    "relative": (study(relative=True), many()),
    "heads": (study(), many() + heads()),
    "only heads": (study(), heads()),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("case", CASES)
def test_all_forms_are_written_and_hold(case: str, tmp_path: Path) -> None:
    what, outcomes = CASES[case]
    written = report(folder(tmp_path, what, outcomes), max_drop="0.01")
    texts = {path.name: path.read_text(encoding="utf-8") for path in written.files}
    plain = json.loads(texts["report.json"])
    jsonschema.Draft202012Validator(content_schema()).validate(plain)
    assert plain == json.loads(json.dumps(written.content.to_json()))
    rows = list(csv.DictReader(io.StringIO(texts["report.csv"])))
    assert {int(row["setting"]) for row in rows} == set(range(len(outcomes)))
    assert sum(row["site"] != "" for row in rows) == len(plain["errors"])
    tags = Tags(texts["report.html"])
    assert tags.tags.count("script") == 4  # the data, two of the library, the page's own
    assert not tags.handlers
    assert not {"img", "iframe", "object"} & set(tags.tags)
    assert all(link.startswith(("#", "data:,")) for link in tags.links)
    assert "<script" not in texts["report.md"]
    assert not any(cell[:1] in "=@+" for row in rows for cell in (row["name"], row["site"]) if cell)
    node_data = json.loads(texts["report.model-explorer.json"])
    assert all(isinstance(result["value"], float) for result in node_data["results"].values())
    before = {path: path.read_bytes() for path in written.files}
    assert {path: path.read_bytes() for path in report(tmp_path, max_drop="0.01").files} == before


def test_nodes_are_named_as_viewers_know_them(tmp_path: Path) -> None:
    what = study(("attn/0", "loop/weights"))
    what = replace(what, sites=(what.sites[0], dict(what.sites[1]) | {"node": ""}))
    report(folder(tmp_path, what, many(("attn/0", "loop/weights"))), max_drop="0.03")
    results = json.loads((tmp_path / "report.model-explorer.json").read_text(encoding="utf-8"))["results"]
    assert results == {"node attn/0": {"value": 0.125}, "weights": {"value": 0.1875}}


def test_a_large_sweep_stays_under_5_mb() -> None:
    names = [f"model/layers.{i}/self_attn/softmax_output_{i}" for i in range(200)]
    content = gather(study(names), many(names))
    assert len(to_html(content).encode()) < 5_000_000
    names = [f"model/layers.{i}/self_attn/softmax_output_{i}" for i in range(4000)]
    content = gather(study(names), many(names))
    assert len(content.errors) > MAX_ERRORS
    page = to_html(content)
    assert len(page.encode()) < 5_000_000
    assert "of 4000 sites with the greatest output errors" in page


def test_a_sweep_and_a_sensitivity_run_are_one_report(tmp_path: Path) -> None:
    bare = [outcome("uniform", bits, 0.1 / bits, 0.02) for bits in (4, 8)]
    unmeasured = replace(outcome("uniform", 4, NAN, None, site="attn/1", sites={"attn/1": errors(0.2)}), samples=0)
    sweep = folder(tmp_path / "sweep", study(), bare)
    alone = replace(study(), command="softq sensitivity m.onnx")
    written = report(sweep, folder(tmp_path / "alone", alone, [*bare, unmeasured])).content
    assert [row.verdict for row in written.settings] == ["worse", "same", "unmeasured"]
    said = (sweep / "report.md").read_text(encoding="utf-8")
    assert "not measured" in said
    assert "not a number" not in said
    assert written.subject.command.splitlines() == [study().command, "softq sensitivity m.onnx"]


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(main, ["report", str(folder(tmp_path / "sweep", study(), many())), "--max-drop", "3%"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Use deferred-log with 3 bits: ")
    told = run(main, ["report", str(tmp_path / "sweep"), "--json"])
    assert json.loads(told.output) == json.loads((tmp_path / "sweep" / "report.json").read_text(encoding="utf-8"))
    assert run(main, ["report", str(tmp_path)]).exit_code == 2
    with pytest.raises(InputError, match="there is no folder"):
        report(tmp_path / "sweep", out=tmp_path / "absent")


def test_a_site_that_no_rows_were_seen_of_is_named() -> None:
    content = gather(study(), [outcome("uniform", 4, 0.01, 0.1, sites={"attn/0": errors(0.1)})])
    assert content.notes == ("No errors of rows could be measured at attn/1.",)
    assert gather(study(), [outcome("uniform", 4, 0.01, 0.1)]).notes == ()


def planned(path: Path, passed: bool = True) -> Path:
    """A plan of two sites, of which one stays float, with its record."""
    site = SitePlan("attn/0", "f", "uniform", {"bits": 3, "top": 1.0}, {})
    text = Plan("0.1.0", "g" * 8, "w" * 8, (site,)).to_text()
    path.write_text(text, encoding="utf-8")
    one = {"metric": {"value": 0.89, "low": 0.8, "high": 0.95}, "loss": {"value": 0.01, "low": -0.01, "high": 0.03},
           "samples": 50, "seconds": 1.0}  # fmt: skip
    other = one | {"loss": {"value": "NaN", "low": None, "high": None}, "samples": 60}
    found = {"schema": 1, "bits": {"attn/0": 3, "attn/1": 32}, "mean_bits": 17.5, "split": "searched here", "notes": [],
             "gate": {"passed": passed, "sentence": "it <b>held"}, "search": one, "verification": other,
             "tried": [{}] * 7}  # fmt: skip
    said = record_text(found, text, metric="top1-accuracy", budget="1%", command="softq plan m.onnx")
    record_of(path).write_text(said, encoding="utf-8")
    return path


def test_a_plan_is_shown(tmp_path: Path) -> None:
    sweep, plan = folder(tmp_path / "sweep", study(), many()), planned(tmp_path / "plan.json")
    done = CliRunner().invoke(main, ["report", str(sweep), "--plan", str(plan)])
    assert done.exit_code == 0, done.output
    texts = {path.name: path.read_text(encoding="utf-8") for path in sweep.glob("report.*")}
    content = json.loads(texts["report.json"])
    jsonschema.Draft202012Validator(content_schema()).validate(content)
    assert [(site["site"], site["method"], site["bits"]) for site in content["plan"]["sites"]] == [
        ("attn/0", "uniform", 3), ("attn/1", "", 32)
    ]  # fmt: skip
    assert content["plan"]["searched"]["loss"] == {"value": 0.01, "low": -0.01, "high": 0.03}
    assert content["plan"]["verified"] == {
        "metric": {"value": 0.89, "low": 0.8, "high": 0.95}, "loss": {"value": None, "low": None, "high": None},
        "samples": 60,
    }  # fmt: skip
    for name in ("report.html", "report.md"):
        assert "The budget of 1% was kept:" in texts[name]
        assert "17.5 bits on the mean" in texts[name]
        assert "softq plan m.onnx" in texts[name]
        assert "it <b>held" not in texts[name]
    broken = report(sweep, plan=planned(tmp_path / "plan.json", passed=False)).content
    assert broken.plan is not None
    assert not broken.plan.held
    assert "was not kept" in (sweep / "report.md").read_text(encoding="utf-8")


def test_a_plan_that_is_not_of_this_sweep_is_refused(tmp_path: Path) -> None:
    sweep, plan = folder(tmp_path / "sweep", study(), many()), planned(tmp_path / "plan.json")

    def refused() -> str:
        result = CliRunner().invoke(main, ["report", str(sweep), "--plan", str(plan)])
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1
        return result.stderr

    folder(sweep, replace(study(), metric="kl"), many())
    assert "its metric is 'top1-accuracy', the sweep's 'kl'" in refused()
    folder(sweep, replace(study(), graph="another"), many())
    assert "its graph is 'gggggggg', the sweep's 'another'" in refused()
    record, text = record_of(plan), plan.read_text(encoding="utf-8")
    plan.write_text(text.replace('"bits": 3', '"bits": 4'), encoding="utf-8")
    assert "is not the plan that" in refused()
    plan.write_text(text, encoding="utf-8")
    found = json.loads(record.read_text(encoding="utf-8"))
    for wrong, message in (("[", "is not JSON"), ("{}", "is no record")):
        record.write_text(wrong, encoding="utf-8")
        assert message in refused()
    for more in ({"bits": 1}, {"search": {}}, {"mean_bits": "x"}):
        record.write_text(json.dumps(found | more), encoding="utf-8")
        assert "is damaged" in refused()
    record.unlink()
    assert "which softq plan writes beside it, cannot be read" in refused()
    plan.unlink()
    assert "plan.json" in refused()
    assert not list(sweep.glob("report.*"))
