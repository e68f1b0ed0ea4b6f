"""The ViT in operators and attributes that onnx2c takes: it has no Shape, Gelu, allowzero and num_outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxslim
from onnx import helper, numpy_helper, shape_inference

_CONSTANTS = {"gelu_root": 0.5**0.5, "gelu_one": 1.0, "gelu_half": 0.5}


def write_out(model: Path, out: Path) -> Path:
    """Write the same function for a batch of 1, and return its path.

    Args:
        model: The ViT.
        out: The file to write.
    """
    slim = onnxslim.slim(str(model), input_shapes=["images:1,1,28,28"])
    assert isinstance(slim, onnx.ModelProto)
    found = shape_inference.infer_shapes(slim)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in found.graph.value_info}
    arrays = {name: np.array([value], np.float32) for name, value in _CONSTANTS.items()}
    nodes: list[onnx.NodeProto] = []
    for node in slim.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Gelu":
            nodes += _gelu(node.input[0], node.output[0])
            continue
        if node.op_type == "Reshape":
            del node.attribute[:]  # allowzero: no length is 0.
        elif node.op_type == "LayerNormalization":
            # Without them its C does not compile.
            node.output.extend(f"{node.output[0]}_{name}" for name in ("mean", "deviation")[len(node.output) - 1 :])
        elif node.op_type == "Split" and len(node.input) == 1:
            sizes = [shapes[name][attributes["axis"]] for name in node.output]
            node.input.append(f"{node.output[0]}_sizes")
            arrays[node.input[1]] = np.array(sizes, np.int64)
            kept = [a for a in node.attribute if a.name != "num_outputs"]
            del node.attribute[:]
            node.attribute.extend(kept)
        nodes.append(node)
    del slim.graph.node[:]
    slim.graph.node.extend(nodes)
    slim.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(slim, out)
    return out


def _gelu(x: str, y: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Mul", [x, "gelu_root"], [f"{y}_scaled"])
    yield helper.make_node("Erf", [f"{y}_scaled"], [f"{y}_erf"])
    yield helper.make_node("Add", [f"{y}_erf", "gelu_one"], [f"{y}_twice"])
    yield helper.make_node("Mul", [x, f"{y}_twice"], [f"{y}_whole"])
    yield helper.make_node("Mul", [f"{y}_whole", "gelu_half"], [y])
