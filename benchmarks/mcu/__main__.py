"""Row kernels in C on emulated microcontrollers: instructions and bytes; writes benchmarks/mcu.json.

    python -m benchmarks.mcu [--boards m4 ...]

With `--boards` nothing is written. Instructions are those that qemu executes, which are no cycles. It needs Debian's
packages qemu-system-arm, qemu-system-misc, gcc-arm-none-eabi with libnewlib-arm-none-eabi, and gcc-riscv64-unknown-elf
with picolibc-riscv64-unknown-elf.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.mcu.boards import BOARDS, missing, version
from benchmarks.mcu.kernels import WORKS, measure
from benchmarks.mcu.results import Row, store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), help="only these")
    chosen = parser.parse_args()
    rows: list[Row] = []
    for work in WORKS:
        for name in chosen.boards or BOARDS:
            absent = missing(BOARDS[name])
            if absent:
                print(f"{name}: needs {absent}", file=sys.stderr)
                return 2
            with tempfile.TemporaryDirectory() as folder:
                cost = measure(work, BOARDS[name], Path(folder))
            rows.append(Row(work.name, name, round(cost.instructions, 2), cost.code, cost.tables))
            print(f"{work.name:40} {name:6} {cost.instructions:8.1f} {cost.code:6} {cost.tables:6}", flush=True)
    if not chosen.boards:
        store(rows, sorted({version(board) for board in BOARDS.values()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
