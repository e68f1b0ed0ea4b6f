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
    ROOT / "models" / name
    for name in ("mnist_vit/train.py", "wikipedia_lm/train.py", "minilm.py", "smollm2.py", "ocr.py")
}
FIGURES = {
    ROOT / "benchmarks" / "cards.py",
    ROOT / "benchmarks" / "figures" / "__main__.py",
    ROOT / "benchmarks" / "formats" / "models.py",
    ROOT / "models" / "finetune.py",
}
"""The only commands that measure on evaluation data."""


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
    texts = [SPLITS[model].parts for model in ("wikipedia_lm", "smollm2", "ocr")]
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
    """Only builders, which write them, and the figures touch evaluation data; what is fitted on is calibration data."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path in BUILDERS or path.name == "splits.py":
        return
    assert "evaluation.npz" not in path.read_text(encoding="utf-8")
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert path in FIGURES or "evaluation" not in named
    asked = {_part(call) for call in _calls(tree, "file_of", "files_of", "count")}
    # None: the word stands elsewhere in the file.
    assert asked <= {"calibration", "development", None}
    bound = [pair for node in ast.walk(tree) for pair in _bound(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "calibration" and not isinstance(node.value, ast.Constant):
            names = {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
            words = _words(node.value).union(*(_words(value) for name, value in bound if name in names))
            assert words & set(PURPOSES) == {"calibration"}, node.value.lineno


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement binds, with what they are made of."""
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.For):
        targets, value = [node.target], node.iter
    else:
        return
    for name in (inner for target in targets for inner in ast.walk(target)):
        if isinstance(name, ast.Name):
            yield name.id, value


def _words(value: ast.expr) -> set[object]:
    return {inner.value for inner in ast.walk(value) if isinstance(inner, ast.Constant)}
