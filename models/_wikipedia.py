"""The English Wikipedia excerpt inside the gensim wheel, as plain text, one string an article.

The text is CC BY-SA and stays in the wheel; only token ids derived from it are kept here, under the same licence.
The cleaning keeps running prose: no templates, tables, references, headings or list lines. Two known
counts fixed it: 92 articles of 2.5 million characters remain, and the tokenizer of SmolLM2 makes 344 tokens of
"Abstract (law)", so that the last four articles, 512 tokens each at most, have 1,876 tokens to predict.
"""

from __future__ import annotations

import bz2
import html
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from models._common import GENSIM, BuildError, fetch

_MEMBER = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
# Leaves 92 of the 106 articles: what is shorter is a disambiguation page or a list.
_MIN_CHARACTERS = 1600
_ARTICLES = 92

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_EMPTY_REF = re.compile(r"<ref[^>]*/>", re.I)
_BLOCK = re.compile(r"<(ref|math|gallery|timeline|nowiki|imagemap|code|source|pre|score)\b[^>]*>.*?</\1>", re.S | re.I)
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_TABLE = re.compile(r"\{\|(?:(?!\{\|).)*?\n\s*\|\}", re.S)
_LINK = re.compile(r"\[\[(?!\s*(?:file|image|category)\s*:)(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", re.I)
_FILE = re.compile(r"\[\[\s*(?:file|image|category)\s*:[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\]", re.I)
_ANY_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)*([^\[\]|]*)\]\]")
_URL = re.compile(r"\[https?://[^\s\]]*\s*([^\]]*)\]")
_TAG = re.compile(r"<[^>]+>")
_QUOTES = re.compile(r"'{2,}")
_HEADING = re.compile(r"^=+.*=+$")
_SPACES = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Article:
    """One article: its title and its prose, one paragraph a line."""

    title: str
    text: str


def articles() -> list[Article]:
    """Returns the 92 articles of the excerpt in its own order.

    Raises:
        BuildError: the wheel cannot be had, or the excerpt is not the expected one.
    """
    return read_articles(fetch(GENSIM))


def read_articles(wheel: Path) -> list[Article]:
    """Returns the articles of a gensim wheel at `wheel`; see `articles`."""
    with zipfile.ZipFile(wheel) as archive:
        root = ElementTree.fromstring(bz2.decompress(archive.read(_MEMBER)))
    space = root.tag.removesuffix("mediawiki")
    found: list[Article] = []
    for page in root.iter(f"{space}page"):
        if page.find(f"{space}redirect") is not None:
            continue
        text = clean(page.findtext(f"{space}revision/{space}text") or "")
        if len(text) >= _MIN_CHARACTERS:
            found.append(Article(page.findtext(f"{space}title") or "", text))
    if len(found) != _ARTICLES:
        raise BuildError(f"{wheel.name}: {len(found)} articles in the Wikipedia excerpt, expected {_ARTICLES}")
    return found


def windows(texts: Iterable[Sequence[int]], length: int, count: int) -> np.ndarray:
    """Returns `count` windows of token ids, int64 [count, length], spread evenly over these texts, none across two."""
    cut = [ids[start : start + length] for ids in texts for start in range(0, len(ids) - length + 1, length)]
    picked = np.linspace(0, len(cut) - 1, count).round().astype(int)
    return np.asarray([cut[i] for i in picked], dtype=np.int64)


def clean(markup: str) -> str:
    """Returns the prose of a page's wiki markup, one paragraph a line."""
    text = _BLOCK.sub("", _EMPTY_REF.sub("", _COMMENT.sub("", markup)))
    # Templates, tables and links nest; each round removes the innermost ones.
    for pattern, kept in ((_TEMPLATE, ""), (_TABLE, ""), (_TEMPLATE, ""), (_LINK, r"\1"), (_FILE, "")):
        text = _until_stable(pattern, kept, text)
    text = _until_stable(_ANY_LINK, r"\1", text)
    text = _QUOTES.sub("", _TAG.sub("", _URL.sub(r"\1", text)))
    text = html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
    lines = (line.strip() for line in text.split("\n"))
    prose = (line for line in lines if line and line[0] not in "*#:;|!{}" and not _HEADING.match(line))
    return "\n".join(_SPACES.sub(" ", line) for line in prose)


def _until_stable(pattern: re.Pattern[str], kept: str, text: str) -> str:
    while (shorter := pattern.sub(kept, text)) != text:
        text = shorter
    return text
