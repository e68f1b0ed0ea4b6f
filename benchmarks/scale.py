"""How inspecting and converting grow with nodes, softmaxes and external weights: seconds, memory, fitted exponents.

    python -m benchmarks.scale [UNIT ...]

With units (nodes, softmaxes, GB) the rows of others stay as they were measured before.
Each measurement is a process of its own: seconds are those of the processor, memory is the greatest that the process
held. Weights are sparse files. Writes benchmarks/scale.json, from which docs/limits.md is generated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RESULTS = Path(__file__).resolve().parent / "scale.json"
COMMAND = "python -m benchmarks.scale"
SIZES: Mapping[str, Sequence[int]] = {
    "nodes": (5000, 15000, 50000), "softmaxes": (300, 1000, 3000), "GB": (1, 5, 20), "lengths of rows": (20, 60, 180),
}  # fmt: skip

_PROGRAM = """
import gc, resource, sys, time
import softq
from softq import limits
from softq.modelfile import save
name, what, out = sys.argv[1:]
softq.METHODS.entries()
gc.set_threshold(20_000)  # as commands do
start = time.process_time()
with limits.limited(softmaxes=3000):
    if what == "inspect":
        softq.inspect(name)
    elif what == "build":
        softq.build(name, out, target="cpu")
    else:
        model = softq.convert(name).model
        if out:
            save(model, out, source=name)
mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
seconds = time.process_time() - start + others.ru_utime + others.ru_stime
print(seconds, max(mine.ru_maxrss, others.ru_maxrss) / 1024)
"""


def _model(nodes: list[onnx.NodeProto], last: str) -> onnx.ModelProto:
    shape = ["b", 2, 8, 16]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", [last], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.float32(0.25), "c")],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def chain(count: int) -> onnx.ModelProto:
    """Return a model of so many nodes without a softmax."""
    names = ["x", *(f"v{i}" for i in range(count))]
    kinds = ("Relu", "Neg", "Add", "Mul")
    nodes = [helper.make_node(kinds[i % 4], [names[i], "c"][: 1 + (i % 4 > 1)], [names[i + 1]]) for i in range(count)]
    return _model(nodes, names[-1])


def attentions(count: int) -> onnx.ModelProto:
    """Return a model of so many softmaxes between products."""
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for i in range(count):
        nodes += [
            helper.make_node("Transpose", [last], [f"t{i}"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", [last, f"t{i}"], [f"s{i}"]),
            helper.make_node("Mul", [f"s{i}", "c"], [f"m{i}"]),
            helper.make_node("Softmax", [f"m{i}"], [f"p{i}"], axis=-1),
            helper.make_node("MatMul", [f"p{i}", last], [f"v{i}"]),
        ]
        last = f"v{i}"
    return _model(nodes, last)


def lengths(count: int) -> onnx.ModelProto:
    """Return a model of so many softmaxes, each of rows of another length: build compiles a kernel for each."""
    nodes: list[onnx.NodeProto] = []
    for i in range(count):
        nodes += [
            helper.make_node("Slice", ["x", "zero", f"end{i}", "axis"], [f"s{i}"]),
            helper.make_node("Softmax", [f"s{i}"], [f"p{i}"], axis=-1),
            helper.make_node("ReduceMax", [f"p{i}", "axis"], [f"m{i}"]),
        ]
    values = {"zero": 0, "axis": 1} | {f"end{i}": i + 1 for i in range(count)}
    graph = helper.make_graph(
        [*nodes, helper.make_node("Sum", [f"m{i}" for i in range(count)], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, count])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1])],
        [numpy_helper.from_array(np.array([value], np.int64), name) for name, value in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def weighty(gigabytes: int, folder: Path) -> onnx.ModelProto:
    """Return a model of ten softmaxes with matrices in a sparse file."""
    model, count, each = attentions(10), 64 * gigabytes, 1 << 24
    for i in range(count):
        tensor = model.graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[each // 16, 4])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", str(i * each)), ("length", str(each))):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    with open(folder / "w.bin", "wb") as file:
        file.truncate(count * each)
    return model


def _measure(path: Path, what: str, out: str = "") -> tuple[float, float]:
    one = {**os.environ, "SOFTQ_JOBS": "1", "SOFTQ_CACHE_SIZE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path), what, out], check=True, capture_output=True, text=True, env=one
    )
    seconds, megabytes = map(float, done.stdout.split())
    return round(seconds, 2), round(megabytes)


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent with which seconds grow: the slope of their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(units: Sequence[str]) -> None:
    """Measure these units, and write the table."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["unit"] not in units]
    with tempfile.TemporaryDirectory(dir=os.environ.get("SOFTQ_SCALE_FOLDER")) as name:
        folder = Path(name)
        path = folder / "m.onnx"
        for unit in units:
            for size in SIZES[unit]:
                made = {"nodes": chain, "softmaxes": attentions, "lengths of rows": lengths}.get(unit)
                onnx.save(made(size) if made is not None else weighty(size, folder), path)
                copied, there = str(folder / "other" / "out.onnx"), str(folder / "out.onnx")
                does = {
                    "GB": [("inspect", ""), ("convert, weights stay", there), ("convert, weights copied", copied)],
                    "lengths of rows": [("build", str(folder / f"built{size}"))],
                }.get(unit, [("inspect", ""), ("convert", "")])
                (folder / "other").mkdir(exist_ok=True)
                for what, out in does:
                    seconds, megabytes = _measure(path, what.split(",")[0], out)
                    rows.append({"unit": unit, "size": size, "what": what, "seconds": seconds, "megabytes": megabytes})
                    print(rows[-1], flush=True)
                for left in (folder / "other").iterdir():
                    left.unlink()
    rows.sort(key=lambda row: list(SIZES).index(row["unit"]))
    RESULTS.write_text(json.dumps({"command": COMMAND, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def document() -> str:
    """Return the table of docs/limits.md."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| size | what | seconds | MB | exponent of seconds |", "|---|---|---|---|---|"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found["rows"]:
        groups.setdefault((row["unit"], row["what"]), []).append(row)
    for (unit, what), rows in groups.items():
        exponent = fit([row["size"] for row in rows], [max(row["seconds"], 0.01) for row in rows])
        for row in rows:
            last = f"{exponent:.2f}" if row is rows[-1] else ""
            lines.append(
                f"| {row['size']:,} {unit} | {what} | {row['seconds']:.2f} | {row['megabytes']:.0f} | {last} |"
            )
    return f"From `{found['command']}`, seconds of one core:\n\n" + "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:] or list(SIZES))
