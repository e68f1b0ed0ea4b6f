"""README and docs say what the code and the measurements say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import RESULTS, STUDIES, program_hash, tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_generated_parts_are_as_the_code_gives_them() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_figures_are_of_these_programs() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert [study["name"] for study in results["studies"]] == [study.name for study in STUDIES]
    for found, study in zip(results["studies"], STUDIES, strict=True):
        measured = {(row["method"], json.dumps(row["settings"])) for row in found["rows"]}
        assert measured == {(method, json.dumps(dict(settings))) for method, settings in study.settings}
        for row in found["rows"]:
            assert row["program"] == program_hash(row["method"], row["settings"]), "methods changed: run make figures"
    assert tables(results) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_the_two_links_at_the_top_lead_into_the_package() -> None:
    for name in ("passes", "targets"):
        assert (ROOT / name).is_symlink()
        assert (ROOT / name).resolve() == ROOT / "softq" / name
