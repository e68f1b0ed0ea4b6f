"""README and docs say what the code and the measurements say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softq.forms import FORMS
from softq.methods import METHODS
from softq.metrics import METRICS
from softq.rowprog.ops import OPS
from softq.targets import TARGETS
from tests.pages import build_pages

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_committed_parts_are_as_measured_and_built_pages_have_every_entry(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pages = build_pages(tmp_path_factory) / "docs"
    built = {page.name: page.read_text(encoding="utf-8") for page in pages.glob("*.md")}
    assert set(built) >= {"index.md", *(page.name for page in PAGES[1:])}
    assert {path.stem for path in (pages / "methods").glob("*.md")} == set(METHODS.entries())
    for method in METHODS.entries().values():
        section = (pages / "methods" / f"{method.name}.md").read_text(encoding="utf-8")
        assert method.summary in section
        assert method.source in section
        assert "\nprogram with the default options:\n" in section
        assert f"| [`{method.name}`](methods/{method.name}.md) |" in built["methods.md"]
    for page, names in (
        ("metrics", METRICS.entries()), ("sites", FORMS.entries()), ("rowprog", OPS), ("targets", TARGETS.entries())
    ):  # fmt: skip
        for name in names:
            assert f"\n| `{name}` | " in built[f"{page}.md"] or f"\n## {name}\n\n```\n{name}: " in built[f"{page}.md"]
    for page, text in built.items():
        assert "<!-- list" not in text, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_the_two_links_at_the_top_lead_into_the_package() -> None:
    for name in ("passes", "targets"):
        assert (ROOT / name).is_symlink()
        assert (ROOT / name).resolve() == ROOT / "softq" / name
