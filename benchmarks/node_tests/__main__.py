"""`python -m benchmarks.node_tests`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.pool import AsyncResult
from pathlib import Path

import onnx

import benchmarks.node_tests
from benchmarks.node_tests.cases import Outcome, Status, all_cases, operator_of, outcome

_OTHERS: tuple[Status, ...] = ("left out", "refused", "wrong", "crashed")
"""What becomes of cases that are not right."""

SECONDS = 300
"""What a case may take."""


def main() -> int:
    """Run the cases; return 1 if one is wrong or crashed."""
    parser = argparse.ArgumentParser(
        description=benchmarks.node_tests.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name contains it")
    parser.add_argument("--json", type=Path, help="file of the counts; those of other cases stay")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    found = run([name for name in sorted(all_cases()) if options.pattern in name], options.processes)
    for one in found:
        if one.status not in ("right", "left out"):
            print(f"{one.status}: {one.name}: {one.why}")
    counts = Counter(one.status for one in found)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    if options.json is not None:
        others = (
            recorded(json.loads(options.json.read_text("utf-8")), found)
            if options.pattern and options.json.exists()
            else []
        )
        options.json.write_text(json.dumps(summary([*found, *others]), indent=1) + "\n", encoding="utf-8")
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


def recorded(facts: Mapping[str, Mapping[str, str]], but: Sequence[Outcome]) -> list[Outcome]:
    """Return what a file says of all cases but these."""
    again = {one.name for one in but}
    found, known = list[Outcome](), dict[str, Status]()
    for status in _OTHERS:
        known |= dict.fromkeys(facts[status], status)
    for name, case in all_cases().items():
        if name not in again:
            what: Status = known.get(name, "right")
            found.append(Outcome(name, operator_of(case), what, "" if what == "right" else facts[what][name]))
    return found


def summary(found: Sequence[Outcome]) -> dict[str, object]:
    """Return the counts per operator, and what is not right by name."""
    operators: dict[str, Counter[str]] = {}
    for one in found:
        operators.setdefault(one.operator, Counter())[one.status] += 1
    found = sorted(found, key=lambda one: one.name)
    return {
        "onnx": onnx.__version__,
        "counts": Counter(one.status for one in found),
        "operators": {name: dict(counts) for name, counts in sorted(operators.items())},
        **{status: {one.name: one.why for one in found if one.status == status} for status in _OTHERS},
    }


if __name__ == "__main__":
    sys.exit(main())
