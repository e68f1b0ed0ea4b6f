"""A softmax between integers in a graph of FINN-plus becomes a core of softq, with its HDL."""

from pathlib import Path

import numpy as np
from finn.transformation.fpgadataflow.prepare_ip import PrepareIP
from finn.util.settings import initialize_dummy_settings
from onnx import TensorProto, helper
from qonnx.core.datatype import DataType
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.custom_op.registry import getCustomOp

from softq.integrations.finn import InferSoftqSoftmax

initialize_dummy_settings()  # FINN writes into FINN_TMP, in the current folder
Path("FINN_TMP").mkdir(exist_ok=True)
values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in ("scores", "y")}
nodes = [helper.make_node("Mul", ["scores", "step"], ["x"]), helper.make_node("Softmax", ["x"], ["y"], name="softmax")]
graph = helper.make_graph(nodes, "attention", [values["scores"]], [values["y"]])
model = ModelWrapper(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
model.set_initializer("step", np.asarray(0.06, np.float32))
model.set_tensor_shape("x", [4, 64])
model.set_tensor_datatype("scores", DataType["INT8"])

scores = np.random.default_rng(0).integers(-128, 128, (4, 64)).astype(np.float32)
exact = execute_onnx(model, {"scores": scores})["y"]
cores = InferSoftqSoftmax("index-softmax", {"output": "uint8"}, simd=2)
model = model.transform(cores).transform(PrepareIP("xc7z020clg400-1", 5.0))
layer = getCustomOp(model.get_nodes_by_op_type("SoftqSoftmax_rtl")[0])
error = np.abs(execute_onnx(model, {"scores": scores})["y"] - exact).max()
print(f"{layer.onnx_node.name}: {layer.get_exp_cycles()} clocks for 4 rows of 64, error at most {error:.4f}, HDL made")
assert error < 0.02
