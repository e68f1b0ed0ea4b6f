"""What the site's own pages are made of: formulas, charts, and the pages of methods."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from inspect import getdoc
from pathlib import Path
from sys import modules
from typing import Any

import numpy as np
import pytest

from benchmarks.cards import AMOUNTS
from benchmarks.figures.studies import STUDIES, identity_of
from docs.pages import cards, concepts
from docs.pages.charts import Axis, Line, chart, ticks
from docs.pages.formulas import set_lines, to_mathml, with_formulas
from docs.pages.methods import page
from softq.methods import METHODS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2^b", "<msup><mn>2</mn><mi>b</mi></msup>"),
        ("w[c]", "<msub><mi>w</mi><mi>c</mi></msub>"),
        ("a / b", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
        ("(a) / (b)", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
        ("2^-f", "<msup><mn>2</mn><mrow><mo>−</mo><mi>f</mi></mrow></msup>"),
        ("b^2^t", "<msup><mi>b</mi><msup><mn>2</mn><mi>t</mi></msup></msup>"),
        ("sqrt(x)", "<msqrt><mi>x</mi></msqrt>"),
    ],
)
def test_formulas_are_read_as_mathematics_reads_them(text: str, expected: str) -> None:
    assert to_mathml(text) == expected


@pytest.mark.parametrize("text", ["(a", "a)", "^2", "/ b", "e^"])
def test_what_is_no_formula_is_not_set_as_one(text: str) -> None:
    assert to_mathml(text) is None


def test_powers_in_prose_are_set_and_the_rest_is_left() -> None:
    assert with_formulas("at most 2^(W-1), not more") == (
        "at most <math><msup><mn>2</mn><mrow><mi>W</mi><mo>−</mo><mn>1</mn></mrow></msup></math>, not more"
    )


@pytest.mark.parametrize("method", METHODS.entries().values(), ids=lambda method: method.name)
def test_a_formula_keeps_its_letters_and_numbers(method: object) -> None:
    about = getdoc(modules[method.trace.__module__]) or ""  # pyright: ignore
    for block in re.findall(r"(?:^    .*\n?)+", about, re.MULTILINE):
        shown = set_lines(block.splitlines())
        text = unescape("".join(ET.fromstring(shown).itertext())).replace("·10", "e").replace("−", "-")
        wanted = block.replace("sqrt", "")
        assert re.findall(r"[A-Za-z0-9]", text) == re.findall(r"[A-Za-z0-9]", wanted), block


def test_a_page_of_a_method_has_its_error_and_what_was_measured() -> None:
    text = page(METHODS.entries()["exact"])
    (width, *errors), = re.findall(r"^\| exact \| (\S+) \| (\S+) \| (\S+) \|$", text, re.MULTILINE)  # fmt: skip
    assert all(0 < float(error) < 1e-6 for error in (width, *errors))
    assert "| exact, probabilities | onnxruntime Softmax |" in text
    assert "<svg" in text
    text = page(METHODS.entries()["deferred-log"])
    errors = dict(re.findall(r"^\| (\d) bits \| \S+ \| (\S+) \|", text, re.MULTILINE))
    assert float(errors["2"]) > 2 * float(errors["4"]) > 0


def test_a_chart_has_its_points_where_the_axes_say() -> None:
    axes = (Axis("x", 0, 10, [(0, "0")]), Axis("y", 0, 1, [(1, "one")]))
    drawn = chart("a title", *axes, [Line("rises", [(0, 0), (10, 1)], bars=[(0, 0.5), (0.5, 1)])])
    root = ET.fromstring(drawn.replace("&ensp;", " "))
    path = root.find(".//path")
    assert path is not None
    (x0, y0), (x1, y1) = np.array(re.findall(r"([\d.]+) ([\d.]+)", path.get("d") or ""), float)
    assert x1 > x0
    assert y1 < y0, "greater values stand higher"
    grid = root.find(".//line[@class='grid']")
    assert grid is not None
    assert float(grid.get("y1") or 0) == y1
    assert len(root.findall(".//circle")) == 2


def test_a_picture_of_a_program_has_every_operator() -> None:
    texts = [text.text or "" for text in ET.fromstring(concepts.program().replace("&ensp;", " ")).iter("text")]
    assert len(texts) == 12
    assert texts[0] == "scores: i8"
    assert {"normalizer = row_sum: u32", "weights = lut table of 16: u32"} <= set(texts)


def test_the_division_behind_the_product_loses_less_the_longer_the_row() -> None:
    root = ET.fromstring(concepts.deferral().replace("&ensp;", " "))
    early, rounded, late = (
        np.array(re.findall(r"([\d.]+) ([\d.]+)", path.get("d") or ""), float)[:, 1] for path in root.iter("path")
    )
    assert np.all(late > early), "lower on the page is less"
    assert np.all(late > rounded)
    assert late[-1] - early[-1] > 4 * (late[0] - early[0])


def test_every_verdict_is_counted() -> None:
    text = concepts.verdicts()
    (total,) = re.findall(r"(\d+) softmaxes in", text)
    assert sum(int(count) for count in re.findall(r">(\d+)</text>", text)) == int(total) > 30


def test_ticks_are_round_and_within_the_axis() -> None:
    assert ticks(-0.0046, 0.024, "+.2g") == [(0, "+0"), (0.01, "+0.01"), (0.02, "+0.02")]
    for low, high in ((0.0, 1.0), (-3.0, 11.0), (0.1, 0.13)):
        values = [value for value, _ in ticks(low, high, "g")]
        assert 3 <= len(values) <= 8
        assert low <= values[0] < values[-1] <= high + 1e-9


CARDS = json.loads((Path(__file__).parent.parent / "benchmarks" / "cards.json").read_text(encoding="utf-8"))["studies"]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card["name"])
def test_a_card_is_of_its_model_and_its_numbers_agree(card: dict[str, Any]) -> None:
    (study,) = (study for study in STUDIES if study.name == card["name"])
    if not study.builder:
        assert card["model"] == identity_of(study.place(Path("nowhere")) / study.model)
    amount = AMOUNTS[card["name"]]
    assert {row["method"] for row in card["rows"]} == {"deferred-log", "log2", "uniform"}
    for row in card["rows"]:
        worse = row["value"] / card["float"] - 1 if card["metric"] == "perplexity" else card["float"] - row["value"]
        assert row["loss"] == pytest.approx(worse, abs=1e-6)
        assert row["low"] <= row["loss"] <= row["high"]
        median, low, high = row["time"]
        assert low <= median <= high
    shown = cards.page(card)
    assert (card["plan"] is None) == (amount.max_drop is None)
    if card["plan"] is not None:
        bits = list(card["plan"]["bits"].values())
        assert card["plan"]["mean_bits"] == pytest.approx(sum(bits) / len(bits))
        assert card["plan"]["sentence"] in shown
    assert shown.count("| deferred-log |") == sum(row["method"] == "deferred-log" for row in card["rows"])
