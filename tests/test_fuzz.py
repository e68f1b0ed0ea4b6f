"""A slice of the fuzzing that `make fuzz` does for as long as one likes, and what it once found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import run, try_case
from tests.fuzz.readers import READERS

CORPUS = sorted((Path(__file__).parent / "fuzz" / "corpus").iterdir())


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_what_once_went_wrong_does_not_again(path: Path, tmp_path: Path) -> None:
    assert try_case(READERS[path.name.split("-")[0]], path.read_bytes(), tmp_path) == ""


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_nearly_right_are_read_or_refused(name: str) -> None:
    counts, wrong = run([name], 60, seed=7, cases=20 if name in {"onnx", "structure"} else 60)
    assert not wrong
    assert counts[name] >= 20


@pytest.mark.parametrize("name", READERS)
def test_seeds_are_read_or_refused(name: str, tmp_path: Path) -> None:
    wrong = [try_case(READERS[name], seed, tmp_path) for seed in READERS[name].seeds()[:6]]
    assert not any(wrong)
