"""Processes at work in one folder and on one artifact, while everything goes wrong: `make soak SECONDS=600`.

Each process inspects, converts, sweeps, plans, builds, runs and reports, in children that are killed (SIGKILL, SIGTERM)
at random times or have too little memory, while the disk is full or read-only now and then. Between its children it
loads what lies there.
Held to:

* nothing half-written is ever read: models, plans, outcomes and artifacts are always such as a quiet run writes;
* nothing finished is lost: what was there once stays, and measured settings only become more;
* a command ends with 0 and the right result, or, where something was wrong meanwhile, with 2 and one line;
* no temporary file is left when a quiet run of each command has passed;
* memory of the processes that live long is flat.

The folder is a small file system in memory, which needs root; without, the disk is neither full nor read-only.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from benchmarks.soak.commands import METHODS, WRITTEN, Expected, SoakError, commands, look, quiet, start, wait
from softq.errors import SoftqError

MEGABYTES = 16
LOCKED = "another softq is measuring into this folder"
LONGEST = (2.0, 12.0)
"""Seconds within which a command, and a build, is killed."""
_NO_MEMORY = re.compile("memory|address space|alloc|map segment", re.IGNORECASE)
MOST_ROOM = 300 << 20
"""Bytes of address space for a command that has too little of it, at most."""
MOST_GROWTH = 0.03
"""Of the memory of a process, from the second quarter of the time to the last."""


def work(number: int, logs: Path, expected: Expected, faults: Any, until: float, said: Any) -> None:
    """Run commands until the time is over; tell what was wrong, how often what happened, and the memory."""
    chosen, counts, seen = random.Random(), Counter[str](), dict[str, Any]()
    memory, me, wrong = list[int](), psutil.Process(), ""
    try:
        while time.time() < until:
            before = faults.value
            try:
                look(expected, seen)
                counts["looked"] += 1
            except SoftqError as error:
                if before % 2 == 0 and before == faults.value:
                    raise SoakError(f"what lies there cannot be read: {error}") from error
                counts["looked, refused while the disk was in trouble"] += 1
            memory.append(me.memory_info().rss)
            name, ending = command(chosen, logs / f"{number}.txt", expected, faults)
            counts[f"{name}: {ending}"] += 1
    except SoakError as error:
        wrong = str(error)
    except BaseException:
        wrong = traceback.format_exc()
    said.put((number, wrong, counts, memory))


def command(chosen: random.Random, log: Path, expected: Expected, faults: Any) -> tuple[str, str]:
    """Run one command, perhaps kill it; return its name and how it ended."""
    arguments, before = chosen.choice(commands(chosen.choice(METHODS))), faults.value
    room = chosen.choice([None, None, None, None, chosen.randrange(MOST_ROOM)])
    child, name = start(arguments, log, room), arguments[0]
    sent = chosen.choice([0, 0, signal.SIGKILL, signal.SIGTERM])
    if sent:
        time.sleep(chosen.random() ** 2 * LONGEST[name == "build"])
        os.kill(child, sent)  # It is no other's number before we wait for it.
    code, text = wait(child), log.read_text(errors="replace")
    what = f"{' '.join(arguments)} ended with {code} (sent {sent}, room {room}): {text[-2000:]}"
    if "Traceback" in text or "--debug" in text:
        raise SoakError(what)
    if code == 0 and (name != "inspect" or text == expected.inspected):
        return name, "done"
    if sent and code in (-sent, 128 + sent):
        return name, "killed" if sent == signal.SIGKILL else "terminated"
    if code == 2 and text.startswith("softq: ") and text.count("\n") == 1:
        if LOCKED in text or (name in ("run", "report") and ("no such folder" in text or "holds no" in text)):
            return name, "too early, or another was at it"
        if room is not None and _NO_MEMORY.search(text):
            return name, "refused: memory"
        if before % 2 == 1 or before != faults.value:
            return name, "refused: " + next((why for why in ("No space", "Read-only") if why in text), text[-100:-1])
    raise SoakError(what)


def trouble(disk: Path, faults: Any, until: float) -> Counter[str]:
    """Fill the disk and make it read-only now and then; `faults` is odd meanwhile."""
    counts = Counter[str]()
    while time.time() < until - 5:
        time.sleep(random.random() * 12)
        faults.value += 1
        try:
            if random.random() < 0.5:
                fill(disk)
                counts["full"] += 1
            else:
                counts["read-only"] += forbid(disk)
        finally:
            faults.value += 1
    return counts


def fill(disk: Path) -> None:
    """Leave no room for a moment."""
    path = disk / "filler"
    try:
        with open(path, "wb", buffering=0) as file:
            while file.write(bytes(1 << 14)):
                pass
    except OSError:
        time.sleep(random.random() * 2)
    path.unlink()


def forbid(disk: Path) -> bool:
    """Let nothing be written for a moment; that cannot be done while a file is open for writing."""
    for _ in range(300):
        if subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True).returncode == 0:
            time.sleep(random.random() * 2)
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            return True
        time.sleep(0.01)
    return False


def growth(memory: list[int]) -> float:
    """Return by which part the memory grew from the second quarter to the last."""
    quarter = max(1, len(memory) // 4)
    early, late = (sum(part) / len(part) for part in (memory[quarter : 2 * quarter] or memory, memory[-quarter:]))
    return late / early - 1


def soak(seconds: float, processes: int, disk: Path, logs: Path, mounted: bool) -> list[str]:
    """Return what was wrong."""
    for name in ("work", "tmp", "cache"):
        (disk / name).mkdir()
    os.environ |= {"TMPDIR": str(disk / "tmp"), "SOFTQ_CACHE_DIR": str(disk / "cache"), "SOFTQ_CACHE_SIZE": "1"}
    tempfile.tempdir = None
    tempfile.gettempdir()  # Python tries it with a file, which a kill would leave.
    os.chdir(disk / "work")
    expected = quiet(logs / "quiet.txt")
    for name in WRITTEN:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
    context, until = get_context("fork"), time.time() + seconds
    faults, said = context.Value("i", 0), context.Queue()
    given = (logs, expected, faults, until, said)
    crew = [context.Process(target=work, args=(number, *given)) for number in range(processes)]
    for one in crew:
        one.start()
    counts = trouble(disk, faults, until) if mounted else Counter[str]()
    wrong: list[str] = []
    for _ in crew:
        number, what, found, memory = said.get()
        wrong += [f"process {number}: {what}"] * bool(what)
        counts += found
        if growth(memory) > MOST_GROWTH:
            wrong.append(f"process {number}: its memory grew by {growth(memory):.1%} to {memory[-1] >> 20} MiB")
        print(f"process {number}: {memory[-1] >> 20} MiB, {growth(memory):+.1%} since the second quarter")
    for one in crew:
        one.join()
    quiet(logs / "quiet.txt")
    look(expected, {})
    left = [str(path) for path in disk.rglob("*") if "tmp" in path.name and path != disk / "tmp"]
    wrong += [f"left behind: {path}" for path in (*left, *map(str, (disk / "tmp").iterdir()))]
    for what, count in sorted(counts.items()):
        print(f"{count:7}  {what}")
    return wrong


def main() -> None:
    """Soak, and end with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=4)
    chosen = parser.parse_args()
    import onnxruntime  # noqa: F401  # Children have these at once.
    import tvm  # noqa: F401

    import softq.building
    import softq.compiler.pipeline
    import softq.sweeps.plan.search
    import softq.sweeps.report  # noqa: F401

    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        disk, logs = Path(place) / "disk", Path(place) / "logs"
        disk.mkdir()
        logs.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "soak", str(disk)]
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
        print(
            f"{chosen.processes} processes, {chosen.seconds:.0f} s, {'a disk of their own' if mounted else 'no root'}"
        )
        try:
            wrong = soak(chosen.seconds, chosen.processes, disk, logs, mounted)
        finally:
            os.chdir(home)
            if mounted:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)
    for what in wrong:
        print(f"WRONG: {what}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
