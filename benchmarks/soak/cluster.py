"""A sweep on a cluster whose workers are killed, hang, or come with another version.

    python -m benchmarks.soak.cluster --seconds 600

The sweep's process is killed, too, and started again. Held to: outcomes are such as one process gives, to the bit; none
is lost; a sweep ends with 0, or with 2 and a line that says which workers were no good, and then goes on where it
stopped; no process is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.soak.commands import SoakError, measured
from tests.test_cluster import Cluster, fake
from tests.test_sweep import IMAGES, VIT

_SWEEP = ("sweep", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--methods", "uniform,log2", "--bits", "3-6",
          "--samples", "48", "--batch", "4", "--threads", "1")  # fmt: skip
_EXCUSES = ("no worker", "died", "gives no answer", "left out", "workers give no answer", "gave no answer")
HANGS = 300.0
"""Seconds after which the sweep itself hangs."""


class Crew:
    """Workers that come and go."""

    def __init__(self, cluster: Cluster, folder: Path, counts: Counter[str]) -> None:
        self._cluster, self._other, self._counts = cluster, fake(folder / "other", "__version__ = '0.0.9'\n"), counts
        self._workers: list[subprocess.Popen[bytes]] = []

    def change(self) -> None:
        """Kill one, or let it hang; start what is missing."""
        one = random.choice([*self._workers, None])
        if one is not None and one.poll() is None:
            sent = random.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
            one.send_signal(sent)
            self._counts[f"worker got {sent.name}"] += 1
        # What hangs is looked after in the end as an operator would do it.
        stopped = [w for w in self._workers if w.poll() is None and psutil.Process(w.pid).status() == "stopped"]
        for worker in stopped[1:]:
            worker.kill()
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < 3:
            env = self._other if random.random() < 0.2 else {}
            self._counts["worker of another version" if env else "worker started"] += 1
            options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self._cluster.folder))
            self._workers.append(self._cluster._start("dask_worker", self._cluster.address, *options, **env))

    def close(self) -> None:
        """End all."""
        for worker in self._workers:
            worker.kill()
            worker.wait()


def sweep(out: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the sweep."""
    command = [sys.executable, "-m", "softq", *_SWEEP, "--out", str(out), *more]
    with open(log, "wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def soak(seconds: float, place: Path, counts: Counter[str]) -> None:
    """Run sweep after sweep.

    Raises:
        SoakError: something that must not happen.
    """
    log, expected, before = place / "said.txt", set[str](), set[str]()
    if sweep(place / "alone", log).wait():
        raise SoakError(log.read_text())
    expected = measured(place / "alone")
    (place / "cluster").mkdir()
    with ExitStack() as stack:
        cluster = Cluster(place / "cluster")
        stack.callback(cluster.close)
        crew = Crew(cluster, place, counts)
        stack.callback(crew.close)
        crew.change()
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            out = place / f"out{number}"
            running, begun = sweep(out, log, "--scheduler", cluster.address, "--timeout", "8"), time.monotonic()
            stack.callback(running.kill)
            killed = False
            while running.poll() is None:
                time.sleep(random.random() * 4)
                crew.change()
                if random.random() < 0.05:
                    running.kill()
                    killed = True
                if time.monotonic() - begun > HANGS:
                    raise SoakError(f"the sweep hangs: {log.read_text()}")
            text = log.read_text()
            if "Traceback" in text or "--debug" in text:
                raise SoakError(text)
            now = measured(out) if (out / "study.json").exists() else set[str]()
            if not before <= now <= expected:
                raise SoakError(f"outcomes were lost, or are others: {before - now}, {now - expected}")
            before = now
            if running.returncode == 0:
                if now != expected:
                    raise SoakError(f"the sweep ended with {len(now)} of {len(expected)} outcomes: {text}")
                counts["sweep: done"] += 1
                before, number = set(), number + 1
            elif killed and running.returncode < 0:
                counts["sweep: killed"] += 1
            elif running.returncode == 2 and any(excuse in text for excuse in _EXCUSES):
                counts["sweep: ended with 2, goes on"] += 1
            else:
                raise SoakError(f"the sweep ended with {running.returncode}: {text}")


def main() -> None:
    """Soak, and end with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    chosen, counts = parser.parse_args(), Counter[str]()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        wrong = ""
        try:
            soak(chosen.seconds, Path(place), counts)
        except SoakError as error:
            wrong = str(error)
    left = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    for what, count in sorted(counts.items()):
        print(f"{count:7}  {what}")
    print(f"WRONG: {wrong or left}" if wrong or left else "nothing was wrong")
    raise SystemExit(1 if wrong or left else 0)


if __name__ == "__main__":
    main()
