"""Transposed convolutions, beside onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests.native import Executor, build_program
from tests.prepared import assert_close

pytest.importorskip("tvm")

Array = NDArray[Any]

# Channels, lengths, kernels [channels, results of a group, ...], attributes: kernels as long as strides, longer by a
# part and by whole strides, and shorter; pads on one side, lengths of results that are given otherwise.
CASES: list[tuple[int, tuple[int, ...], tuple[int, ...], str]] = [
    (3, (5, 7), (3, 4, 2, 2), "strides=[2, 2]"),
    (4, (5, 6), (4, 5, 3, 3), "strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]"),
    (4, (4, 9), (4, 3, 4, 4), "strides=[2, 2], pads=[1, 0, 2, 1], group=2"),
    (6, (5, 5), (6, 1, 3, 2), "group=6"),
    (2, (6, 4), (2, 3, 2, 1), "strides=[3, 2]"),
    (3, (8,), (3, 2, 5), 'strides=[2], auto_pad="SAME_UPPER"'),
    (3, (8,), (3, 2, 5), 'strides=[3], auto_pad="SAME_LOWER"'),
    (2, (3, 4), (2, 2, 3, 3), "dilations=[2, 2], strides=[2, 1]"),
]


@pytest.mark.parametrize("dynamic", [False, True])
def test_transposed_convolutions(dynamic: bool) -> None:
    rng, feeds, weights, nodes, given, results = np.random.default_rng(8), dict[str, Array](), [], [], [], []
    for i, (channels, lengths, kernel, attributes) in enumerate(CASES):
        if dynamic and "dilations" in attributes:
            continue  # TVM's own.
        feeds[f"x{i}"] = rng.standard_normal((2, channels, *lengths), np.float32)
        axes = [f"d{i}_{j}" for j in range(len(lengths))] if dynamic else [str(n) for n in lengths]
        given.append(f"float[{'b' if dynamic else 2}, {channels}, {', '.join(axes)}] x{i}")
        groups = int(attributes.partition("group=")[2][:1] or 1)
        sizes = {"w": kernel, **({"c": (kernel[1] * groups,)} if i % 2 else {})}
        for name, size in sizes.items():
            weights.append(onnx.numpy_helper.from_array(rng.standard_normal(size, np.float32), f"{name}{i}"))
        nodes.append(f"y{i} = ConvTranspose<{attributes}>(x{i}, w{i}{f', c{i}' * (i % 2)})")
        results.append(f"float[{', '.join(f'r{i}_{j}' for j in range(len(lengths) + 2))}] y{i}")
    lines = "\n".join(nodes)
    proto = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    transposed ({", ".join(given)}) => ({", ".join(results)}) {{ {lines} }}
    """)
    proto.graph.initializer.extend(weights)
    found = Executor(build_program(proto))(feeds)
    names = [value.name for value in proto.graph.output]
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for name, array in zip(names, expected, strict=True):
        # At most 16 x 4 products of normal numbers, added up in another order.
        assert_close([found[name]], [np.asarray(array)], rtol=1e-5, atol=1e-5)
