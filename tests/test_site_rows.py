"""Errors of sites beside a sweep: what they are, that they are the same whoever measures, and sites that are hidden."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import parser

from softq.cli import main
from softq.data import TensorSpec, open_data
from softq.errors import UsageError
from softq.methods import Sample
from softq.modelfile import as_model, save
from softq.sweeps import Selection, Task, run
from softq.sweeps.evaluate.row_errors import SiteRows
from softq.sweeps.plan.search import find_plan
from softq.sweeps.sensitivity import run as sensitivity
from tests.test_sensitivity import planned
from tests.test_sweep import IMAGES, VIT, plain

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
m (float[N,2,4,6] s, float[N,2,6,3] v) => (float[N,2,4,3] y) {
  p = Softmax(s)
  a = MatMul(p, v)
  yes = Constant<value = bool {1}>()
  b = If (yes) <
    then_branch = t () => (float[N,2,4,3] c) {
      hidden = Softmax(s)
      c = MatMul(hidden, v)
    },
    else_branch = e () => (float[N,2,4,3] d) { d = Identity(a) }>
  y = Add(a, b)
}"""


@pytest.fixture
def hidden(tmp_path: Path) -> tuple[Path, Path]:
    """A model with one site in the graph and one in a branch, and data for it."""
    model, data = tmp_path / "m.onnx", tmp_path / "d.npz"
    save(as_model(parser.parse_model(TEXT)), model)
    rng = np.random.default_rng(0)
    np.savez(data, s=rng.normal(size=(12, 2, 4, 6)).astype(np.float32) * 3,
             v=rng.normal(size=(12, 2, 6, 3)).astype(np.float32))  # fmt: skip
    return model, data


def test_a_sweep_has_the_errors_of_each_site(tmp_path: Path) -> None:
    """They are those of the sensitivity of the site, since both look at the rows of the float model."""
    given: dict[str, Any] = {"metric": "top1-accuracy", "methods": "uniform,deferred-log", "bits": "2,4", "samples": 64}
    swept = run(VIT, IMAGES, out=tmp_path / "a", threads=1, **given)
    alone = sensitivity(VIT, IMAGES, out=tmp_path / "b", threads=1, top=0, **given)
    found = {
        (o.setting.method, o.setting.options["bits"], site): e for o in swept.outcomes for site, e in o.sites.items()
    }
    assert len(found) == 4 * 4
    for one in alone.outcomes:
        (errors,) = one.sites.values()
        assert found[one.setting.method, one.setting.options["bits"], str(one.setting.site)] == errors
    assert all(o.samples == 64 for o in swept.outcomes)


def test_rows_of_several_lengths_and_heads_are_those_of_each_together() -> None:
    rng = np.random.default_rng(1)
    samples = [
        Sample(
            rng.normal(size=(rows, length)).astype(np.float32), rng.normal(size=(length, 3)).astype(np.float32), head
        )
        for rows, length, head in ((8, 5, 0), (3, 9, 1), (8, 5, 1), (2, 9, 0))
    ]
    plan = planned("uniform", bits=3)
    whole, parts = SiteRows(samples).errors(plan), [SiteRows([one]).errors(plan) for one in samples]
    counts = np.array([one.rows for one in parts])
    assert whole.rows == counts.sum() == 21
    for name in ("argmax_flips", "top5_flips", "mean_row_sum"):
        assert getattr(whole, name) == pytest.approx(np.average([getattr(e, name) for e in parts], weights=counts))
    exact = [np.exp(s.scores.astype(np.float64)) for s in samples]
    sizes = np.array(
        [np.sum((p / p.sum(-1, keepdims=True) @ s.values) ** 2) for p, s in zip(exact, samples, strict=True)]
    )
    change = [float(e.output_error or 0) ** 2 * size for e, size in zip(parts, sizes, strict=True)]
    assert whole.output_error == pytest.approx(math.sqrt(sum(change) / sizes.sum()))


def test_of_equal_weights_the_first_is_greater() -> None:
    """Against a stable sort, on rows with many ties and fewer than five elements too."""
    rng = np.random.default_rng(2)
    for length in (1, 3, 12):
        scores = rng.integers(0, 4, size=(200, length)).astype(np.float32)
        errors = SiteRows([Sample(scores, None, 0)]).errors(planned("uniform", bits=2))
        p = np.exp(scores.astype(np.float64))
        p /= p.sum(-1, keepdims=True)
        codes = np.rint(p * 3)
        ours, theirs = (np.argsort(-w, axis=-1, kind="stable")[:, :5] for w in (p, codes))
        assert errors.argmax_flips == np.mean(ours[:, 0] != theirs[:, 0])
        assert errors.top5_flips == np.mean((np.sort(ours) != np.sort(theirs)).any(-1))


def test_a_hidden_site_is_left_out_with_a_note(tmp_path: Path, hidden: tuple[Path, Path]) -> None:
    model, data = hidden
    given = ["--data", str(data), "--metric", "relative-error", "--methods", "uniform", "--bits", "3", "--threads", "1"]
    swept = CliRunner().invoke(main, ["sweep", str(model), *given, "--out", str(tmp_path / "sweep"), "--json"])
    assert swept.exit_code == 0, swept.output
    found = json.loads(swept.stdout)
    assert len(found["study"]["sites"]) == 2
    (one,) = found["outcomes"]
    assert (set(one["sites"]), one["samples"]) == ({"p"}, 12)
    (note,) = found["notes"]
    assert note.endswith("hidden: it lies in a subgraph or function")
    assert note in swept.stderr

    alone = CliRunner().invoke(main, ["sensitivity", str(model), *given, "--out", str(tmp_path / "alone"), "--json"])
    assert alone.exit_code == 0, alone.output
    outcomes = {o["setting"]["site"]: o for o in json.loads(alone.stdout)["outcomes"]}
    (unseen,) = set(outcomes) - {"p"}
    assert outcomes[unseen]["sites"] == {}
    assert outcomes[unseen]["loss"]["value"] > 0
    few = CliRunner().invoke(main, ["sensitivity", str(model), *given, "--out", str(tmp_path / "few"), "--top", "0"])
    assert few.exit_code == 0, few.output
    assert "left out: 1 setting of sites without errors" in few.stderr
    heads = CliRunner().invoke(
        main, ["sensitivity", str(model), *given, "--out", str(tmp_path / "heads"), "--granularity", "head", "--json"]
    )
    assert [(o["setting"]["site"], o["setting"]["head"]) for o in json.loads(heads.stdout)["outcomes"]] == [
        ("p", 0), ("p", 1)
    ]  # fmt: skip


def test_a_hidden_site_stays_float_in_a_plan(hidden: tuple[Path, Path]) -> None:
    model, data = hidden
    found = find_plan(
        Task(model, data, "relative-error", Selection(), threads=1), max_drop=1, methods="uniform", bits="4"
    )
    assert [site.id for site in found.plan.sites] == ["p"]
    assert sorted(found.bits.values()) == [4, 32]
    assert found.mean_bits == 18
    assert any("stays float, since its errors are not known" in note for note in found.notes)


def test_scores_that_are_nan_are_a_note(tmp_path: Path, hidden: tuple[Path, Path]) -> None:
    model, data = hidden
    with np.load(data) as arrays:
        s, v = arrays["s"].copy(), arrays["v"]
    s[3, 0, 0, 0] = np.nan
    np.savez(data, s=s, v=v)
    found = run(model, data, out=tmp_path / "out", metric="relative-error", methods="uniform", bits="3", threads=1)
    assert found.outcomes[0].sites == {}
    assert any("site p: " in note and "are NaN" in note for note in found.notes)


def test_workers_find_the_same_errors(tmp_path: Path) -> None:
    given = {"metric": "top1-accuracy", "methods": "uniform", "bits": "2,3", "samples": 16, "threads": 1}
    one = run(VIT, IMAGES, out=tmp_path / "one", **given)  # pyright: ignore
    two = run(VIT, IMAGES, out=tmp_path / "two", workers=2, **given)  # pyright: ignore
    assert all(len(o.sites) == 4 for o in one.outcomes)
    assert plain(two.outcomes) == plain(one.outcomes)


def test_data_are_sampled_evenly(tmp_path: Path) -> None:
    for number in range(3):
        rows = np.arange(20 * number, 20 * number + 20, dtype=np.float32)
        np.savez(tmp_path / f"{number}.npz", x=rows[:, None])
    specs = [TensorSpec("x", "float32", ("N", 1))]
    data = open_data(tmp_path, specs)

    def seen(count: int, size: int) -> list[int]:
        part = data.spread(count, size)
        values = [int(v) for batch in part.batches(size) for v in batch.inputs["x"][:, 0]]
        assert len(values) == part.samples
        return values

    # A quarter of 60 is 15, cut to whole batches of 2: 14; the third starts at 30, the last at 44.
    assert seen(4, 2) == [0, 1, 14, 15, 30, 31, 44, 45]
    assert seen(30, 2) == list(range(60))
    assert seen(1, 3) == [0, 1, 2]
    assert seen(2, 25) == [*range(25), *range(25, 50)]
    with pytest.raises(UsageError, match="batch is 0"):
        data.spread(4, 0)
    uncounted = open_data([{"x": np.zeros((5, 1), np.float32)}] * 4, specs)
    assert sum(batch.samples for batch in uncounted.spread(3, 2).batches(2)) == 6
