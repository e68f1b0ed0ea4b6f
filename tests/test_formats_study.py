"""The study of number formats: what it measures on, what it fits on, and that its results are of today's models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.figures.studies import ROOT, STUDIES, file_hash, identity_of
from benchmarks.formats.models import some_samples
from benchmarks.formats.rows import DRAWS, FITS, LENGTHS, MEANS, SPREADS, Draw, Weighed
from benchmarks.formats.settings import SETTINGS, SHARES, load
from benchmarks.formats.tables import document
from models.splits import count

FOUND = load()
MODELS = {one["name"]: one for one in FOUND["models"]}
SETTING = {setting.key: setting for setting in SETTINGS}


def test_every_setting_was_measured() -> None:
    assert len(SETTING) == len(SETTINGS)
    assert set(MODELS) == set(SHARES)
    assert len(FOUND["rows"]) == len(SETTINGS) * len(LENGTHS) * len(SPREADS) * len(MEANS)
    for name, share in SHARES.items():
        assert [(row["label"], row["bits"]) for row in MODELS[name]["rows"]] == [s.key for s in share.settings]


def test_samples_are_those_of_the_evaluation_data() -> None:
    for study in STUDIES:
        if study.name not in SHARES:
            continue
        found, total = MODELS[study.name], count(study.split, "evaluation")
        assert (found["of"], found["samples"]) == (total, SHARES[study.name].samples or total)
        if not study.builder:
            place = ROOT / study.folder
            assert found["data"] == file_hash(place / "evaluation.npz")
            assert found["calibration"] == file_hash(place / "calibration.npz")
            assert found["model"] == identity_of(place / study.model)


def test_some_samples_are_the_same_each_time(tmp_path: Path) -> None:
    source = ROOT / "models" / "wikipedia_lm" / "evaluation.npz"
    assert some_samples(source, 12, tmp_path / "a.npz") == 96
    some_samples(source, 12, tmp_path / "b.npz")
    assert file_hash(tmp_path / "a.npz") == file_hash(tmp_path / "b.npz")
    with np.load(source) as whole, np.load(tmp_path / "a.npz") as some:
        assert set(whole.files) == set(some.files)
        places = [int(np.flatnonzero((whole["input_ids"] == row).all(axis=-1))[0]) for row in some["input_ids"]]
        assert places == sorted(set(places))
        np.testing.assert_array_equal(whole["label.tokens"][places], some["label.tokens"])


@pytest.mark.parametrize(
    "key", [("FP8 E4M3", 8), ("NVFP4, exact sum", 4.5), ("NVFP4, V too", 4.5), ("EXAQ, clip fitted", 4)]
)
def test_rows_give_the_committed_errors(key: tuple[str, float]) -> None:
    assert not set(FITS) & set(range(DRAWS))
    draws = [Draw.of(256, 4.0, 1.0, number) for number in range(DRAWS)]
    weighed = Weighed.of(SETTING[key], [Draw.of(256, 4.0, 1.0, number) for number in FITS])
    (row,) = (r for r in FOUND["rows"] if (r["label"], r["bits"]) == key and r["length"] == 256
              and (r["spread"], r["mean"]) == (4.0, 1.0))  # fmt: skip
    assert np.mean([weighed.error(draw) for draw in draws]) == pytest.approx(row["error"], rel=1e-6)


def test_fits_are_per_head() -> None:
    for one in MODELS.values():
        sums = {row["label"]: row["exact_sums"] for row in one["rows"] if "exact_sums" in row}
        assert set(sums) == {s.label for s in SHARES[one["name"]].settings if s.settings.get("sum") == "head"}
        assert all(0 <= exact <= heads for exact, heads in sums.values())
    # Where a language model's V has no mean to keep, the exact sum is taken, as the error of P V asks for.
    exact, heads = next(
        r["exact_sums"] for r in MODELS["Wikipedia language model"]["rows"] if r["label"] == "NVFP4, sum fitted"
    )
    assert 0 < exact < heads


def test_tables_name_what_was_not_measured_on_all() -> None:
    text = document(FOUND)
    for name, share in SHARES.items():
        if share.samples:
            assert f"{share.samples} of {MODELS[name]['of']} of {name}" in text
