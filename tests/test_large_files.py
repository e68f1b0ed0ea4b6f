"""Time and memory of load and save do not grow with the weights: measured in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.load_and_save import assert_within_bounds, measure


def synthetic(folder: Path, layers: int, elements: int, *, fill: bool) -> Path:
    """Write a model of `layers` matrices with `elements` floats each, all in one data file."""
    data = folder / "weights.bin"
    size = elements * 4
    with data.open("wb") as file:
        if fill:
            rng = np.random.default_rng(0)
            for _ in range(layers):
                file.write(rng.bytes(size))
        else:
            # A file without blocks: it reads as zeros and takes no room.
            file.truncate(layers * size)
    nodes = [helper.make_node("Add", ["x" if k == 0 else f"h{k - 1}", f"w{k}"], [f"h{k}"]) for k in range(layers)]
    tensors: list[onnx.TensorProto] = []
    for k in range(layers):
        tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[elements])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", str(k * size)), ("length", str(size))):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
        tensors.append(tensor)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info(f"h{layers - 1}", TensorProto.FLOAT, [elements])],
        initializer=tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_six_gigabytes_beside_their_weights(tmp_path: Path) -> None:
    path = synthetic(tmp_path, layers=60, elements=25_000_000, fill=False)
    assert (tmp_path / "weights.bin").stat().st_size == 6_000_000_000
    seconds, peak, _ = measure(path, tmp_path / "out.onnx")
    assert_within_bounds(seconds, peak)
    # The interpreter, numpy and onnx take about 80 MB of it.
    assert peak < 160 * 2**20
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "out.onnx", "weights.bin"]
    location = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer[0].external_data[0]
    assert (location.key, location.value) == ("location", "weights.bin")


def test_offsets_beyond_four_gigabytes_are_read_where_they_lie(tmp_path: Path) -> None:
    path = synthetic(tmp_path, layers=60, elements=25_000_000, fill=False)
    _, _, before = measure(path, tmp_path / "out.onnx")
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.seek(59 * 100_000_000)
        file.write(b"\x01")
    _, _, after = measure(path, tmp_path / "out.onnx")
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.slow
def test_half_a_gigabyte_copied_as_a_stream(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    path = synthetic(tmp_path / "in", layers=10, elements=13_500_000, fill=True)
    seconds, peak, _ = measure(path, tmp_path / "out" / "model.onnx")
    assert_within_bounds(seconds, peak)
    assert peak < 160 * 2**20
    with (tmp_path / "in" / "weights.bin").open("rb") as old, (tmp_path / "out" / "weights.bin").open("rb") as new:
        while chunk := old.read(1 << 24):
            assert new.read(1 << 24) == chunk
        assert new.read(1) == b""
