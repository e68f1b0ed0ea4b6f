"""Artifacts to fuzz: their weights through Python here, their drivers in C in `driver`."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx

import softq
from softq.artifact import manifest
from softq.artifact.ctext import SEAL_BYTES
from softq.errors import InputError

LOOKS_UP = """<ir_version: 8, opset_import: ["": 18]>
g (float[n,6,8] x, int64[n,6] ids) => (float[n,6,8] y, float[n,6] t)
<float[8,8] w, float[8] b, float[10,8] table, int64[6] turn> {
  g = Gather<axis=0>(table, ids)  a = Add(g, x)  p = MatMul(a, w)  r = Add(p, b)  s = Softmax<axis=-1>(r)
  y = Gather<axis=1>(s, turn)  k = Constant<value_ints=[2]>()  t = ReduceSum<keepdims=0>(y, k) }"""
"""Its weights are a product's, rows of a table, and indices."""


def model(text: str) -> onnx.ModelProto:
    """Return a model from text in which the values that are declared beside its inputs are weights."""
    made, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for value in made.graph.value_info:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.normal(size=sizes) if kind == np.float32 else np.arange(*sizes)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(kind), value.name))
    return made


@cache
def _files() -> Mapping[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        built = softq.build(model(LOOKS_UP), Path(folder) / "artifact", target="cpu")
        return {path.name: path.read_bytes() for path in built.folder.iterdir()}


def weights() -> bytes:
    """Return the weights of an artifact."""
    return _files()["weights.bin"]


def read_weights(data: bytes, folder: Path) -> None:
    """Open an artifact with other weights, as its manifest knows them and with one that was changed like them.

    Raises:
        AssertionError: weights of another size or with another seal are taken, or those are refused that only hold
            other numbers; or what comes out has another form.
        InputError: the weights were refused as they should be.
    """
    place = folder / "artifact"
    place.mkdir(exist_ok=True)
    for name, held in {**_files(), "weights.bin": data}.items():
        (place / name).write_bytes(held)
    try:
        softq.load(place).close()
        refused = False
    except InputError:
        refused = True
    assert refused == (data != weights()), "the manifest's hash was not asked"
    facts = json.loads(_files()[manifest.NAME])
    facts["files"]["weights.bin"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (place / manifest.NAME).write_text(json.dumps(facts))
    fits = len(data) == len(weights()) and data[-SEAL_BYTES:] == weights()[-SEAL_BYTES:]
    try:
        opened = softq.load(place)
    except InputError:
        assert not fits, "weights of the right form were refused"
        raise
    with opened:
        assert fits, "weights of another form were taken"
        ids = np.arange(12, dtype=np.int64).reshape(2, 6) % 10
        found = opened({"x": np.ones((2, 6, 8), np.float32), "ids": ids})
        assert [found[name].shape for name in ("y", "t")] == [(2, 6, 8), (2, 6)]
