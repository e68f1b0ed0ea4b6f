"""Models are trained, fitted, chosen and judged on different data, and each command takes the part for its purpose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from models._wikipedia import windows
from models.splits import ARTICLES, DIGITS, PURPOSES, SPLITS, count, document, file_of, files_of

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = ("mnist_vit", "wikipedia_lm")
SOURCES = [path for folder in ("benchmarks", "examples", "models", "docs") for path in (ROOT / folder).rglob("*.py")]
BUILDERS = {
    ROOT / "models" / name for name in ("mnist_vit/train.py", "wikipedia_lm/train.py", "minilm.py", "smollm2.py")
}


@pytest.mark.parametrize("model", SPLITS)
def test_parts_share_nothing(model: str) -> None:
    parts = SPLITS[model].parts
    assert set(parts) <= set(PURPOSES)
    assert set(SPLITS[model].files) == set(parts) - {"training"}
    for one, other in combinations(parts, 2):
        assert not set(parts[one]) & set(parts[other]), (one, other)
    assert all(len(set(places)) == len(places) for places in parts.values())


def test_every_digit_and_article_has_a_place() -> None:
    assert sorted(place for part in DIGITS.values() for place in part) == list(range(10000))
    assert sorted(place for part in ARTICLES.values() for place in part) == list(range(92))


def test_evaluation_text_is_nothing_else_for_any_model() -> None:
    texts = [SPLITS[model].parts for model in ("wikipedia_lm", "smollm2")]
    evaluation = {place for parts in texts for place in parts["evaluation"]}
    others = {place for parts in texts for part, places in parts.items() if part != "evaluation" for place in places}
    assert evaluation
    assert not evaluation & others


@pytest.mark.parametrize("model", COMMITTED)
def test_committed_files_hold_their_parts(model: str) -> None:
    seen: dict[bytes, str] = {}
    for part in SPLITS[model].files:
        (rows,) = (
            a for key, a in np.load(ROOT / "models" / model / file_of(model, part)).items() if "label" not in key
        )
        assert len(rows) == count(model, part)
        for row in rows:
            assert seen.setdefault(row.tobytes(), part) == part


def test_windows_are_spread_over_texts_and_lie_in_one() -> None:
    texts = [range(100, 110), range(200, 203), range(300, 325)]
    cut = windows(texts, 4, 3)
    # Of the 2 + 0 + 6 windows the first, the last and the one in between.
    np.testing.assert_array_equal(cut, [range(100, 104), range(308, 312), range(320, 324)])


def test_docs_list_every_part() -> None:
    text = document()
    for model, split in SPLITS.items():
        assert f"**{model}**: {split.data}." in text
        for part in split.files:
            assert all(f"`{name}` {split.files[part][name]}" in text for name in files_of(model, part))


def _calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def _part(call: ast.Call) -> str | None:
    last = call.args[-1]
    return last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_takes_the_part_for_its_purpose(path: Path) -> None:
    """Only builders, which write them, touch evaluation data; what a benchmark fits on is calibration data."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path in BUILDERS or path.name == "splits.py":
        return
    assert "evaluation.npz" not in path.read_text(encoding="utf-8")
    asked = {_part(call) for call in _calls(tree, "file_of", "files_of", "count")}
    assert asked <= {"calibration", "development"}
    names = {
        target.id: node.value
        for node in ast.walk(tree) if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "calibration" and not isinstance(node.value, ast.Constant):
            value = names[node.value.id] if isinstance(node.value, ast.Name) else node.value
            assert {_part(call) for call in _calls(value, "file_of", "files_of")} == {"calibration"}, node.lineno
