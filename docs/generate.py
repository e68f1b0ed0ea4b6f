"""Builds the documentation: the pages of docs/ with everything in them that comes from the code or from a benchmark.

    python docs/generate.py [--out build/docs]    fills what is committed, and writes all pages with their lists
    python docs/generate.py --check [--out DIR]   changes nothing that is committed; exit code 1 if it is not as filled

Committed are results and contracts: tables that a benchmark wrote, and JSON schemas, in README.md and docs/*.md between
`<!-- begin NAME -->` and `<!-- end NAME -->`. Lists of what the code has (methods, metrics, forms, passes, targets,
operators) and pictures are in the built pages only, in the place of a line `<!-- list NAME -->` or `<!-- picture NAME
-->`: an entry changes no committed page.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "pages"
sys.path.insert(0, str(ROOT))  # for `benchmarks` and `docs`, which are never installed

from docs.pages import cards, concepts, methods, reference  # noqa: E402
from docs.pages.formulas import set_lines  # noqa: E402
from docs.pages.links import place_of, to_site  # noqa: E402
from softq.formatting import target_to_text  # noqa: E402
from softq.forms import FORMS  # noqa: E402
from softq.metrics import METRICS  # noqa: E402
from softq.passes import PASSES  # noqa: E402
from softq.profiles import load_profile, profile_names  # noqa: E402
from softq.profiles.checks import Told  # noqa: E402
from softq.rowprog.ops import OPS  # noqa: E402
from softq.site import inspection_schema  # noqa: E402
from softq.sweeps.report import content_schema  # noqa: E402
from softq.targets import TARGETS  # noqa: E402


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _ops() -> str:
    rows = [
        (f"`{op.name}`", op.group, f"`{op.signature}`", op.meaning, "; ".join(demand.text for demand in op.demands))
        for op in OPS.values()
    ]
    return _rows(("operator", "group", "types", "meaning", "proved"), rows)


def _metrics() -> str:
    rows = [(f"`{m.name}`", m.unit, m.direction, m.summary) for m in METRICS.entries().values()]
    return _rows(("metric", "unit", "better", "what it says"), rows)


def _targets() -> str:
    return "\n\n".join(f"## {t.name}\n\n```\n{target_to_text(t)}```" for t in TARGETS.entries().values())


def _figures() -> str:
    from benchmarks.figures.studies import RESULTS
    from benchmarks.figures.tables import figures_table

    return figures_table(json.loads(RESULTS.read_text(encoding="utf-8")))


def _headline() -> str:
    from benchmarks.figures.studies import RESULTS
    from benchmarks.figures.tables import headline_table

    return headline_table(json.loads(RESULTS.read_text(encoding="utf-8")))


def _calibration() -> str:
    from benchmarks.figures.studies import RESULTS
    from benchmarks.figures.tables import calibration_table

    return calibration_table(json.loads(RESULTS.read_text(encoding="utf-8")))


def _counts() -> str:
    from benchmarks.figures.counts import RESULTS, table

    return table(json.loads(RESULTS.read_text(encoding="utf-8")))


def _fpga_rows() -> str:
    from benchmarks.fpga_rows import document, load

    return document(load())


def _audit() -> str:
    from benchmarks.audit.results import load, table

    return table(load())


def _mcu() -> str:
    from benchmarks.mcu.results import results, table

    return table(results())


def _mcu_products() -> str:
    from benchmarks.mcu.results import products_table

    return products_table()


def _mcu_models() -> str:
    from benchmarks.mcu.results import models_table

    return models_table()


def _mcu_rivals() -> str:
    from benchmarks.mcu.results import rivals_table

    return rivals_table()


def _fpga_rivals() -> str:
    from benchmarks.fpga.rivals import document

    return document()


def _fpga() -> str:
    from benchmarks.fpga.results import document

    return document()


def _fpga_prices() -> str:
    from benchmarks.fpga.estimate import document_prices

    return document_prices()


def _fpga_estimate() -> str:
    from benchmarks.fpga.estimate import document

    return document()


def _training() -> str:
    from models.finetuned import results, table

    return table(results())


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


def _octaves() -> str:
    from benchmarks.octaves import RESULTS, document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _synthetic() -> str:
    from benchmarks.synthetic import RESULTS, overview, table

    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts: list[str] = []
    for name in dict.fromkeys(row["method"] for row in found["rows"]):
        if name.split(",")[0] == "deferred-log":
            parts += [f"`{name}`, {found['bits']} bits, mean (greatest) of a row:", table(found, name)]
    parts += ["All methods, mean of a row over all spreads:", overview(found)]
    return "\n\n".join(parts)


def _formats() -> str:
    from benchmarks.formats.settings import load
    from benchmarks.formats.tables import document

    return document(load())


def _speed() -> str:
    from benchmarks.cpu.results import document, load

    return document(load())


def _speed_gpu() -> str:
    from benchmarks.gpu.results import document

    return document()


def _third_party() -> str:
    from benchmarks.third_party.results import document

    return document()


def _tool_variants() -> str:
    from benchmarks.tool_variants import RESULTS, document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _onnxruntime() -> str:
    from benchmarks.onnxruntime import RESULTS
    from benchmarks.onnxruntime_table import document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _qdq() -> str:
    from benchmarks.qdq import RESULTS
    from benchmarks.qdq_tables import document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _qdq_choices() -> str:
    from benchmarks.qdq_choices import RESULTS, document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _node_tests() -> str:
    from benchmarks.node_tests import RESULTS, document

    return document(json.loads(RESULTS.read_text(encoding="utf-8")))


def _forms() -> str:
    forms = FORMS.entries().values()
    return _rows(("form", "verdict", "what it is"), [(f"`{form.name}`", form.verdict, form.summary) for form in forms])


def _division() -> str:
    return set_lines(["    output = sum(w_j V_j) / sum(w_j)"])


def _profiles() -> str:
    parts: list[str] = []
    for name in profile_names():
        profile = load_profile(name)
        rows = [
            (part, rule.subject + (" (told)" if isinstance(rule.check, Told) else ""), rule.says,
             f"[{rule.source.title}]({rule.source.url}), {rule.source.version}", rule.source.read.isoformat())
            for part, rules in (("softmax", profile.softmax), ("attention", profile.attention)) for rule in rules
        ]  # fmt: skip
        rows += [
            (part, ", ".join(said), "not stated", "", "") for part, said in profile.not_stated.items() if said
        ]  # fmt: skip
        head = f"{profile.summary}. Read from {profile.release}."
        parts += [f"### {name}", head, _rows(("of", "subject", "rule", "source", "read"), rows)]
    return "\n\n".join(parts)


def _passes() -> str:
    return _rows(("pass", "what it does"), [(f"`{p.name}`", p.summary) for p in PASSES.entries().values()])


def _site_schema() -> str:
    return f"```json\n{json.dumps(inspection_schema(), indent=2)}\n```"


def _report_schema() -> str:
    return f"```json\n{json.dumps(content_schema(), indent=1)}\n```"


def _scale() -> str:
    from benchmarks.scale import document

    return document()


def _limits() -> str:
    from softq.limits import describe

    return _rows(("limit", "default", "of what"), [(f"`{n}`", f"{most:,}", about) for n, most, about in describe()])


def _data() -> str:
    from models.splits import document

    return document()


COMMITTED: dict[str, Callable[[], str]] = {
    "figures": _figures,
    "headline": _headline,
    "calibration": _calibration,
    "counts": _counts,
    "accuracy": _accuracy,
    "octaves": _octaves,
    "synthetic": _synthetic,
    "audit": _audit,
    "formats": _formats,
    "fpga-rows": _fpga_rows,
    "mcu": _mcu,
    "mcu-products": _mcu_products,
    "mcu-models": _mcu_models,
    "mcu-rivals": _mcu_rivals,
    "fpga": _fpga,
    "fpga-estimate": _fpga_estimate,
    "fpga-prices": _fpga_prices,
    "fpga-rivals": _fpga_rivals,
    "training": _training,
    "speed": _speed,
    "speed-gpu": _speed_gpu,
    "node-tests": _node_tests,
    "onnxruntime": _onnxruntime,
    "qdq": _qdq,
    "qdq-choices": _qdq_choices,
    "site-schema": _site_schema,
    "runtimes": _runtimes,
    "third-party": _third_party,
    "data": _data,
    "scale": _scale,
    "limits": _limits,
    "tool-variants": _tool_variants,
    "report-schema": _report_schema,
}
LISTS: dict[str, Callable[[], str]] = {
    "methods": methods.overview,
    "metrics": _metrics,
    "targets": _targets,
    "forms": _forms,
    "passes": _passes,
    "profiles": _profiles,
    "ops": _ops,
    "cards": cards.overview,
    "division": _division,
    **concepts.PICTURES,
}


def fill(text: str, name: str) -> str:
    """Return the text with its committed parts as they should be; `name` stands in messages."""

    def replace(match: re.Match[str]) -> str:
        part = match.group(1)
        return f"<!-- begin {part} -->\n{_known(COMMITTED, part, name)()}\n<!-- end {part} -->"

    return re.sub(r"<!-- begin ([\w-]+) -->\n.*?<!-- end \1 -->", replace, text, flags=re.DOTALL)


def add_lists(text: str, name: str) -> str:
    """Return the text with each list in the place of its line; `name` stands in messages."""
    return re.sub(r"<!-- (?:list|picture) ([\w-]+) -->", lambda match: _known(LISTS, match.group(1), name)(), text)


def _known(parts: dict[str, Callable[[], str]], part: str, name: str) -> Callable[[], str]:
    if part not in parts:
        raise SystemExit(f"{name}: unknown part {part!r}; there are: {', '.join(parts)}")
    return parts[part]


def main() -> None:
    """Fill or check the committed parts, and build the pages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="change nothing that is committed")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="where the pages go")
    given = parser.parse_args()
    stale: list[str] = []
    given.out.mkdir(parents=True, exist_ok=True)
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        filled = fill(text, path.name)
        if filled != text:
            stale.append(str(path.relative_to(ROOT)))
            if not given.check:
                path.write_text(filled, encoding="utf-8")
        page = given.out / place_of(path)
        page.write_text(add_lists(to_site(filled, path, given.out), path.name), encoding="utf-8")
    for place, text in {**reference.pages(), **methods.pages(), **cards.pages()}.items():
        (given.out / place).parent.mkdir(exist_ok=True)
        (given.out / place).write_text(text, encoding="utf-8")
    for image in (*(ROOT / "docs").glob("*.png"), *(ROOT / "docs").glob("*.svg")):
        shutil.copy(image, given.out)
    for asset in (*PAGES.glob("assets/*"), *PAGES.glob("vendor/*")):
        (given.out / "assets").mkdir(exist_ok=True)
        shutil.copy(asset, given.out / "assets")
    if stale and given.check:
        raise SystemExit(f"not as filled: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
