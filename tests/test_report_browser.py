"""The report in a browser that opens it from disk, with the network off."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from softq.sweeps.report import report
from tests.browser import Browser, find_browser
from tests.test_report_page import CASES, HOSTILE, folder, many, planned, study

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed (apt install chromium)")

CHARTS = 8
"""Four of the chosen site, four over all sites; the accuracy's has a form of its own."""


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as found:
        yield found


def written(browser: Browser, path: Path, case: str) -> Path:
    browser.complaints.clear()
    browser.requests.clear()
    browser.size(1280)
    return report(folder(path, *CASES[case])).files[0]


def quiet(browser: Browser, page: Path) -> bool:
    """Whether nothing was complained of, and nothing but the page was asked for."""
    assert not browser.complaints
    assert set(browser.requests) == {page.resolve().as_uri()}
    return True


def test_every_chart_has_its_marks_and_its_table(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "many")
    browser.open(page)
    assert quiet(browser, page)
    counts = browser.run(
        "[...document.querySelectorAll('.pair .chart')].map((c) => c.querySelectorAll('[aria-label=dot]').length)"
    )
    marks = browser.run("""[...document.querySelectorAll('.pair .chart')].map(
        (c) => c.querySelectorAll('[aria-label=dot] path, [aria-label=dot] circle').length)""")
    assert browser.run("document.querySelectorAll('.main .point').length") == 10
    assert len(counts) == CHARTS
    assert counts == [2] * CHARTS  # a group of marks for each method
    assert marks == [10] * CHARTS  # two methods, five widths
    tables = browser.run("[...document.querySelectorAll('details table')].map((t) => t.rows.length)")
    assert len(tables) >= 6
    assert min(tables) > 1
    assert browser.run("document.querySelectorAll('#site-table tbody tr').length") == 10
    named = "[...document.querySelectorAll('.pair svg')].every((s) => s.getAttribute('role') === 'img' && s.ariaLabel)"
    assert browser.run(named)


def test_the_heat_map_is_chosen_from_by_mouse_and_keys(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "many")
    browser.open(page)
    assert browser.run("document.querySelectorAll('#heat button').length") == 10  # two sites, five widths
    assert browser.run("document.querySelectorAll('#heat button[tabindex=\"0\"]').length") == 1
    browser.click("#heat button[data-site='0'][data-bits='5']")
    assert browser.run("document.getElementById('site-title').textContent") == "Site attn/0"
    assert "node attn/0" in browser.run("document.getElementById('site-facts').textContent")
    before = browser.run("document.querySelector('#chart-site-error svg').outerHTML")
    for key in ("ArrowDown", "ArrowLeft", "Enter"):
        browser.press(key)
    assert browser.run("document.getElementById('site-title').textContent") == "Site attn/1"
    pressed = "[...document.querySelectorAll('#heat [aria-pressed=true]')].map((b) => [b.dataset.site, b.dataset.bits])"
    assert browser.run(pressed) == [["1", "4"]]
    assert browser.run("document.activeElement.dataset.bits") == "4"
    assert browser.run("document.querySelector('#chart-site-error svg').outerHTML") != before
    browser.run("""(() => { const s = document.getElementById('heat-value'); s.selectedIndex = s.options.length - 1;
        s.dispatchEvent(new Event('change')); })()""")
    assert browser.run("document.querySelector('#heat caption').textContent").startswith("loss with this site alone")
    assert "\u2248" in browser.run("document.querySelector('#heat').textContent")
    assert quiet(browser, page)


def pressed(browser: Browser, place: str, row: str) -> object:
    return browser.run(f"[...document.querySelectorAll('#{place} [aria-pressed=true]')].map("
                       f"(b) => [b.dataset.{row}, b.dataset.bits])")  # fmt: skip


def test_the_heads_of_a_site_are_chosen_from_by_mouse_and_keys(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "heads")
    browser.open(page)
    title = "document.getElementById('site-title').textContent"
    drawn = "document.querySelector('#chart-site-error svg').outerHTML"
    browser.run("""(() => { const s = document.getElementById('heat-series');
        s.value = [...s.options].find((o) => o.textContent === 'uniform').value;
        s.dispatchEvent(new Event('change')); })()""")
    browser.click("#heat button[data-site='1'][data-bits='3']")
    # Two widths of three heads, and of the site as a whole.
    assert browser.run("document.querySelectorAll('#heads button').length") == 8
    assert pressed(browser, "heads", "head") == [["all", "3"]]
    assert browser.run("document.querySelector('#heads-table tbody').rows.length") == 6
    site = browser.run(drawn)
    browser.click("#heads button[data-head='2'][data-bits='3']")
    assert browser.run(title) == "Site attn/1, head 2"
    assert browser.run(drawn) != site
    # Errors of head 2 are 1.5 times 2^-bits: 0.1875 at 3 bits.
    assert "0.188" in browser.run('document.querySelector(\'#heads button[data-head="2"][data-bits="3"]\').textContent')
    for key in ("ArrowUp", "ArrowLeft", "Enter"):
        browser.press(key)
    assert browser.run(title) == "Site attn/1, head 1"
    assert pressed(browser, "heads", "head") == [["1", "2"]]
    assert pressed(browser, "heat", "site") == [["1", "2"]]
    browser.click("#heads button[data-head='all'][data-bits='3']")
    assert browser.run(title) == "Site attn/1"
    assert browser.run(drawn) == site
    browser.click("#heads button[data-head='1'][data-bits='2']")
    browser.click("#heat button[data-site='0'][data-bits='2']")
    assert browser.run(title) == "Site attn/0"
    assert quiet(browser, page)


def test_heads_alone_make_a_map_of_the_sites_too(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "only heads")
    browser.open(page)
    # The greatest of a site's heads bounds the site: 1.5 times 2^-2.
    assert browser.run("document.querySelector('#heat button[data-bits=\"2\"]').textContent") == "\u2264 0.375"
    assert browser.run("document.querySelectorAll('#heads button').length") == 6
    assert pressed(browser, "heads", "head") == [["2", "2"]]
    assert browser.run("document.getElementById('site-title').textContent") == "Site attn/0, head 2"
    assert browser.run("document.querySelectorAll('#chart-site-error [aria-label=dot] path, "
                       "#chart-site-error [aria-label=dot] circle').length") == 2  # fmt: skip
    browser.click("#heat button[data-site='1'][data-bits='3']")
    assert browser.run("document.getElementById('site-title').textContent") == "Site attn/1, head 2"
    assert pressed(browser, "heads", "head") == [["2", "3"]]
    assert quiet(browser, page)


def test_a_plan_stands_in_the_page(browser: Browser, tmp_path: Path) -> None:
    page = report(folder(tmp_path, *CASES["many"]), plan=planned(tmp_path / "plan.json")).files[0]
    browser.complaints.clear()
    browser.requests.clear()
    browser.size(400)
    browser.open(page)
    assert browser.run("document.querySelectorAll('#plan table')[1].tBodies[0].rows.length") == 2
    assert "The budget of 1% was kept:" in browser.run("document.getElementById('plan').textContent")
    assert browser.run("document.documentElement.scrollWidth") <= 400
    assert quiet(browser, page)


def test_the_theme_follows_the_system_until_it_is_switched(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "many")
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.scheme("dark")
    browser.open(page)
    dark = browser.run(ground)
    browser.scheme("light")
    light = browser.run(ground)
    assert dark != light
    for name, colour in (("light", light), ("dark", dark), ("automatic", light)):
        browser.click("#theme")
        assert browser.run("document.getElementById('theme').textContent") == f"Theme: {name}"
        assert browser.run(ground) == colour
    assert quiet(browser, page)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_cut_off_and_nothing_complains(browser: Browser, tmp_path: Path, case: str) -> None:
    page = written(browser, tmp_path, case)
    for width in (1280, 400):
        browser.size(width)
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert quiet(browser, page)


def test_hostile_names_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    page = written(browser, tmp_path, "hostile")
    browser.open(page)
    shown = browser.run("[...document.querySelectorAll('#heat th[scope=row]')].map((t) => t.textContent)")
    assert shown == list(HOSTILE)
    assert browser.run("document.title").startswith(HOSTILE[0])
    assert quiet(browser, page)


def test_200_sites(browser: Browser, tmp_path: Path) -> None:
    names = [f"layers.{i}/softmax" for i in range(200)]
    page = report(folder(tmp_path, study(names), many(names))).files[0]
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page)
    assert browser.run("document.querySelectorAll('#heat tbody tr').length") == 200
    assert quiet(browser, page)
