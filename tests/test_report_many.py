"""The report of 25 methods in a browser: its front, legend, table, points, downloads, and two studies on one page."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from softq.sweeps.records import Estimate, Outcome
from softq.sweeps.report import report
from softq.sweeps.report.content import Content
from softq.timing import TimeRatio
from tests.browser import Browser, find_browser
from tests.test_report_browser import quiet
from tests.test_report_page import errors, folder, outcome, study

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed (apt install chromium)")

METHODS = [f"method-{number:02}" for number in range(23)] + ["deferred-log", "uniform"]
SHOWN = "[...document.querySelectorAll('#settings-table tbody tr')].filter((r) => !r.hidden)"


def results(shift: float = 0.0, methods: Sequence[str] = METHODS) -> list[Outcome]:
    """Each method at 2 to 8 bits: the more bits the less loss, each method a little worse than the one before."""
    halves = (0.003, 0.008, 0.002)
    return [
        outcome(method, bits, (1 + number / 5) * 4.0**-bits + shift - 0.002 * (bits == 5 and number == 7),
                halves[number % 3], sites={"attn/0": errors(2.0**-bits)})
        for number, method in enumerate(methods) for bits in range(2, 9)
    ] + [outcome("exact", None, 0.0, 0.001)]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    made = report(folder(tmp_path_factory.mktemp("many"), study(), results()), max_drop="0.02")
    return made.files[0], made.content


@pytest.fixture
def page(browser: Browser, written: tuple[Path, Content]) -> Path:
    browser.complaints.clear()
    browser.requests.clear()
    browser.size(1280)
    browser.open(written[0])
    return written[0]


def shown_methods(browser: Browser) -> list[str]:
    names: list[str] = browser.run(
        "[...document.querySelectorAll('#methods [aria-pressed=true]')].map((b) => b.textContent)"
    )
    return names


def cells(browser: Browser, column: int) -> list[str]:
    found: list[str] = browser.run(f"{SHOWN}.map((r) => r.cells[{column}].textContent)")
    return found


def steps(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "[...document.querySelectorAll('[data-steps] tbody td:nth-child(2)')].map((c) => c.textContent)"
    )
    return found


def test_the_page_finds_the_front_and_the_steps_that_the_report_has(
    browser: Browser, written: tuple[Path, Content], page: Path
) -> None:
    content = written[1]
    front = browser.run("[...document.querySelectorAll('.point.on-front')].map((p) => p.dataset.key)")
    assert sorted(front) == sorted(f"0/{setting}" for setting in content.answer.front)
    assert steps(browser) == [content.settings[step.setting].name for step in content.answer.by_budget]
    assert len(content.answer.front) > 3
    assert len(content.answer.by_budget) > 2
    named = browser.run(
        "[...document.querySelectorAll('.main .labels text:not(.rule, .budget)')].map((t) => t.textContent)"
    )
    assert named == [content.settings[setting].method for setting in content.answer.front]
    assert browser.run("document.querySelectorAll('.main .point').length") == 25 * 7
    assert "1 settings have no bits and stand in the table alone: exact." in browser.run(
        "document.querySelector('.outside').textContent"
    )
    marked = f"{SHOWN}.filter((r) => r.querySelector('[data-front]')).map((r) => '0/' + r.dataset.setting)"
    assert sorted(browser.run(marked)) == sorted(front)
    browser.choose("#across", "widest integer, bits")
    assert sorted(browser.run(marked)) == sorted(
        browser.run("[...document.querySelectorAll('.point.on-front')].map((p) => p.dataset.key)")
    )
    # Of the 25 methods two are installed, and of those one has integers.
    assert browser.run("document.querySelectorAll('.main .point').length") == 15
    assert quiet(browser, page)


@pytest.mark.parametrize("times", [(1.1, 1.3, 1.7), (0.3, 1.5, 40.2)])
def test_points_stand_where_their_numbers_are(browser: Browser, tmp_path: Path, times: tuple[float, ...]) -> None:
    """Times that are close are on a linear axis, those that are far apart on a logarithmic one."""
    timed = [
        replace(outcome("uniform", bits, 0.1 / bits, 0.01), time_ratio=TimeRatio(time, time, time, 1.0, time, 9))
        for bits, time in zip((4, 3, 2), times, strict=True)
    ]
    page = report(folder(tmp_path, study(()), timed), front="time_ratio").files[0]
    browser.complaints.clear()
    browser.requests.clear()
    browser.size(1280)
    browser.open(page)
    boxes = "[...document.querySelectorAll('.main .point')].map((p) => p.getBoundingClientRect())"
    keys = "[...document.querySelectorAll('.main .point')].map((p) => p.dataset.key)"
    places = browser.run(f"{boxes}.map((b) => b.x + b.width / 2)")
    found = dict(zip(browser.run(keys), places, strict=True))
    # Settings are in order of their bits: 2 has the greatest time.
    far, middle, near = (found[f"0/{number}"] for number in range(3))
    grid = "document.querySelector('.axis .grid').getBoundingClientRect()"
    left, right = browser.run(f"[{grid}.left, {grid}.right]")
    assert left < near < middle < far < right
    scale = [math.log(time) for time in times] if times[-1] > 5 * times[0] else list(times)
    assert (middle - near) / (far - near) == pytest.approx((scale[1] - scale[0]) / (scale[2] - scale[0]), abs=0.01)
    assert quiet(browser, page)


def test_methods_are_switched_on_and_off(browser: Browser, page: Path) -> None:
    assert len(shown_methods(browser)) == 26
    browser.click("#methods .key:nth-child(1)")
    assert "method-00" not in shown_methods(browser)
    assert browser.run("document.querySelectorAll('.main .point').length") == 24 * 7
    assert browser.run(f"{SHOWN}.length") == 24 * 7 + 1
    # What is hidden is not on the front either, nor recommended.
    assert steps(browser)
    assert not [name for name in steps(browser) if name.startswith("method-00")]
    browser.click("#methods .key:nth-child(2)", alt=True)
    assert len(shown_methods(browser)) == 1
    assert browser.run("document.querySelectorAll('.main .point').length") == 7
    browser.run("document.querySelector('#methods .key:nth-child(5)').focus()")
    browser.press("Enter")
    assert len(shown_methods(browser)) == 2
    browser.press("Enter", shift=True)
    assert len(shown_methods(browser)) == 1
    browser.press("Enter", shift=True)
    assert len(shown_methods(browser)) == 26
    browser.click("[data-only=front]")
    assert 0 < len(shown_methods(browser)) < 5
    assert browser.run("document.getElementById('methods-count').textContent").endswith("of 26 shown")
    browser.click("[data-only=integer]")
    assert shown_methods(browser) == ["deferred-log"]
    browser.click("[data-only=all]")
    assert len(shown_methods(browser)) == 26
    assert quiet(browser, page)


def test_the_table_sorts_and_is_narrowed(browser: Browser, page: Path) -> None:
    def sorted_by() -> list[list[str]]:
        found: list[list[str]] = browser.run(
            "[...document.querySelectorAll('#settings-table [aria-sort]')].map((h) => [h.dataset.key, h.ariaSort])"
        )
        return found

    losses = "[data-key=loss] button"
    browser.click(f"#settings-table {losses}")
    assert sorted_by() == [["loss", "ascending"]]
    values = [float(text) for text in cells(browser, 2)]
    assert values == sorted(values)
    browser.run(f"document.querySelector('#settings-table {losses}').focus()")
    browser.press("Enter")
    assert sorted_by() == [["loss", "descending"]]
    assert [float(text) for text in cells(browser, 2)] == sorted(values, reverse=True)
    browser.click("#settings-table [data-key=bits] button")
    browser.click("#settings-table [data-key=bits] button")
    assert sorted_by() == [["bits", "descending"]]
    assert cells(browser, 1)[0] == "8"
    assert cells(browser, 1)[-1] == "-"  # without bits comes last either way
    browser.write("#find", "method-07 5 bits")
    assert cells(browser, 0)[0].startswith("method-07 with 5 bits")
    assert browser.run("document.getElementById('count').textContent") == "1 of 176 settings are shown."
    browser.write("#find", "nothing at all")
    assert cells(browser, 0) == []
    browser.write("#find", "METHOD-01")
    assert len(cells(browser, 0)) == 7
    browser.choose("#only", "what is within the budget")
    assert set(cells(browser, 4)) == {"yes"}
    head = "document.querySelector('#settings-table thead th').getBoundingClientRect().top"
    before = browser.run(head)
    browser.run("document.getElementById('settings-table').parentElement.scrollTop = 40")
    assert browser.run(head) == pytest.approx(before, abs=40)
    assert quiet(browser, page)


def test_points_are_reached_by_keys_and_by_the_mouse(
    browser: Browser, written: tuple[Path, Content], page: Path
) -> None:
    answer = written[1].answer
    focus = "document.activeElement.getAttribute('aria-label')"
    assert browser.run("document.querySelectorAll('.point[tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('#across').focus()")
    for _ in range(40):
        browser.press("Tab")
        if browser.run("document.activeElement.classList.contains('point')"):
            break
    assert answer.setting is not None
    assert browser.run(focus).startswith(written[1].settings[answer.setting].name + ", loss ")
    browser.press("Home")
    first = written[1].settings[answer.front[0]]
    assert browser.run(focus).startswith(f"{first.name}, loss +0.0625 (+0.0595 to +0.0655), top1-accuracy 0.838")
    assert browser.run(focus).endswith("on the front")
    assert first.name in browser.run("document.querySelector('.tip').textContent")
    browser.press("ArrowRight")
    assert browser.run(focus).startswith("method-00 with 3 bits")
    browser.press("ArrowUp")
    assert browser.run(focus).startswith("method-01 with 3 bits")
    browser.press("Enter")
    assert browser.run(focus).startswith("method-01 with 3 bits")  # the chart is drawn anew, and keeps the focus
    assert "method-01 with 3 bits" in browser.run("document.getElementById('chosen').textContent")
    assert browser.run(f"{SHOWN}.filter((r) => r.className === 'pinned').map((r) => r.cells[0].textContent)") == [
        "method-01 with 3 bits"
    ]
    browser.press("Escape")
    assert browser.run("document.getElementById('chosen').hidden")
    browser.click(".point[data-key='0/2']")
    assert not browser.run("document.getElementById('chosen').hidden")
    browser.click("#chosen button:nth-child(2)")
    assert browser.run("document.activeElement.dataset.setting") == "2"
    assert quiet(browser, page)


def test_what_is_shown_is_saved(browser: Browser, written: tuple[Path, Content], page: Path, tmp_path: Path) -> None:
    browser.write("#find", "method-03")
    browser.click("#settings-table [data-key=loss] button")
    table = browser.download("#save-csv", tmp_path)
    assert table.suffix == ".csv"
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (page.parent / "report.csv").open(encoding="utf-8", newline="") as file:
        whole = {row["setting"]: row for row in csv.DictReader(file)}
    assert [row["bits"] for row in rows] == list("8765432")
    assert len(rows[0]) > 15
    # As the report's own file, but for the errors of sites; Python writes 1e-05 and JavaScript 0.00001.
    numbers = ("loss", "loss_low", "loss_high", "metric", "metric_low", "metric_high")
    for row in rows:
        same = whole[row["setting"]]
        assert json.loads(row.pop("options")) == json.loads(same.pop("options"))
        assert {name: value for name, value in row.items() if name not in numbers} == {
            name: same[name] for name in row if name not in numbers
        }
        assert [float(row[name]) for name in numbers] == [float(same[name]) for name in numbers]
    saved = json.loads(browser.download("#save-json", tmp_path).read_text(encoding="utf-8"))["settings"]
    assert [one["loss"] for one in saved] == [float(row["loss"]) for row in rows]
    assert saved[0]["options"] == {"bits": 8}
    assert quiet(browser, page)


def test_at_400_pixels_what_is_cut_has_a_sign(browser: Browser, page: Path) -> None:
    browser.size(400)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    cut = """[...document.querySelectorAll('main *')].filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 2
        && getComputedStyle(e).overflowX !== 'visible' && !e.closest('svg'))"""
    assert browser.run(f"{cut}.length") >= 2
    assert browser.run(f"{cut}.every((e) => e.parentElement.classList.contains('more-right'))")
    sign = "getComputedStyle(document.querySelector('#settings .sign.right')).display"
    assert browser.run(sign) == "block"
    browser.run("(() => { const s = document.querySelector('#settings .scroll'); s.scrollLeft = s.scrollWidth; })()")
    browser.size(400, 901)
    assert browser.run(sign) == "none"
    outside = """[...document.querySelectorAll('.main svg text')].filter((t) => {
        const b = t.getBoundingClientRect(); return b.left < 0 || b.right > innerWidth; }).length"""
    assert browser.run(outside) == 0
    assert not browser.run("document.getElementById('methods-box').open")  # the plot comes first
    assert quiet(browser, page)


def test_studies_of_one_metric_share_a_chart(browser: Browser, tmp_path: Path) -> None:
    few = METHODS[:9]
    words = study(relative=True)
    found = [
        (study(), results(methods=few)),
        (replace(study(), weights="others"), results(0.01, few)),
        (replace(words, metric="perplexity", reference=Estimate(9.0)), results(methods=few)),
    ]
    names = ["one", "two", "three"]
    folders = [folder(tmp_path / name, *one) for name, one in zip(names, found, strict=True)]
    made = report(*folders, max_drop="10%")
    browser.complaints.clear()
    browser.requests.clear()
    browser.size(1280)
    browser.open(made.files[0])
    marks = "[...document.querySelectorAll('.main')].map((c) => c.dataset.marks)"
    assert browser.run(marks) == ["126", "63"]
    assert browser.run("[...document.querySelectorAll('#studies .key')].map((b) => b.textContent)") == names
    browser.click("#studies .key:nth-child(1)")
    assert browser.run(marks) == ["63", "63"]
    assert browser.run(f"{SHOWN}.length") == 2 * 64
    assert browser.run("document.querySelectorAll('#shared-table tbody tr').length") == 64
    browser.choose("#heat-study", "three")
    assert browser.run("document.querySelectorAll('#heat button').length") == 7
    browser.size(400)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    assert quiet(browser, made.files[0])
