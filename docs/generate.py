"""Fills the generated parts of README.md and docs/*.md, between `<!-- begin NAME -->` and `<!-- end NAME -->`.

    python docs/generate.py            writes them
    python docs/generate.py --check    says which files differ, exit code 1 if any does

Every generated part comes from the code itself or from what a benchmark wrote, never from a hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for `benchmarks`, which is never installed

from softq.methods import METHODS  # noqa: E402
from softq.metrics import METRICS  # noqa: E402
from softq.passes._forms import FORMS  # noqa: E402
from softq.rowprog.ops import OPS  # noqa: E402
from softq.site import inspection_schema  # noqa: E402
from softq.specification import drop_in_to_text, method_to_text  # noqa: E402
from softq.sweeps.page import content_schema  # noqa: E402
from softq.targets import TARGETS  # noqa: E402


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _ops() -> str:
    rows = [(f"`{op.name}`", op.group, f"`{op.signature}`", op.meaning, op.demands) for op in OPS.values()]
    return _rows(("operator", "group", "types", "meaning", "proved"), rows)


def _methods() -> str:
    return "\n\n".join(f"## {m.name}\n\n```\n{method_to_text(m)}```" for m in METHODS.entries().values())


def _method_list() -> str:
    rows = [(f"`{m.name}`", drop_in_to_text(m), m.summary) for m in METHODS.entries().values()]
    return _rows(("method", "drop-in", "what it is"), rows)


def _metrics() -> str:
    rows = [(f"`{m.name}`", m.unit, m.direction, m.summary) for m in METRICS.entries().values()]
    return _rows(("metric", "unit", "better", "what it says"), rows)


def _targets() -> str:
    return _rows(
        ("target", "what it is", "needs"), [(f"`{t.name}`", t.summary, t.needs) for t in TARGETS.entries().values()]
    )


def _figures() -> str:
    from benchmarks.figures import RESULTS, tables

    return tables(json.loads(RESULTS.read_text(encoding="utf-8")))


def _runtimes() -> str:
    from benchmarks.runtimes import RESULTS

    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [(row["onnxruntime"], str(row["models"]), f"{row['greatest_difference']:.2g}") for row in found["rows"]]
    head = ("onnxruntime", "converted models that run", "greatest difference of a logit from the first row")
    return (
        f"From `{found['command']}`, on the ViT of `models/` with every method, with functions and inlined:\n\n"
        + _rows(head, rows)
    )


def _accuracy() -> str:
    from benchmarks.accuracy import RESULTS, tables

    return tables(json.loads(RESULTS.read_text(encoding="utf-8")))


def _synthetic() -> str:
    from benchmarks.synthetic import RESULTS, overview, table

    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts: list[str] = []
    for name in dict.fromkeys(row["method"] for row in found["rows"]):
        if name.split(",")[0] == "deferred-log":
            parts += [f"`{name}`, {found['bits']} bits, mean (greatest) of a row:", table(found, name)]
    parts += ["All methods, mean of a row over all spreads:", overview(found)]
    return "\n\n".join(parts)


def _speed() -> str:
    from benchmarks.cpu.results import document, load

    return document(load())


def _speed_gpu() -> str:
    from benchmarks.gpu.results import document

    return document()


def _forms() -> str:
    forms = FORMS.entries().values()
    return _rows(("form", "verdict", "what it is"), [(f"`{form.name}`", form.verdict, form.summary) for form in forms])


def _site_schema() -> str:
    return f"```json\n{json.dumps(inspection_schema(), indent=2)}\n```"


def _report_schema() -> str:
    return f"```json\n{json.dumps(content_schema(), indent=1)}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "ops": _ops,
    "methods": _methods,
    "method-list": _method_list,
    "metrics": _metrics,
    "targets": _targets,
    "figures": _figures,
    "accuracy": _accuracy,
    "synthetic": _synthetic,
    "speed": _speed,
    "speed-gpu": _speed_gpu,
    "forms": _forms,
    "site-schema": _site_schema,
    "runtimes": _runtimes,
    "report-schema": _report_schema,
}


def filled(text: str, name: str) -> str:
    """Return the text with its generated parts as they should be; `name` stands in messages."""

    def replace(match: re.Match[str]) -> str:
        part = match.group(1)
        if part not in PARTS:
            raise SystemExit(f"{name}: unknown part {part!r}; there are: {', '.join(PARTS)}")
        return f"<!-- begin {part} -->\n{PARTS[part]()}\n<!-- end {part} -->"

    return re.sub(r"<!-- begin ([\w-]+) -->\n.*?<!-- end \1 -->", replace, text, flags=re.DOTALL)


def files() -> list[Path]:
    """Return every file that may have generated parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main() -> None:
    """Write the parts, or check them."""
    stale: list[str] = []
    for path in files():
        text = path.read_text(encoding="utf-8")
        new = filled(text, path.name)
        if new != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv[1:]:
                path.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        raise SystemExit(f"not as generated: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
