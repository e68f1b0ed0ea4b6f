"""Several studies on one page: what is one study, what they are called, and which setting serves all of them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import UsageError
from softq.sweeps.records import Estimate, Outcome
from softq.sweeps.report import content_schema, report
from tests.test_report_page import folder, many, outcome, study

OTHER = replace(study(("x/0",), relative=True, model="models/other.onnx"), graph="another", metric="perplexity",
                unit="perplexity", direction="lower", reference=Estimate(40.0, 30.0, 50.0),
                command="softq sweep other.onnx")  # fmt: skip


def losses(**by_name: float) -> list[Outcome]:
    """Outcomes of `method_bits` with a loss and an interval of 0.01 to either side."""
    return [outcome(name.rsplit("_", 1)[0].replace("_", "-"), int(name.rsplit("_", 1)[1]), loss, 0.01)
            for name, loss in by_name.items()]  # fmt: skip


def test_a_setting_with_two_values_makes_two_studies(tmp_path: Path) -> None:
    first = folder(tmp_path / "first", study(), losses(uniform_4=0.02, uniform_8=0.0))
    same = folder(tmp_path / "same", study(), losses(uniform_4=0.02, log2_4=0.01))
    other = folder(tmp_path / "calibrated", study(), losses(uniform_4=0.01, log2_4=0.01))
    assert len(report(first, same).content.studies) == 1
    content = report(first, same, other).content
    assert [one.label for one in content.studies] == ["first", "calibrated"]
    assert [len(one.settings) for one in content.studies] == [3, 2]


def test_studies_are_named_by_what_differs(tmp_path: Path) -> None:
    def labels(*what: object) -> list[str]:
        folders = [folder(tmp_path / f"f{i}", one, losses(uniform_4=0.1)) for i, one in enumerate(what)]  # pyright: ignore
        return [one.label for one in report(*folders).content.studies]

    assert labels(study()) == ["m.onnx"]
    assert labels(study(), OTHER) == ["m", "other"]
    assert labels(study(), replace(study(), data="e.npz", data_hash="e")) == ["d", "e"]
    assert labels(study(), replace(study(), metric="kl")) == ["top1-accuracy", "kl"]
    assert labels(study(), replace(study(), weights="trained again")) == ["f0", "f1"]


def test_one_setting_for_all_models(tmp_path: Path) -> None:
    # 2 bits are too few for the second model, and uniform is at 3 bits worse than log2 in both.
    one = folder(tmp_path / "one", study(), losses(uniform_2=0.0, uniform_3=0.02, log2_3=0.01, log2_5=0.0))
    two = folder(tmp_path / "two", OTHER, losses(uniform_2=0.5, uniform_3=0.02, log2_3=0.01, log2_4=0.0))
    written = report(one, two, max_drop="4%")
    content = written.content
    assert [shared.name for shared in content.shared] == [
        "uniform with 2 bits",
        "log2 with 3 bits",
        "uniform with 3 bits",
    ]
    assert [shared.within for shared in content.shared] == [False, True, True]
    assert content.together == (
        "log2 with 3 bits keeps the budget in all 2 studies with the fewest bits (m: loss +0.01; other: loss +1 %)."
    )
    assert [study.answer.budget for study in content.studies] == [pytest.approx(0.036), 0.04]
    texts = {path.name: path.read_text(encoding="utf-8") for path in written.files}
    plain = json.loads(texts["report.json"])
    jsonschema.Draft202012Validator(content_schema()).validate(plain)
    assert [other["label"] for other in plain["compared"]] == ["other"]
    rows = list(csv.DictReader(io.StringIO(texts["report.csv"])))
    assert [row["study"] for row in rows] == ["m"] * 4 + ["other"] * 4
    for name in ("report.html", "report.md"):
        assert content.together in texts[name]
        assert "softq sweep other.onnx" in texts[name]
    assert "no setting is shown" not in texts["report.md"].lower()
    assert "No setting is shown to keep the budget in all 2" in report(one, two, max_drop="0%").content.together
    assert "3 settings were measured in all 2 studies" in report(one, two).content.together


def test_a_budget_in_one_unit_is_none_for_two_metrics(tmp_path: Path) -> None:
    folders = [folder(tmp_path / "one", study(), many()), folder(tmp_path / "two", OTHER, losses(uniform_4=0.1))]
    with pytest.raises(UsageError, match="have the metrics perplexity, top1-accuracy; give a share"):
        report(*folders, max_drop=0.01)
    assert not list(folders[0].glob("report.*"))
    done = CliRunner().invoke(main, ["report", *map(str, folders), "--max-drop", "1%"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("No setting")
    assert [line.split(":")[0] for line in lines[1:3]] == ["m", "other"]
