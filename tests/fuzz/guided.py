"""Cases that libFuzzer makes, by what code of softq they reach: `python -m tests.fuzz.guided READER --seconds 600`.

Needs atheris (the extra `fuzz`). The reader's own mutation is used, so that structure stays structure. Cases that reach
new code stay in build/fuzz/reached-READER for the next time.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Fuzz one reader; libFuzzer ends the process, with 77 if a case went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reader", metavar="READER")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["softq"]):
        from tests.fuzz import running
        from tests.fuzz.readers import READERS
    reader, folder = READERS[given.reader], Path(tempfile.mkdtemp())
    seeds = reader.seeds()
    reached = running.OUT / f"reached-{given.reader}"
    reached.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (reached / f"seed-{number}").write_bytes(seed)

    def try_one(data: bytes) -> None:
        what = running.try_case(reader, data, folder)
        if what:
            raise RuntimeError(running.keep(given.reader, data, what))

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        made = reader.mutate(data, np.random.default_rng(seed), seeds)
        return made if len(made) <= most else data

    longest = max(1 << 16, 2 * max(map(len, seeds)))
    options = [f"-max_total_time={given.seconds}", f"-seed={given.seed}", f"-max_len={longest}", "-timeout=120"]
    atheris.Setup(
        [sys.argv[0], str(reached), *options, f"-artifact_prefix={running.OUT}/{given.reader}-"],
        try_one,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
