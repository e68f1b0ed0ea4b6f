"""ONNX's own node tests, each built and run: how wide the front door of `softq build` is.

    python -m benchmarks.node_tests [PATTERN] [--json FILE] [--processes N]

Every case of the onnx package goes through `softq.build` for the processor and is run on its own data; the results are
compared with the case's, in its own tolerance. What is left out, and why, is in `cases.left_out`; a refusal counts as
not right. FILE gets the counts per operator, which docs/operators.md shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "node_tests.json"


def document(facts: Mapping[str, Any]) -> str:
    """Return the counts as Markdown: what is not right, per operator, and what is right in full."""
    counts, operators = facts["counts"], facts["operators"]
    right, refused, wrong, crashed, out = (
        counts.get(status, 0) for status in ("right", "refused", "wrong", "crashed", "left out")
    )
    taken = sum(counts.values()) - out
    lines = [
        f"Of the {taken + out} cases of onnx {facts['onnx']}, {out} are left out; of the other {taken}, "
        f"{right} are right ({right / taken:.1%}), {refused} are refused, {wrong} are wrong, {crashed} crash.",
        "",
        "| operator | right | refused | wrong or crashed | left out |",
        "| --- | --- | --- | --- | --- |",
    ]
    whole = [name for name, row in operators.items() if set(row) == {"right"}]
    for name, row in operators.items():
        if name not in whole:
            cells = (row.get("right", 0), row.get("refused", 0), row.get("wrong", 0) + row.get("crashed", 0))
            lines.append(f"| {name} | {' | '.join(map(str, cells))} | {row.get('left out', 0)} |")
    lines += ["", f"Right in every case: {', '.join(whole)}.", "", "Left out:", ""]
    reasons: dict[str, list[str]] = {}
    for name, reason in facts["left out"].items():
        reasons.setdefault(reason, []).append(name.removeprefix("test_"))
    lines += [f"* {reason}: {', '.join(names)}" for reason, names in sorted(reasons.items())]
    lines += ["", "Refused:", ""]
    lines += [f"* {name.removeprefix('test_')}: {why}" for name, why in facts["refused"].items()]
    return "\n".join(lines)
