"""Running cases, and keeping those that go wrong."""

from __future__ import annotations

import faulthandler
import hashlib
import itertools
import multiprocessing
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from softq.errors import SoftqError
from tests.fuzz.readers import READERS, Reader

OUT = Path("build/fuzz")
SLOW = 10.0
HANGS = 120.0
MEMORY = 1 << 30
"""Bytes of address space that cases may take, beside what their process has before the first."""
EVERY = 60.0
"""Seconds between two lines that say how far it is."""

Started = Callable[[str, bytes], object]


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


def keep(name: str, data: bytes, what: str) -> str:
    """Keep a case in `OUT`, and return a line that says where it is and what it did."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return f"{path}: {what}"


def run(
    names: Sequence[str],
    seconds: float,
    seed: int | Sequence[int],
    cases: int | None = None,
    started: Started = lambda name, data: None,
    wrong: Callable[[str], object] = print,
) -> dict[str, int]:
    """Give cases to readers in turns, in this process; return how many each was given.

    Args:
        names: The readers.
        seconds: How long.
        seed: Of the cases: the same seed makes the same.
        cases: How many each reader is given at most.
        started: Called before each case with the reader's name and the case.
        wrong: Called with a line for each that went wrong; it is kept in `OUT`.
    """
    rng, counts, start = np.random.default_rng(seed), dict.fromkeys(names, 0), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - start < seconds and (cases is None or min(counts.values()) < cases):
            for name in names:
                reader = READERS[name]
                seeds = reader.seeds()
                data = reader.mutate(seeds[int(rng.integers(len(seeds)))], rng, seeds)
                started(name, data)
                faulthandler.dump_traceback_later(HANGS, exit=True)
                what = try_case(reader, data, Path(folder))
                faulthandler.cancel_dump_traceback_later()
                counts[name] += 1
                if what:
                    wrong(keep(name, data, what))
    return counts


def _work(names: Sequence[str], seconds: float, seed: Sequence[int], folder: str, counts: Any, wrong: Any) -> None:
    """Run cases in a process that may end at any: the last is in `folder`, `counts` holds how many there were."""
    tempfile.tempdir = folder
    for name in names:
        READERS[name].seeds()
    most = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def started(name: str, data: bytes) -> None:
        Path(folder, "case").write_bytes(data)
        counts[-1] = names.index(name)
        counts[names.index(name)] += 1

    run(names, seconds, seed, started=started, wrong=wrong.put)


def run_apart(
    names: Sequence[str], seconds: float, seed: int, every: float = EVERY
) -> tuple[dict[str, int], list[str]]:
    """Give cases to readers in turns, in a process of their own, and in another where one ends it.

    Returns:
        How many cases each reader was given, and a line for each that went wrong.
    """
    context, start, wrong = multiprocessing.get_context("fork"), time.monotonic(), list[str]()
    counts: Any = context.Array("q", len(names) + 1, lock=False)
    said = context.SimpleQueue()
    for attempt in itertools.count():
        left, before = seconds - (time.monotonic() - start), list(counts)
        if left <= 0:
            break
        with tempfile.TemporaryDirectory() as folder:
            worker = context.Process(target=_work, args=(names, left, [seed, attempt], folder, counts, said))
            worker.start()
            try:
                while worker.is_alive():
                    worker.join(every)
                    while not said.empty():
                        wrong.append(said.get())
                    print(f"{time.monotonic() - start:.0f} s: {describe(names, counts, wrong)}", flush=True)
            finally:
                worker.kill()
                worker.join()
            if worker.exitcode:
                if before == list(counts):
                    raise RuntimeError(f"the process of the cases ended with {worker.exitcode} before the first")
                case = Path(folder, "case").read_bytes()
                wrong.append(keep(names[int(counts[-1])], case, f"the process ended with {worker.exitcode}"))
    return dict(zip(names, counts, strict=False)), wrong


def describe(names: Sequence[str], counts: Sequence[int], wrong: Sequence[str]) -> str:
    """Return how many cases each reader was given, and how many of them went wrong."""
    given = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=False))
    return f"{given} cases; {len(wrong)} went wrong"
