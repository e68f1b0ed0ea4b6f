"""A softmax in a project of hls4ml becomes a function of softq, which gives the interpreter's integers under g++."""

import hls4ml
import numpy as np
from onnx import TensorProto, helper

from softq.integrations.hls4ml import replace_softmax
from softq.rowprog import run
from softq.rtl import hls

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 16]) for name in ("scores", "weights")]
node = helper.make_node("Softmax", ["scores"], ["weights"], name="softmax")
graph = helper.make_graph([node], "attention", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])

config = hls4ml.utils.config_from_onnx_model(model, granularity="name", backend="Vitis")
config["LayerName"]["scores"]["Precision"]["result"] = "fixed<8,4>"  # 8 bits, of which 4 are behind the point
project = hls4ml.converters.convert_from_onnx_model(model, hls_config=config, backend="Vitis", output_dir="project")
replaced = replace_softmax(project, "softermax", {"output": "uint8"})
project.compile()

scores = np.random.default_rng(0).integers(-128, 128, (100, 4, 16), np.int8)
given = project.predict(scores.astype(np.float32) / 16)
made = hls("softermax", {"output": "uint8", "step": 1 / 16}, constants=False, length=16)
expected = run(made.program, scores)["weights"]
np.testing.assert_array_equal(given.reshape(expected.shape) * 128, expected)
print(f"{', '.join(replaced)}: {expected.size} weights, each as the interpreter's")
