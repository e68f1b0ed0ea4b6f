"""The memory of a sweep does not grow with its data: the peak of a child process over few files and over many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from softq.metrics import find_metric
from softq.modelfile import as_model, save
from softq.sweeps.evaluate.intervals import estimate_candidate

MIB = 2**20
FILES, IMAGES, SIZE = 40, 16, (3, 224, 224)
"""Files, images a file, and the size of an fp32 image: 9 MiB a file, 368 MiB of them."""

# 49 patches of 32 x 32 pixels look at each other; the output has the size of the image, or is a class of 1000.
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
m (float[N,3,224,224] image) => (float[N,3,224,224] out, float[N,1000] logits) {{
  cut = Constant<value = int64[6] {{0, 3, 7, 32, 7, 32}}>()
  patches = Reshape(image, cut)
  turned = Transpose<perm = [0, 2, 4, 1, 3, 5]>(patches)
  flat = Constant<value = int64[4] {{0, 1, 49, 3072}}>()
  tokens = Reshape(turned, flat)
  other = Transpose<perm = [0, 1, 3, 2]>(tokens)
  scores = MatMul(tokens, other)
  scale = Constant<value = float {{0.01}}>()
  scaled = Mul(scores, scale)
  p = Softmax(scaled)
  mixed = MatMul(p, tokens)
  back = Constant<value = int64[4] {{0, 3, 224, 224}}>()
  plain = Reshape(mixed, back)
  {spoiled}
  start = Constant<value = int64[1] {{0}}>()
  end = Constant<value = int64[1] {{1000}}>()
  axis = Constant<value = int64[1] {{3}}>()
  some = Slice(mixed, start, end, axis)
  last = Constant<value = int64[1] {{1}}>()
  lines = ReduceMean<keepdims = 0>(some, last)
  rows = ReduceMean<keepdims = 0>(lines, last)
  logits = Identity(rows)
}}"""
WHOLE = "out = Identity(plain)"
SPOILED = (
    "root = Sqrt(image)\n  zero = Constant<value = float {0}>()\n  lost = Mul(root, zero)\n  out = Add(plain, lost)"
)
"""NaN wherever the image is below 0: in every batch."""

CHILD = """
import json, pathlib, re, resource, sys
from softq.sweeps import run
model, data, out, given = sys.argv[1:]
found = run(model, data, out=out, methods="uniform", bits="4", threads=1, **json.loads(given))
# On Linux ru_maxrss starts with the peak of the process that started this one; VmHWM does not. macOS counts bytes.
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(found.study.samples, peak)
"""


def written(folder: Path, files: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(files):
        images = rng.normal(size=(IMAGES, *SIZE)).astype(np.float32)
        labels = rng.integers(0, 1000, IMAGES)
        np.savez(folder / f"{number:03}.npz", **{"image": images, "label.digit": labels})  # pyright: ignore
    return folder


def peak(model: Path, data: Path, out: Path, **given: object) -> tuple[int, int]:
    """Samples, and the greatest resident size of the process in bytes."""
    child = subprocess.run([sys.executable, "-c", CHILD, str(model), str(data), str(out), json.dumps(given)],
                           check=True, capture_output=True, text=True)  # fmt: skip
    samples, size = map(int, child.stdout.split())
    return samples, size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "given"),
    [
        (WHOLE, {"metric": "top1-accuracy", "output": "logits"}),
        (WHOLE, {"metric": "relative-error", "output": "out"}),
        (SPOILED, {"metric": "relative-error", "output": "out"}),
    ],
    ids=["alone", "paired", "paired with NaN"],
)
def test_the_peak_does_not_grow_with_the_data(body: str, given: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    save(as_model(parser.parse_model(TEXT.format(spoiled=body))), model)
    few, many = written(tmp_path / "few", 2), written(tmp_path / "many", FILES)
    samples, low = peak(model, few, tmp_path / "a", **given)
    assert samples == 2 * IMAGES
    samples, high = peak(model, many, tmp_path / "b", **given)
    assert samples == FILES * IMAGES
    bytes_of_data = FILES * IMAGES * 4 * int(np.prod(SIZE))
    # What is sampled of attention rows, and what the allocators keep, are bounded; the data are 368 MiB.
    assert high - low < 64 * MIB < bytes_of_data / 5, (low // MIB, high // MIB)


def test_where_the_float_model_gives_nan_lies_on_the_disk(tmp_path: Path) -> None:
    """A bit for each element of the output would be too much to hold for all batches."""
    made = find_metric("relative-error").start("a/b", None, tmp_path)
    rng = np.random.default_rng(0)
    outputs = [rng.normal(size=(4, 1001)).astype(np.float32) for _ in range(3)]
    outputs[1][2, 7] = np.nan
    for number, output in enumerate(outputs):
        made.add_reference(made.look(number, {"a/b": output}, {}))
    assert not any(isinstance(one, np.ndarray) for kept in made._kept.values() for one in vars(kept).values())
    made.begin()
    for number, output in enumerate(outputs):
        made.add(made.compare(number, {"a/b": output + np.float32(0.5)}, {}))
    assert np.isfinite(estimate_candidate(made)[0].value)
    made.begin()
    for number, output in enumerate(outputs):
        worse = output.copy()
        worse[2, 8] = np.nan
        made.add(made.compare(number, {"a/b": worse}, {}))
    assert np.isnan(estimate_candidate(made)[0].value)
