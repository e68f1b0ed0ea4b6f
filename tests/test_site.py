"""The site of the documentation: complete, without the network, readable in a browser."""

from __future__ import annotations

import re
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from softq.cli import main
from tests.browser import Browser, find_browser
from tests.pages import build_pages

PROGRAM = find_browser()
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed (apt install chromium)")
WIDTHS = (1280, 400)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_pages(tmp_path_factory) / "site"


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as one:
        yield one


class References(HTMLParser):
    """What a page links to, what it loads, and the names of its places."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given["href"])
        self.loads += [given["src"]] if "src" in given else []


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: References(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 30
    for page, found in pages.items():
        for target in (*found.links, *found.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                assert target not in found.loads, (page.name, target)
                assert parts.scheme in ("https", "mailto"), (page.name, target)
                assert parts.scheme == "mailto" or re.fullmatch(r"[\w.-]+\.[a-z]+", parts.netloc), (page.name, target)
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert there.is_file(), (page.name, target)
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].places, (page.name, target)


def test_the_reference_has_every_command_and_no_words_of_python(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    table = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    names = main.list_commands(click.Context(main))
    assert len(names) > 15
    for name in names:
        assert f'id="softq-{name}"' in page, name
        assert f"`softq {name}" in table, name
    assert "Sentinel" not in page


@needs_browser
def test_search_works_from_a_file_without_the_network(site: Path, browser: Browser) -> None:
    browser.requests.clear()
    browser.open(site / "reliability.html")
    browser.run("document.querySelector('[data-md-component=search-query]').focus()")
    browser.ask("Input.insertText", text="signed artifacts")
    found = browser.run("""new Promise((done, fail) => {
        const end = Date.now() + 20000
        const look = () => {
            const all = [...document.querySelectorAll('.md-search-result__link')].map((e) => e.getAttribute('href'))
            if (all.length) done(all)
            else if (Date.now() > end) done([])
            else setTimeout(look, 50)
        }
        look()
    })""")
    assert any("signing.html" in link for link in found), found
    assert browser.requests
    assert all(url.startswith(("file:", "data:", "blob:")) for url in browser.requests), browser.requests


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways_and_no_picture_loses_text(site: Path, browser: Browser, width: int) -> None:
    browser.size(width)
    browser.complaints.clear()
    for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= width, page.name
        cut = browser.run("""[...document.querySelectorAll('svg.softq text')].filter((text) =>
            text.getBoundingClientRect().right > text.ownerSVGElement.getBoundingClientRect().right + 1
        ).map((text) => text.textContent)""")
        assert cut == [], page.name
    assert not browser.complaints
