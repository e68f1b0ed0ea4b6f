"""Loads and saves a model in a process of its own, and says what that took."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MEASURE = """
import json, pathlib, re, resource, sys, time
start = time.perf_counter()
from softq.modelfile import as_model, graph_hash, load, save, weights_fingerprint
model = load(sys.argv[1])
names = [graph_hash(model), weights_fingerprint(model)]
copy = as_model(model)
for value in list(copy.graph.initializers.values()):
    value.name = value.name + "_renamed"
save(copy, sys.argv[2])
seconds = time.perf_counter() - start
# On Linux ru_maxrss starts with the peak of the process that started this one; VmHWM does not. macOS counts bytes.
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, peak, names]))
"""

SECONDS = 10
BYTES = 400 * 2**20


def measure(source: Path, output: Path) -> tuple[float, int, list[str]]:
    """Return seconds, the greatest memory in bytes, and the hashes of graph and weights."""
    command = [sys.executable, "-c", MEASURE, str(source), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, peak, names = json.loads(done.stdout)
    return seconds, peak, names


def assert_within_bounds(seconds: float, peak: int) -> None:
    assert seconds < SECONDS
    assert peak < BYTES
