"""softq's kernels beside torch's on this computer's GPU; writes benchmarks/gpu.json, which docs/speed-gpu.md shows.

    python -m benchmarks.gpu [--only softmax attention models products] [--rounds N] [--lengths 512 ...] [--tune]

Needs an NVIDIA GPU, its driver and a torch for it: where there is no nvcc, kernels are compiled by the NVRTC that torch
brings. The section `models` builds attentions as `softq build` does, and needs softq[tvm] too. Every result is compared
with float64 before it is timed. With `--tune` every form of a kernel is timed too, and with `--lengths` only some rows
or sequences; then nothing is written.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.gpu import attention, matmul, models, softmax
from benchmarks.gpu.card import Card, NoGpuError
from benchmarks.gpu.results import Result, store, table
from softq.errors import SoftqError

SECTIONS = {"softmax": softmax, "attention": attention, "models": models, "products": matmul}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="sections")
    parser.add_argument("--rounds", type=int, default=30, help="how often each has its turn")
    parser.add_argument("--lengths", nargs="+", type=int, default=[], help="only these rows or sequences")
    parser.add_argument("--tune", action="store_true", help="time every form of the kernels of rows")
    parser.add_argument("--elements", type=int, default=1 << 26, help="scores of a set of inputs; sequences have fewer")
    given = parser.parse_args()
    try:
        card = Card(given.rounds)
    except (NoGpuError, SoftqError) as error:
        print(f"not run: {error}", file=sys.stderr)
        return 2
    print(card.description(), flush=True)
    for name in given.only:
        found: list[Result] = []
        for result in SECTIONS[name].measure(card, tuple(given.lengths), given.elements, given.tune):
            found.append(result)
            print(result.line(), flush=True)
        print(table(found))
        if not (given.lengths or given.tune or given.elements != 1 << 26):
            store(name, f"python -m benchmarks.gpu --only {name} --rounds {given.rounds}", card.description(), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
