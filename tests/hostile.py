"""Models that strangers could upload to hang a reader or to fill its memory, and words of the refusal of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, parser

from softq.limits import Limits

Make = Callable[[], onnx.ModelProto | ir.Model]

_HEAD = '<ir_version: 8, opset_import: ["": 18]> g (float[2,4,8,8] x, bool[2,4,8,8] c) => (float[N] y)'
_IMPORTS = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]


def text(body: str) -> onnx.ModelProto:
    """Return a model whose softmax reads `q`."""
    return parser.parse_model(f"{_HEAD} {{ {body} s = Softmax<axis=-1>(q) y = MatMul(s, x) }}")


def chain(
    operator: str, length: int, start: str = "v0 = Identity(x)", end: str = "q = Identity({})"
) -> onnx.ModelProto:
    """Return a model of one operator again and again, `@` the last result."""
    steps = " ".join(f"v{i + 1} = {operator.replace('@', f'v{i}')}" for i in range(length))
    return text(f"{start} {steps} {end.format(f'v{length}')}")


def nodes(made: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None) -> onnx.ModelProto:
    """Return a model of nodes from `x` to `y`."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 8, 8])]
    graph = helper.make_graph(made, "g", inputs, outputs)
    return helper.make_model(graph, ir_version=8, opset_imports=_IMPORTS, functions=functions or [])


def calls(count: int, times: int) -> onnx.ModelProto:
    """Return a model of functions, each of which calls the one before it so many times."""
    functions: list[onnx.FunctionProto] = []
    for number in range(count):
        made = [helper.make_node("Relu", ["a"], ["v0"])]
        if number:
            inner = [f"v{i}" for i in range(times + 1)]
            made += [helper.make_node(f"f{number - 1}", [a], [b], domain="d") for a, b in pairwise(inner)]
        functions.append(helper.make_function("d", f"f{number}", ["a"], [made[-1].output[0]], made, _IMPORTS))
    top = [helper.make_node(f"f{count - 1}", ["x"], ["z"], domain="d"), helper.make_node("Softmax", ["z"], ["y"])]
    return nodes(top, functions)


def nested(depth: int) -> ir.Model:
    """Return a model of Ifs inside one another; protobuf itself reads no more than 33."""
    inputs = [ir.val("x", ir.DataType.FLOAT, (4, 4)), ir.val("k", ir.DataType.BOOL, ())]
    node = ir.node("Softmax", [inputs[0]])
    for level in range(depth):
        node.outputs[0].name = f"v{level}"
        body = ir.Graph([], node.outputs, nodes=[node], name=f"b{level}")
        same = ir.node("Identity", [inputs[0]])
        same.outputs[0].name = f"e{level}"
        empty = ir.Graph([], same.outputs, nodes=[same], name=f"e{level}")
        node = ir.node("If", [inputs[1]], {"then_branch": body, "else_branch": empty})
    node.outputs[0].name = "y"
    return ir.Model(ir.Graph(inputs, node.outputs, nodes=[node], name="g", opset_imports={"": 18}), ir_version=8)


def attribute(operator: str, domain: str = "", **given: object) -> onnx.ModelProto:
    """Return a model with one operator whose attributes are what they may not be."""
    return nodes([helper.make_node(operator, ["x"], ["y"], domain=domain, **given)])  # pyright: ignore[reportArgumentType]


def negative() -> onnx.ModelProto:
    model = nodes([helper.make_node("Softmax", ["x"], ["y"])])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -7
    return model


def twice() -> onnx.ModelProto:
    model = calls(2, 1)
    model.functions.append(model.functions[0])
    return model


def recursive() -> onnx.ModelProto:
    model = calls(3, 1)
    model.functions[0].node[0].domain, model.functions[0].node[0].op_type = "d", "f2"
    return model


def many_axes() -> onnx.ModelProto:
    model = nodes([helper.make_node("Softmax", ["x"], ["y"])])
    for _ in range(3000):
        model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1
    return model


_AXES = "k = Constant<value_ints=[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]>() v0 = Identity(x)"
_RANGE = "a = Constant<value=float{0.0}>() b = Constant<value=float{1e12}>() d = Constant<value=float{1e-3}>()"
_LONG = "k = Constant<value_ints=[1099511627776]>() o = Constant<value=float[1]{1.0}>()"
_GROWS = "sizes in the model grow so much"

BOMBS: dict[str, tuple[Make, str]] = {
    **{
        f"{name}-chain": (lambda operator=operator: chain(operator, 60), "")
        for name, operator in {
            "add": "Add(@, @)",
            "where": "Where(c, @, @)",
            "mul": "Mul(@, @)",
            "concat": "Concat<axis=0>(@, @)",
            "div": "Div(@, @)",
            "max": "Max(@, @, @, @)",
        }.items()
    },
    "mask-chain": (
        lambda: chain("Add(@, @)", 60, "v0 = Constant<value=float{-10000.0}>()", "q = Add(x, {})"),
        "",
    ),
    "mask-where-chain": (
        lambda: chain("Where(c, @, @)", 60, "v0 = Constant<value=float{-10000.0}>()", "q = Add(x, {})"),
        "",
    ),
    "wide-concat": (
        lambda: chain(
            f"Concat<axis=0>({', '.join(['@'] * 300)})", 9, "v0 = Constant<value=float[1]{1.0}>()", "q = Mul(x, {})"
        ),
        _GROWS,
    ),
    "calls-twice": (lambda: calls(30, 2), "nodes with the calls of its functions opened"),
    "calls-deep": (lambda: calls(1000, 1), "inside one another"),
    "calls-itself": (recursive, "calls itself"),
    "function-twice": (twice, "stands 2 times"),
    "nested": (lambda: nested(200), "inside one another"),
    "nested-less": (lambda: nested(30), ""),
    "range": (lambda: text(f"{_RANGE} r = Range(a, b, d) q = Add(r, r)"), _GROWS),
    "range-of-shape": (lambda: text(f"{_RANGE} r = Range(a, b, d) i = Cast<to=7>(r) q = ConstantOfShape(i)"), _GROWS),
    "concat-doubles": (
        lambda: chain("Concat<axis=0>(@, @)", 40, "v0 = Constant<value_ints=[1,2,3,4]>()", "q = Cast<to=1>({})"),
        _GROWS,
    ),
    "expand": (lambda: text(f"{_LONG} e = Expand(o, k) q = Add(e, e)"), _GROWS),
    "tile": (lambda: text(f"{_LONG} e = Tile(o, k) q = Add(e, e)"), _GROWS),
    "pad": (
        lambda: text(f"{_LONG} z = Constant<value_ints=[0]>() n = Concat<axis=0>(z, k) e = Pad(o, n) q = Add(e, e)"),
        "",
    ),
    "axes": (lambda: chain("Unsqueeze(@, k)", 1500, _AXES), _GROWS),
    "many-axes": (many_axes, "axes; the limit is 64"),
    "sequences": (lambda: chain("SequenceConstruct(@)", 3000, end="w = Identity({}) q = Identity(x)"), ""),
}
"""Name, how the model is made, and words of the refusal; none if it is read as it is."""

WRONG: dict[str, tuple[Make, str]] = {
    "axis-float": (lambda: attribute("Softmax", axis=1.5), "INT is needed"),
    "axis-text": (lambda: attribute("LogSoftmax", axis="last"), "INT is needed"),
    "axis-list": (lambda: attribute("Softmax", axis=[1, 2]), "INT is needed"),
    "axis-graph": (lambda: attribute("Softmax", axis=helper.make_graph([], "e", [], [])), "INT is needed"),
    "keepdims-text": (lambda: attribute("ReduceSum", keepdims="yes"), "INT is needed"),
    "perm-number": (lambda: attribute("Transpose", perm=1), "INTS is needed"),
    "to-float": (lambda: attribute("Cast", to=1.5), "INT is needed"),
    "heads-text": (lambda: attribute("MultiHeadAttention", "com.microsoft", num_heads="many"), "INT is needed"),
    "scale-text": (lambda: attribute("Attention", "com.microsoft", scale="big", num_heads=2), "FLOAT is needed"),
    "no-inputs": (lambda: nodes([helper.make_node("Softmax", [], ["y"])]), "0 inputs"),
    "too-many-inputs": (lambda: nodes([helper.make_node("Softmax", ["x", "x"], ["y"])]), "at most 1 are allowed"),
    "no-outputs": (
        lambda: nodes([helper.make_node("Softmax", ["x"], []), helper.make_node("Relu", ["x"], ["y"])]),
        "0 outputs",
    ),
    "unsorted": (
        lambda: nodes([helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Softmax", ["x"], ["a"])]),
        "not sorted",
    ),
    "circle": (
        lambda: nodes(
            [
                helper.make_node("Add", ["x", "b"], ["a"]),
                helper.make_node("Softmax", ["a"], ["b"]),
                helper.make_node("Relu", ["b"], ["y"]),
            ]
        ),
        "not sorted",
    ),
    "itself": (lambda: nodes([helper.make_node("Add", ["x", "y"], ["y"])]), "not sorted"),
    "nothing": (lambda: nodes([helper.make_node("Add", ["x", "ghost"], ["y"])]), "nothing computes"),
    "twice": (
        lambda: nodes([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Softmax", ["x"], ["y"])]),
        "redeclared",
    ),
    "negative": (negative, "length -7"),
}


def reference() -> onnx.ModelProto:
    """Return a model whose main graph reads the attribute of a function."""
    model = attribute("Softmax", axis=1)
    entry = model.graph.node[0].attribute[0]
    entry.ClearField("i")
    entry.ref_attr_name = "axis"
    return model


WRONG["reference"] = (reference, "no function holds the node")


def attentions(body: str, version: int = 18) -> onnx.ModelProto:
    """Return a model of as many softmaxes as are read, which make `@p` of the scores `@s` of the heads `@h`."""
    model, last = nodes([]), "x"
    step = parser.parse_graph(
        f"g (float[2,4,8,8] h, bool[2,4,8,8] c) => () {{ s = MatMul(h, h) {body} n = MatMul(p, h) }}"
    )
    for number in range(Limits().softmaxes):
        names = {"h": last, "c": "c"}
        for given in step.node:
            node = model.graph.node.add()
            node.CopyFrom(given)
            node.input[:] = [names[name] for name in given.input]
            node.output[:] = [names.setdefault(name, f"{name}{number}") for name in given.output]
        last = names["n"]
    model.graph.node.add(op_type="Identity", input=[last], output=["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, [2, 4, 8, 8]))
    model.opset_import[0].version = version
    return model


def old(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of another version."""
    model.opset_import[0].version = 12
    return model


def called(count: int) -> onnx.ModelProto:
    """Return a model below operator set 18 of at most so many nodes with the calls of a function of 20 opened."""
    model = old(nodes([helper.make_node("Softmax", ["x"], ["v0"], axis=-1)]))
    inner = [helper.make_node("Abs", [f"a{i}"], [f"a{i + 1}"]) for i in range(20)]
    model.functions.append(helper.make_function("d", "f", ["a0"], ["a20"], inner, [helper.make_opsetid("", 12)]))
    last = count // 21
    model.graph.node.extend(
        helper.make_node("f", [f"v{i}"], [f"v{i + 1}" if i + 1 < last else "y"], domain="d") for i in range(last)
    )
    return model


def growing(count: int) -> onnx.ModelProto:
    """Return a model below operator set 18 of nodes that changed since, no two of which have the same shapes."""
    made = [helper.make_node("Softmax", ["x"], ["v0"], axis=-1)]
    made += [helper.make_node("Concat", [f"v{i}", "x"], [f"v{i + 1}"], axis=0) for i in range(count)]
    made.append(helper.make_node("ReduceSum", [f"v{count}"], ["y"], axes=[0]))
    model = old(nodes(made))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model


def replaced(count: int, beside: int) -> onnx.ModelProto:
    """Return a model below operator set 18 of nodes each of which becomes two others, and of some that stay."""
    made = [helper.make_node("Softmax", ["x"], ["v0"], axis=-1)]
    made += [helper.make_node("Clip", [f"v{i}"], [f"v{i + 1}"], min=-float(i)) for i in range(count)]
    last = count + beside
    made += [helper.make_node("Abs", [f"v{i}"], [f"v{i + 1}"]) for i in range(count, last)]
    made.append(helper.make_node("Identity", [f"v{last}"], ["y"]))
    model = nodes(made)
    model.opset_import[0].version = 10
    return model


SLOWEST: dict[str, Callable[[], onnx.ModelProto]] = {
    "written": lambda: attentions(
        "k = Constant<value_ints=[-1]>() m = ReduceMax(s, k) d = Sub(s, m) e = Exp(d) t = ReduceSum(e, k) p = Div(e, t)"
    ),
    "guarded": lambda: attentions(
        "low = Constant<value=float{-10000.0}>() m = Where(c, s, low) w = Softmax<axis=-1>(m) "
        "u = IsNaN(w) p = Where(u, low, w)"
    ),
    "old": lambda: attentions("p = Softmax<axis=3>(s)", 11),
    "logarithms": lambda: attentions("l = LogSoftmax<axis=-1>(s) p = Exp(l)"),
    "chain": lambda: chain("Abs(@)", 40_000),
    "old-functions": lambda: called(Limits().opened),
    "old-chain": lambda: old(chain("Abs(@)", 40_000)),
    "old-shapes": lambda: growing(24_000),
    "old-replaced": lambda: replaced(Limits().opened // 2 - 10, 33_000),
}
"""What takes longest to be converted among files of 1 MB."""
