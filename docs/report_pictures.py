"""Takes the pictures of a report that README.md and docs/report.md show, with a Chromium that is installed.

python docs/report_pictures.py sweep/report.html
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for `tests`, which is never installed

from tests.browser import Browser, find_browser  # noqa: E402

PICTURES = (("report-top.png", 1280, 1345, "light"), ("report-light.png", 1280, 1560, "light"),
            ("report-narrow.png", 400, 2000, "dark"))  # fmt: skip
"""Name, width and height in pixels, theme."""


def main(page: Path) -> None:
    """Write the pictures of a page into docs."""
    program = find_browser()
    if program is None:
        raise SystemExit("no Chromium is installed (apt install chromium)")
    with Browser(program) as browser:
        for name, width, height, theme in PICTURES:
            browser.size(width, height)
            browser.scheme(theme)
            browser.open(page)
            (ROOT / "docs" / name).write_bytes(browser.picture(whole=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
