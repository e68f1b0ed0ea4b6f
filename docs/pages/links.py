"""Links of a page that stands in the repository, as they are where it stands in the site."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)#\s]+)")


def place_of(path: Path) -> str:
    """Return where a file of the repository lies in the site: as in docs/, else as in the repository."""
    if path == ROOT / "README.md":
        return "index.md"
    return str(path.relative_to(DOCS if DOCS in path.parents else ROOT))


def to_site(text: str, page: Path, out: Path) -> str:
    """Return a page's text with links that hold in the site; files outside docs/ that it links to are copied there."""

    def replace(match: re.Match[str]) -> str:
        path = (page.parent / match[2]).resolve()
        if not path.is_file():
            raise SystemExit(f"{page.relative_to(ROOT)}: the link to {match[2]} leads to no file")
        place = place_of(path)
        if DOCS not in path.parents and path.suffix != ".md":
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out / place)
        return f"{match[1]}{place}"

    return _LINK.sub(replace, text)
