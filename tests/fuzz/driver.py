"""Drivers of built models in C under libFuzzer, ASan and UBSan: `python -m tests.fuzz.driver --seconds 600`.

Needs clang with its libraries (Debian: `apt-get install clang`). `driver.c` beside this says what it does with a model.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

import softq
from tests.attention import attention
from tests.fuzz.artifacts import LOOKS_UP, model
from tests.fuzz.running import OUT

MISSING = "clang is not installed (Debian: apt-get install clang): drivers in C are not fuzzed"

_FOLLOWS_DATA = """<ir_version: 10, opset_import: ["": 21]>
g (int64[1] n, float[m] x) => (float[K] y, int64[1,c] where)
<bool t = {1}, float[1] one = {1}> {
  first = Expand(one, n)  times = Size(x)
  y = Loop (times, t, first) <body = b (int64 i, bool ci, float[P] v) => (bool co, float[Q] w) {
    co = Identity(ci)  w = Concat<axis=0>(v, first) }>
  where = NonZero(x) }"""

_BRANCHES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n,4] x, int64[1] begin, int64[1] k) => (float[a,4] y, float[p,4] top)
<int64[1] last = {100}, int64[1] zero = {0}, int64 line = {0}, float limit = {0.5}> {
  cut = Slice(x, begin, last, zero)  top, places = TopK<axis=0>(x, k)
  sum = ReduceSum<keepdims=0>(x)  many = Greater(sum, limit)
  y = If (many) <then_branch = g1 () => (float[a,4] u) { u = Softmax<axis=-1>(cut) },
                 else_branch = g2 () => (float[b,4] v) { v = Exp(x) }> }"""


def _converted() -> onnx.ModelProto:
    found = softq.convert(attention(mask="low = Constant<value=float{-10000.0}>() masked = Where(keep, scores, low)"))
    assert isinstance(found.model, onnx.ModelProto)
    return found.model


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "looks-up": lambda: model(LOOKS_UP),
    "attention": _converted,
    "follows-data": lambda: onnx.parser.parse_model(_FOLLOWS_DATA),
    "branches": lambda: onnx.parser.parse_model(_BRANCHES),
}

_COUNTERS = re.compile(r"\((\d+) inline 8-bit counters\)")
_REACHED = re.compile(r"cov: (\d+)")
_CASES = re.compile(r"stat::number_of_executed_units: (\d+)")


def compile_driver(artifact: Path, out: Path) -> Path:
    """Return the program that fuzzes an artifact's driver."""
    flags = ["-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", f"-I{artifact}"]
    files = [Path(__file__).with_suffix(".c"), artifact / "driver.c", artifact / "kernels.o"]
    subprocess.run(["clang", *flags, *files, "-lm", "-pthread", "-o", out], check=True)
    return out


def fuzz(name: str, seconds: int, seed: int) -> str:
    """Fuzz the driver of a model, and return a line that says how far it came.

    Raises:
        RuntimeError: something went wrong; what libFuzzer says, with the case in `OUT`.
    """
    reached = OUT / f"reached-driver-{name}"
    reached.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        artifact = softq.build(MODELS[name](), Path(folder) / "artifact", target="cpu").folder
        program = compile_driver(artifact, Path(folder) / "fuzz")
        # Sizes that no memory holds come back as errors.
        lenient = "allocator_may_return_null=1:max_allocation_size_mb=64"
        environment = os.environ | {"SOFTQ_ARTIFACT": str(artifact), "TMPDIR": folder, "ASAN_OPTIONS": lenient}
        options = [
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            "-max_len=4096",
            "-timeout=60",
            "-rss_limit_mb=0",  # Linux counts the peak of the process that starts it; allocations are bounded above.
            "-print_final_stats=1",
        ]
        command = [program, *options, f"-artifact_prefix={OUT}/driver-{name}-", reached]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"driver of {name}: {done.stderr[-6000:]}")
    counters, edges, cases = (pattern.findall(done.stderr)[-1] for pattern in (_COUNTERS, _REACHED, _CASES))
    return f"driver of {name}: {cases} cases, {edges} of {counters} edges reached, 0 went wrong"


def main() -> None:
    """Fuzz the drivers one after another; end with 1 if one went wrong, or clang is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60, help="of all of them")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if shutil.which("clang") is None:
        sys.exit(MISSING)
    for name in MODELS:
        print(fuzz(name, max(1, given.seconds // len(MODELS)), given.seed), flush=True)


if __name__ == "__main__":
    main()
