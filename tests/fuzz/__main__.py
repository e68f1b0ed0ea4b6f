"""The command: see the package."""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import importlib
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from softq.errors import SoftqError
from tests.fuzz.readers import READERS, Reader

OUT = Path("build/fuzz")
SLOW = 10.0


def try_case(reader: Reader, data: bytes, folder: Path) -> str:
    """Return what went wrong; empty if nothing did."""
    start = time.process_time()
    try:
        reader.read(data, folder)
    except SoftqError as error:
        if "\n" in str(error):
            return f"an error of several lines: {error!r}"
    except BaseException:
        return traceback.format_exc()
    took = time.process_time() - start
    return f"took {took:.1f} s" if took > SLOW else ""


def run(names: list[str], seconds: float, seed: int, cases: int | None = None) -> tuple[dict[str, int], list[str]]:
    """Return how many cases each reader was given, and what went wrong, kept in `OUT`."""
    rng, counts, wrong = np.random.default_rng(seed), dict.fromkeys(names, 0), list[str]()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - start < seconds and (cases is None or min(counts.values()) < cases):
            for name in names:
                reader = READERS[name]
                seeds = reader.seeds()
                data = reader.mutate(seeds[int(rng.integers(len(seeds)))], rng, seeds)
                faulthandler.dump_traceback_later(120, exit=True)
                what = try_case(reader, data, Path(folder))
                faulthandler.cancel_dump_traceback_later()
                counts[name] += 1
                if what:
                    OUT.mkdir(parents=True, exist_ok=True)
                    kept = OUT / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
                    kept.write_bytes(data)
                    wrong.append(f"{kept}: {what}")
    return counts, wrong


def _run_atheris(name: str, seconds: int) -> None:
    """Let libFuzzer make the cases of one reader; does not come back."""
    atheris: Any = importlib.import_module("atheris")
    reader, folder = READERS[name], Path(tempfile.mkdtemp())
    start = OUT / f"seeds-{name}"
    start.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(reader.seeds()):
        (start / str(number)).write_bytes(seed)

    def one(data: bytes) -> None:
        what = try_case(reader, data, folder)
        if what:
            raise RuntimeError(what)

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], str(start), f"-max_total_time={seconds}", f"-artifact_prefix={OUT}/{name}-"], one)
    atheris.Fuzz()


def main() -> None:
    """Fuzz, and say what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; all if none is given")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--atheris", action="store_true", help="for one reader: let libFuzzer make the cases")
    given = parser.parse_args()
    if given.atheris:
        (name,) = given.readers
        _run_atheris(name, given.seconds)
    counts, wrong = run(given.readers or list(READERS), given.seconds, given.seed)
    print("\n".join(wrong))
    print(", ".join(f"{name} {count}" for name, count in counts.items()), "cases;", len(wrong), "went wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
