"""`python -m benchmarks.node_tests`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from multiprocessing.pool import AsyncResult
from pathlib import Path

import onnx

import benchmarks.node_tests
from benchmarks.node_tests.cases import Outcome, all_cases, operator_of, outcome

SECONDS = 300
"""What a case may take."""


def main() -> int:
    """Run the cases; return 1 if one is wrong or crashed."""
    parser = argparse.ArgumentParser(
        description=benchmarks.node_tests.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name contains it")
    parser.add_argument("--json", type=Path, help="where the counts are written")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    found = run([name for name in sorted(all_cases()) if options.pattern in name], options.processes)
    for one in found:
        if one.status not in ("right", "left out"):
            print(f"{one.status}: {one.name}: {one.why}")
    counts = Counter(one.status for one in found)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    if options.json is not None:
        options.json.write_text(json.dumps(summary(found), indent=1) + "\n", encoding="utf-8")
    return int(counts["wrong"] + counts["crashed"] > 0)


def run(names: Sequence[str], processes: int) -> list[Outcome]:
    """Return what becomes of cases; one whose process dies, or that takes too long, has crashed."""
    found: list[Outcome] = []
    waiting = list(names)
    while waiting:
        # A dead process hangs its pool: what is left gets a new one.
        with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=200) as pool:
            started: list[tuple[str, AsyncResult[Outcome]]] = [(n, pool.apply_async(outcome, (n,))) for n in waiting]
            for name, result in started:
                waiting.remove(name)
                try:
                    found.append(result.get(SECONDS))
                except multiprocessing.TimeoutError:
                    found.append(Outcome(name, operator_of(all_cases()[name]), "crashed", "it did not come back"))
                    break
                if len(found) % 100 == 0:
                    print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
    return found


def summary(found: Sequence[Outcome]) -> dict[str, object]:
    """Return the counts per operator, and what is not right by name."""
    operators: dict[str, Counter[str]] = {}
    for one in found:
        operators.setdefault(one.operator, Counter())[one.status] += 1
    others = ("left out", "refused", "wrong", "crashed")
    return {
        "onnx": onnx.__version__,
        "counts": Counter(one.status for one in found),
        "operators": {name: dict(counts) for name, counts in sorted(operators.items())},
        **{status: {one.name: one.why for one in found if one.status == status} for status in others},
    }


if __name__ == "__main__":
    sys.exit(main())
