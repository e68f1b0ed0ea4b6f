"""Row kernels and models in C on emulated microcontrollers: instructions and bytes.

    python -m benchmarks.mcu [--boards m4 ...]

Instructions are those that qemu executes, which are no cycles. It needs Debian's packages qemu-system-arm,
qemu-system-misc, gcc-arm-none-eabi with libnewlib-arm-none-eabi, and gcc-riscv64-unknown-elf with
picolibc-riscv64-unknown-elf.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.mcu.boards import BOARDS, missing
from benchmarks.mcu.kernels import WORKS, measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), default=list(BOARDS))
    chosen = parser.parse_args()
    for work in WORKS:
        for name in chosen.boards:
            absent = missing(BOARDS[name])
            if absent:
                print(f"{name}: needs {absent}", file=sys.stderr)
                return 2
            with tempfile.TemporaryDirectory() as folder:
                cost = measure(work, BOARDS[name], Path(folder))
            print(f"{work.name:40} {name:6} {cost.instructions:8.1f} {cost.bytes:6}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
