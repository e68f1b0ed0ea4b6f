"""Kernels and models beside their rivals on this processor; writes benchmarks/cpu.json, which docs/speed.md shows.

    python -m benchmarks.cpu [--only SECTION ...] [--rounds N] [--threads 1,2]

`--place` and `--work` take a part of a section and `--cpu` makes the kernels for another processor; then nothing is
written.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.cpu.machine import description
from benchmarks.cpu.results import store, table
from benchmarks.cpu.section import Result, Settings
from benchmarks.cpu.sections import SECTIONS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="sections")
    parser.add_argument("--rounds", type=int, help="runs of each, in turn; each section has its own default")
    parser.add_argument("--threads", default="1", help="numbers of threads, as 1,2")
    parser.add_argument("--place", nargs="+", default=[], help="only these shapes or models")
    parser.add_argument("--work", nargs="+", default=[], help="only work whose name contains one of these")
    parser.add_argument("--cpu", default="native", help="LLVM's name of a processor")
    given = parser.parse_args()
    settings = Settings(
        given.rounds, tuple(map(int, given.threads.split(","))), tuple(given.place), tuple(given.work), given.cpu
    )
    for name in given.only:
        found: list[Result] = []
        for result in SECTIONS[name].measure(settings):
            found.append(result)
            print(
                f"{result.place:>12}  {result.threads}  {result.work:44} {result.rival:28} {result.ratio:.3f} "
                f"({result.low:.3f}-{result.high:.3f}; least {result.least:.3f})",
                flush=True,
            )
        if settings.partial:
            print(table(found))
        else:
            options = [f"--only {name}", *_given(given.rounds, given.threads)]
            store(name, " ".join(["python -m benchmarks.cpu", *options]), description(), found)


def _given(rounds: int | None, threads: str) -> list[str]:
    return [f"--rounds {rounds}"] * (rounds is not None) + [f"--threads {threads}"] * (threads != "1")


if __name__ == "__main__":
    sys.exit(main())
