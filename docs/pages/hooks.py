"""What mkdocs calls: a page that mkdocs.yml does not name still has its place among the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

GUIDES = "Guides"
FOLDERS = {"Methods": "methods", "Cards": "cards"}
"""Sections, and the folder whose pages stand at their ends."""


def on_config(config: Any) -> Any:
    """Add the generated pages to their sections, and pages that stand in none to the guides."""
    docs = Path(config.docs_dir)
    sections = {name: pages for entry in config.nav for name, pages in entry.items() if isinstance(pages, list)}
    for section, folder in FOLDERS.items():
        found = sorted(docs.glob(f"{folder}/*.md"), key=lambda path: path.stem)
        sections[section] += [path.relative_to(docs).as_posix() for path in found]
    listed = [page for pages in sections.values() for page in pages]
    listed += [page for entry in config.nav for page in entry.values() if isinstance(page, str)]
    named = set(listed)
    if len(named) < len(listed):
        raise PluginError(f"named twice: {', '.join(sorted(page for page in named if listed.count(page) > 1))}")
    sections[GUIDES] += sorted({path.name for path in docs.glob("*.md")} - named)
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Leave out what mkdocs-click shows as the default of an option that has none."""
    return html.replace("<code>Sentinel.UNSET</code>", "")
