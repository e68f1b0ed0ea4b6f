"""Operators of ONNX through TVM, against onnxruntime: what differs between the two, and the forms that are refused.

The cases of a group are compiled as one model, since most of the time goes into what every compilation costs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import DTypeLike, NDArray
from onnx import helper, numpy_helper, parser

import softq
from tests.native import Array, Executor, build_program

pytest.importorskip("tvm")

RNG = np.random.default_rng(0)
NAN, INF, LAST = np.nan, np.inf, 2**63 - 1


def f(*shape: int) -> NDArray[np.float32]:
    return RNG.normal(0, 3, shape).astype(np.float32)


def i(*shape: int, low: int = -9, high: int = 9, dtype: DTypeLike = np.int64) -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


def v(*values: object, dtype: DTypeLike = np.float32) -> Array:
    return np.array(values, dtype)


def s(value: object, dtype: DTypeLike = np.int64) -> Array:
    return np.array(value, dtype)


@dataclass(frozen=True)
class Case:
    """One node: its text, what it is given, and which of that are initializers.

    The first axis of `x`, and of inputs with as many axes that are as long, has no fixed length; nor has any axis of a
    length in `free`.
    """

    text: str
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    free: Sequence[int] = ()


def case(text: str, constants: Mapping[str, Array] | None = None, free: Sequence[int] = (), **inputs: Array) -> Case:
    return Case(text, inputs, constants or {}, free)


def model_of(cases: Sequence[Case], opset: int = 18) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return one model of all cases, and its inputs."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    weights: list[onnx.TensorProto] = []
    given: dict[str, Array] = {}
    for number, one in enumerate(cases):
        node = parser.parse_node(one.text)
        for names in (node.input, node.output):
            names[:] = [name and f"{name}{number}" for name in names]
        nodes.append(node)
        outputs += [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        weights += [numpy_helper.from_array(array, f"{name}{number}") for name, array in one.constants.items()]
        like = next(iter(one.inputs.values()), np.zeros(0)).shape
        for name, array in one.inputs.items():
            dims = [
                f"d{length}_{number}" if length in one.free or (axis == 0 and first) else length
                for axis, length in enumerate(array.shape)
                for first in [len(like) == array.ndim and 1 < length == like[0]]
            ]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(f"{name}{number}", kind, dims))
            given[f"{name}{number}"] = array
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), given


SPECIAL = v([NAN, 1, -INF, INF, -0.0, 0.5], [2.5, -2.5, NAN, -0.5, 1e30, -1e-30])
OTHER = v([1, NAN, -INF, 3, 0.0, 0.5], [2.5, -7.5, 0.0, NAN, -1e30, 1e-30])
SPREAD = v([-90, -3.5, -0.5, 0.25, 1, 80])
IMAGES = f(2, 4, 9, 8)
CODES = i(4, 5, low=-100, high=100)
DIVISORS = i(4, 5, low=1, high=9) * np.where(np.arange(4) % 2, 1, -1)[:, None]


def pointwise() -> Iterable[Case]:
    for name in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"):
        yield case(f"z = {name}(x, y)", x=SPECIAL, y=OTHER)
        yield case(f"z = {name}(x, y)", x=CODES, y=DIVISORS[:1])
    for name in ("Max", "Min"):
        yield case(f"z = {name}(x, y, w)", x=SPECIAL, y=OTHER, w=v(0, NAN, 1, 2, 3, -4))
        yield case(f"z = {name}(x)", x=SPECIAL)
        yield case(f"z = {name}(x, y)", x=CODES.astype(np.int8), y=DIVISORS.astype(np.int8))
    yield case("z = Where(m, x, y)", m=v([1], [0], dtype=bool), x=SPECIAL[0], y=f(1, 1))
    yield case("z = Where(m, x, y)", x=i(2, 3), m=v(1, 0, 1, dtype=bool), y=s(7))
    yield case("z = Clip(x)", x=SPREAD)
    yield case("z = Clip(x, a)", {"a": s(-1, np.float32)}, x=v(-3, NAN, 2))
    yield case("z = Clip(x, , b)", x=v(-3, NAN, 2), b=s(1, np.float32))
    yield case("z = Clip(x, a, b)", x=i(6, dtype=np.int8), a=s(-1, np.int8), b=s(3, np.int8))
    yield case("z = Clip(x, a, b)", {"a": s(2, np.float32), "b": s(1, np.float32)}, x=f(6))
    yield case("z = Clip(x, , b)", {"b": s(2**53 + 1)}, x=v(2**62, 2**53, 5, dtype=np.int64))


def arithmetic() -> Iterable[Case]:
    for name in ("Add", "Sub", "Mul", "Div"):
        for dtype in (np.int8, np.uint8, np.int32, np.int64):
            divisors = np.abs(DIVISORS) if dtype is np.uint8 else DIVISORS
            yield case(f"z = {name}(x, y)", x=CODES.astype(dtype), y=divisors.astype(dtype))
        yield case(f"z = {name}(x, y)", x=SPECIAL, y=OTHER)
        yield case(f"z = {name}(x, y)", x=s(2, np.float32), y=s(3, np.float32))
        yield case(f"z = {name}(x, y)", x=f(2, 1, 2, 1, 3), y=f(4, 1, 2, 1), free=(3,))
        yield case(f"z = {name}(x, y)", x=f(0, 1, 3), y=f(1, 4, 1))
    for fmod, dtype in [(0, np.int32), (0, np.int8), (1, np.int8), (1, np.int64), (1, np.float32), (1, np.float64)]:
        yield case(f"z = Mod<fmod={fmod}>(x, y)", x=CODES.astype(dtype), y=DIVISORS.astype(dtype))
    yield case("z = Mod(x, y)", x=np.abs(CODES).astype(np.uint8), y=np.abs(DIVISORS).astype(np.uint8))
    for way in ("LEFT", "RIGHT"):
        for dtype in (np.uint8, np.uint32):
            by = v(0, 1, 3, 7, 8, 40, dtype=dtype)
            yield case(f'z = BitShift<direction="{way}">(x, y)', x=v(1, 255, 7, 128, 9, 9, dtype=dtype), y=by)
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield case(f"z = {name}(x, y)", x=CODES.astype(np.int8), y=DIVISORS.astype(np.int8))
    for name in ("And", "Or", "Xor"):
        yield case(f"z = {name}(x, y)", x=v(1, 0, 1, 0, dtype=bool), y=v(1, 1, 0, 0, dtype=bool))
    for name in ("Sum", "Mean"):
        yield case(f"z = {name}(x, y, w)", x=f(3, 5), y=f(5), w=f(1, 1))
    for exponent in (v(2, 3, 0, 1), v(2, 3, 0, 1, dtype=np.int64)):
        yield case("z = Pow(x, y)", x=v(2, -2, 0, 3), y=exponent)


def functions() -> Iterable[Case]:
    every = ("Neg", "Abs", "Reciprocal", "Floor", "Ceil", "Round", "Sqrt", "Relu", "Selu", "LeakyRelu", "Elu", "Tanh",
             "ThresholdedRelu", "HardSigmoid", "HardSwish", "Sign", "Softplus", "Softsign", "Shrink", "Erf", "Exp",
             "Sigmoid", "Celu", "Mish", "Log", "Atan", "IsNaN", "IsInf")  # fmt: skip
    for name in every:
        yield case(f"z = {name}(x)", x=SPREAD if name == "Softplus" else SPECIAL)
        yield case(f"z = {name}(x)", x=SPREAD)
    for name in ("Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"):
        yield case(f"z = {name}(x)", x=np.linspace(-0.9, 0.9, 7, dtype=np.float32))
    for name in ("Neg", "Abs", "Sign"):
        yield case(f"z = {name}(x)", x=v(0, -3, 4, -128, dtype=np.int8))
    for name in ("Relu", "Sign", "Exp", "Abs"):
        yield case(f"z = {name}(x)", x=SPREAD.astype(np.float64))
    yield case("z = Selu<alpha=0.3, gamma=2.0>(x)", x=SPREAD)
    yield case("z = Elu<alpha=0.3>(x)", x=SPREAD)
    yield case("z = Shrink<lambd=1.5, bias=0.5>(x)", x=SPREAD)
    yield case("z = IsInf<detect_negative=0>(x)", x=SPECIAL)
    yield case("z = IsInf<detect_positive=0>(x)", x=SPECIAL)
    yield case("z = PRelu(x, y)", x=IMAGES, y=f(4, 1, 1))
    yield case("z = BitwiseNot(x)", x=v(0, 7, 255, dtype=np.uint8))
    for to in (2, 3, 6, 7, 9, 10, 11):
        yield case(f"z = Cast<to={to}>(x)", x=v(0, 1, 2.6, 100))
    yield case("z = Cast<to=2>(x)", x=v(0, 1, 255, 256, dtype=np.int64))
    yield case("z = CastLike(x, y)", x=v(0, 1.5, 2), y=v(1, dtype=np.int32))
    yield case("z, m = Dropout(x)", x=f(3, 5))


def reductions() -> Iterable[Case]:
    every = ("Max", "Min", "Sum", "Mean", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp")
    for name in every:
        x = np.abs(f(2, 3, 4)) if name == "LogSum" else f(2, 3, 4)
        yield case(f"z = Reduce{name}(x, a)", {"a": v(-2, dtype=np.int64)}, x=x)
        yield case(f"z = Reduce{name}<keepdims=0>(x, a)", {"a": v(0, 2, dtype=np.int64)}, free=(4,), x=x)
        yield case(f"z = Reduce{name}<keepdims=0>(x)", x=x)
        yield case(f"z = Reduce{name}<noop_with_empty_axes=1>(x)", x=x)
        yield case(f"z = Reduce{name}(x)", x=s(2, np.float32))
        if name in ("Max", "Min", "Sum", "Mean", "Prod"):
            for dtype in (np.int32, np.int64):
                yield case(f"z = Reduce{name}(x, a)", {"a": v(1, dtype=np.int64)}, x=i(4, 3, dtype=dtype))
    for name in ("Max", "Min"):
        yield case(f"z = Reduce{name}<keepdims=0>(x)", x=i(4, 3, dtype=np.int8))
        yield case(f"z = Reduce{name}(x, a)", {"a": v(1, dtype=np.int64)}, x=v([-INF, -INF], [INF, INF], [1, -INF]))
        yield case(f"z = Reduce{name}(x, a)", {"a": v(0, dtype=np.int64)}, x=f(0, 3), free=(0,))
    yield case("z = ReduceLogSumExp(x, a)", {"a": v(1, dtype=np.int64)}, x=v([200, 201], [-INF, -INF], [INF, 0]))
    for name in ("ArgMax", "ArgMin"):
        for form in ("axis=1", "axis=0, keepdims=0", "axis=-1, select_last_index=1"):
            yield case(f"z = {name}<{form}>(x)", x=np.round(f(3, 5)))
        yield case(f"z = {name}<axis=1>(x)", x=v([-INF] * 3, [INF] * 3, [-INF, 1, INF]))
        yield case(f"z = {name}<axis=1>(x)", x=v([-(2**63)] * 3, [LAST] * 3, dtype=np.int64))
        yield case(f"z = {name}<axis=1>(x)", x=i(3, 5, dtype=np.int32))
    axis = {"a": s(-2)}
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        yield case("z = CumSum(x, a)", axis, x=i(3, 5, dtype=dtype))
    yield case("z = CumSum<exclusive=1>(x, a)", axis, x=f(2, 4, 3), free=(4,))
    yield case("z = CumSum<reverse=1>(x, a)", axis, x=f(0, 5), free=(0,))


def indexing() -> Iterable[Case]:
    x = f(3, 5)
    yield case("z = Gather(x, i)", x=x, i=s(-1))
    yield case("z = Gather<axis=-1>(x, i)", x=x, i=i(3, 2, low=-5, high=5, dtype=np.int32))
    yield case("z = Gather<axis=1>(x, i)", x=x > 0, i=i(0, low=-5, high=5), free=(0,))
    yield case("z = GatherElements<axis=1>(x, i)", x=x, i=i(2, 4, low=-5, high=5))
    yield case("z = GatherND(x, i)", x=f(3, 5, 2), i=i(4, 2, low=-3, high=3))
    yield case("z = GatherND<batch_dims=1>(x, i)", x=f(3, 5, 2), i=i(3, 4, 1, low=-3, high=3))
    for how in ("none", "add", "mul", "max", "min"):
        at = v([1, 0, 2, 3], [0, 1, -1, -2], dtype=np.int64)
        yield case(f'z = ScatterElements<axis=1, reduction="{how}">(x, i, u)', x=x, i=at, u=f(2, 4))
        yield case(f'z = ScatterND<reduction="{how}">(x, i, u)', x=x, i=v([1], [-1], dtype=np.int64), u=f(2, 5))
    yield case('z = ScatterElements<reduction="add">(x, i, u)', x=x, i=i(4, 2, low=-3, high=3), u=f(4, 2))
    yield case("z = ScatterND(x, i, u)", x=i(3, 5), i=v([1, 2], [0, -1], dtype=np.int64), u=i(2))
    yield case("z = ScatterND(x, i, u)", x=x, i=i(0, 1), u=f(0, 5))
    for axis in (-1, 0, 1):
        constants = {"d": s(4), "v": v(-1, 2)}
        yield case(f"z = OneHot<axis={axis}>(x, d, v)", constants, x=v([0, 3], [-1, 9], [-5, 1], dtype=np.int64))


def slices() -> Iterable[Case]:
    rows = [(1, 3, 1, 1), (-3, -1, 1, 1), (0, LAST, 1, 2), (-LAST - 1, LAST, 1, 1), (1, 4, -1, 3), (4, 1, 1, 1),
            (-1, -3, 1, 1), (-4, LAST, 0, 2)]  # fmt: skip
    fixed = [(100, 200, 1, 1), (-100, 3, 1, 1), (LAST, -LAST - 1, 1, -1), (-1, -LAST - 1, 1, -2), (3, 0, 1, -1)]
    for free, bounds in [((5,), rows), ((), rows + fixed)]:
        for start, end, axis, step in bounds:
            constants = {n: v(x, dtype=np.int64) for n, x in zip("abcd", (start, end, axis, step), strict=True)}
            yield case("z = Slice(x, a, b, c, d)", constants, free=free, x=f(6, 5))
    pair = {"a": v(0, 1, dtype=np.int32), "b": v(2, 3, dtype=np.int32)}
    yield case("z = Slice(x, a, b)", pair, x=i(3, 5, dtype=np.int32))
    yield case("z = Slice(x, a, b)", pair, x=f(3, 0))


def shapes() -> Iterable[Case]:
    x = f(3, 5)
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ((0, 1, 0, 2), (1, 0, 2, 0), (0, -1, 0, -1)):
            if mode != "wrap" or min(pads) >= 0:
                yield case(f'z = Pad<mode="{mode}">(x, p)', {"p": v(*pads, dtype=np.int64)}, x=x)
    chosen = {"p": v(1, 2, dtype=np.int64), "a": v(-1, dtype=np.int64)}
    yield case("z = Pad(x, p, , a)", chosen, x=x)
    yield case("z = Pad(x, p, w, a)", chosen | {"w": s(7)}, x=i(3, 5))
    yield case("z, y, w = Split<axis=1>(x, s)", {"s": v(2, 4, 1, dtype=np.int64)}, x=f(3, 7))
    yield case("z, y, w = Split<axis=1, num_outputs=3>(x)", x=f(3, 7))
    for shape in ((1, 4), (2, 1, 4)):
        yield case("z = Expand(x, s)", {"s": v(*shape, dtype=np.int64)}, x=f(3, 1))
    yield case("z = Expand(x, s)", {"s": v(0, 4, dtype=np.int64)}, x=f(1, 1))
    for repeats in ((2, 3), (2, 0)):
        yield case("z = Tile(x, s)", {"s": v(*repeats, dtype=np.int64)}, x=f(3, 2))
    for k in (None, 0, 1, -1, 10, -10):
        constants = {} if k is None else {"k": s(k)}
        for upper in (0, 1):
            yield case(f"z = Trilu<upper={upper}>(x{', k' if constants else ''})", constants, x=f(2, 4, 5), free=(4,))
    yield case("z = Trilu(x)", x=f(4, 5) > 0, free=(5,))
    yield case("z = Range(a, b, c)", {"a": s(0.5, "f"), "b": s(2.6, "f"), "c": s(0.5, "f")})
    yield case("z = Range(a, b, c)", {"a": s(0), "b": s(100), "c": s(1)})
    yield case("z = Range(a, b, c)", {"a": s(5), "b": s(3), "c": s(1)})
    yield case("z = Concat<axis=-1>(x, y)", x=f(3, 2), y=f(3, 3))
    yield case("z = Concat<axis=1>(x, y)", x=f(3, 0), y=f(3, 2))
    yield case("z = Concat<axis=0>(x, y)", x=f(0, 2), y=f(3, 2), free=(0,))
    yield case("z = Reshape<allowzero=1>(x, s)", {"s": v(3, 0, dtype=np.int64)}, x=f(0, 2))
    yield case("z = Reshape(x, s)", {"s": v(-1, 4, dtype=np.int64)}, x=f(8))
    yield case("z = Squeeze(x)", x=f(2, 1, 3))
    yield case("z = Unsqueeze(x, a)", {"a": v(0, -1, dtype=np.int64)}, x=x)
    yield case("z = Flatten<axis=-1>(x)", x=f(2, 2, 3))
    yield case("z = Transpose<perm=[2, 0, 1]>(x)", x=f(2, 2, 3))
    yield case("z = Transpose(x)", x=s(1, np.float32))
    for form in ("blocksize=2", 'blocksize=2, mode="CRD"'):
        yield case(f"z = DepthToSpace<{form}>(x)", x=f(1, 8, 2, 3))
    yield case("z = SpaceToDepth<blocksize=2>(x)", x=f(1, 2, 4, 6))
    for form in ('mode="linear"', 'mode="linear", coordinate_transformation_mode="align_corners"', 'mode="cubic"'):
        yield case(f"z = Resize<{form}>(x, , s)", {"s": v(1, 1, 2, 1.5)}, x=IMAGES)
        yield case(f"z = Resize<{form}>(x, , , s)", {"s": v(1, 4, 5, 14, dtype=np.int64)}, x=IMAGES[:1])
    for form in ("", ', coordinate_transformation_mode="asymmetric", nearest_mode="floor"', ', nearest_mode="ceil"'):
        yield case(f'z = Resize<mode="nearest"{form}>(x, , s)', {"s": v(1, 1, 2, 3)}, x=IMAGES)


def convolutions() -> Iterable[Case]:
    kernel = f(6, 4, 3, 3) / 9
    for form in ("pads=[1, 2, 0, 1]", "strides=[2, 3], dilations=[2, 1], pads=[1, 1, 1, 1]",
                 'auto_pad="SAME_UPPER", strides=[2, 2]', 'auto_pad="SAME_LOWER", strides=[2, 2]',
                 'auto_pad="VALID", strides=[2, 2]'):  # fmt: skip
        yield case(f"z = Conv<{form}>(x, w, b)", x=IMAGES, w=kernel, b=f(6))
    yield case('z = Conv<auto_pad="SAME_LOWER">(x, w)', x=IMAGES, w=f(6, 4, 2, 2))
    yield case("z = Conv<group=2>(x, w)", x=IMAGES, w=kernel[:, :2].copy())
    yield case("z = Conv<group=4, pads=[1, 1, 1, 1]>(x, w)", x=IMAGES, w=f(8, 1, 3, 3))
    yield case("z = Conv<pads=[1, 2], strides=[2]>(x, w, b)", x=IMAGES[:, :, 0], w=kernel[:, :, 0].copy(), b=f(6))
    yield case("z = Conv<strides=[2, 2]>(x, w)", x=IMAGES, w=kernel, free=(9, 8))
    yield case("z = Conv(x, w, b)", x=IMAGES, w=kernel[:, :, :1, :1].copy(), b=f(6), free=(9, 8))
    yield case("z = Conv<strides=[2, 1]>(x, w)", x=IMAGES, w=kernel[:, :, :1, :1].copy())
    yield case("z = Conv<pads=[1, 0, 0, 1, 2, 0]>(x, w)", x=f(1, 2, 4, 5, 5), w=f(3, 2, 2, 2, 2))
    small, back = f(2, 4, 3, 3), f(4, 3, 3, 3) / 9
    for form in ("strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0]", "dilations=[2, 1]", "group=2",
                 'auto_pad="SAME_UPPER", strides=[2, 2]'):  # fmt: skip
        yield case(f"z = ConvTranspose<{form}>(x, w)", x=small, w=back)
    for name in ("MaxPool", "AveragePool", "LpPool"):
        for form in ("kernel_shape=[2, 2]", "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 2, 1]",
                     'kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"',
                     'kernel_shape=[2, 2], auto_pad="SAME_LOWER"'):  # fmt: skip
            yield case(f"z = {name}<{form}>(x)", x=IMAGES[:1] if "auto_pad" in form else IMAGES)
        yield case(f"z = {name}<kernel_shape=[3], strides=[2], pads=[1, 1]>(x)", x=IMAGES[:, :, 0])
        yield case(f"z = Global{name}(x)", x=IMAGES)
    for name in ("MaxPool", "AveragePool"):
        form = "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1"
        yield case(f"z = {name}<{form}>(x)", x=IMAGES)
    yield case("z = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1>(x)", x=IMAGES)
    yield case("z = MaxPool<kernel_shape=[2, 2], dilations=[2, 2]>(x)", x=i(2, 4, 9, 9, dtype=np.int8))


def norms_and_products() -> Iterable[Case]:
    c = f(4)
    yield case("z = BatchNormalization<epsilon=0.01>(x, c, c, c, v)", x=IMAGES, c=c, v=c**2)
    yield case("z = InstanceNormalization<epsilon=0.01>(x, c, c)", x=IMAGES, c=c)
    yield case("z = LayerNormalization(x, g, b)", x=IMAGES, g=f(8), b=f(8))
    yield case("z = LayerNormalization<axis=2, epsilon=0.1>(x, g)", x=IMAGES, g=f(9, 8))
    yield case("z = GroupNormalization<num_groups=2>(x, g, g)", x=IMAGES, g=f(2))
    yield case("z = LRN<size=3, alpha=0.1, beta=0.5, bias=2.0>(x)", x=IMAGES)
    yield case("z = MeanVarianceNormalization(x)", x=IMAGES)
    for axis in (-1, 0):
        for name in ("Softmax", "LogSoftmax"):
            yield case(f"z = {name}<axis={axis}>(x)", x=f(3, 5) * 30, free=(5,))
        yield case(f"z = Softmax<axis={axis}>(x)", x=f(3, 0), free=(0,))
    yield case("z = Hardmax(x)", x=f(3, 5))
    yield case("z = Softmax<axis=2>(x)", x=f(2, 2, 3, 2, 4))
    equations = {"ij,jk->ik": ((3, 5), (5, 4)), "bij,bjk->bik": ((2, 3, 5), (2, 5, 4)), "ij,ij->": ((3, 5), (3, 5)),
                 "...ij,jk->...ik": ((2, 3, 5), (5, 4)),
                 "bhid,bhjd->bhij": ((2, 2, 3, 4), (2, 2, 5, 4))}  # fmt: skip
    for text, (a, b) in equations.items():
        yield case(f'z = Einsum<equation="{text}">(x, y)', x=f(*a), y=f(*b))
    for form, a, b, bias in (
        ("", (3, 5), (5, 4), (4,)),
        ("transA=1", (5, 3), (5, 4), (3, 1)),
        ("transB=1", (3, 5), (4, 5), ()),
        ("transA=1, transB=1", (5, 3), (4, 5), (1, 4)),
    ):
        form = f"alpha=0.5, beta=0.25{', ' if form else ''}{form}"
        yield case(f"z = Gemm<{form}>(x, y, c)", free=(5,), x=f(*a), y=f(*b), c=np.reshape(f(*bias), bias))
    for a, b in (((3,), (3,)), ((5,), (5, 3)), ((5,), (2, 5, 3)), ((2, 3, 5), (5,)), ((2, 1, 3, 5), (3, 5, 2))):
        yield case("z = MatMul(x, y)", free=(5,), x=f(*a), y=f(*b))
    yield case("z = MatMul(x, y)", x=f(3, 0), y=f(0, 2), free=(0,))
    yield case("z = MatMul(x, y)", x=f(3, 0), y=f(0, 2))
    for dtype in (np.int32, np.int64, np.float64):
        yield case("z = MatMul(x, y)", x=i(3, 5, dtype=dtype), y=i(5, 4, dtype=dtype))


def quantized() -> Iterable[Case]:
    code, signed = i(3, 5, low=0, high=255, dtype=np.uint8), i(5, 4, dtype=np.int8)
    scale, zero = s(0.1, np.float32), s(3, np.uint8)
    rounding = v([0.05, 0.15, 0.25, 1e30, -1e30], [3, -3, 0, 1, 2])
    yield case("z = QuantizeLinear(x, s, p)", x=rounding, s=scale, p=zero)
    yield case("z = QuantizeLinear(x, s)", {"s": scale}, x=f(3, 5))
    yield case("z = QuantizeLinear(x, s, p)", x=f(3, 5), s=np.abs(f(5)) + 0.01, p=i(5, dtype=np.int8))
    yield case("z = DequantizeLinear(x, s, p)", {"s": scale, "p": zero}, x=code)
    yield case("z = DequantizeLinear(x, s)", x=i(3, 5, dtype=np.int32), s=scale)
    yield case("z = DequantizeLinear<axis=1>(x, s, p)", x=i(3, 5, 2, dtype=np.int8), s=f(5), p=i(5, dtype=np.int8))
    for x in (f(3, 5), np.zeros((2, 5), np.float32), np.abs(f(3, 5))):
        yield case("z, s, p = DynamicQuantizeLinear(x)", x=x)
    yield case("z = MatMulInteger(x, y, a, b)", x=code, y=signed, a=zero, b=s(-2, np.int8))
    yield case("z = MatMulInteger(x, y, a, b)", x=code, y=signed, a=zero, b=i(4, dtype=np.int8))
    yield case("z = MatMulInteger(x, y)", x=code, y=code.T.copy())


GROUPS = (pointwise, arithmetic, functions, reductions, indexing, slices, shapes, convolutions, norms_and_products,
          quantized)  # fmt: skip


@pytest.mark.quick_cases(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_operators_equal_onnxruntime(group: object) -> None:
    assert callable(group)
    cases: list[Case] = list(group())  # pyright: ignore[reportArgumentType]
    model, inputs = model_of(cases, 19)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    found = Executor(build_program(model))(inputs)
    assert found.keys() == expected.keys()
    wrong: list[str] = []
    for name, value in found.items():
        wanted, text = np.asarray(expected[name]), cases[int("".join(c for c in name if c.isdigit()))].text
        if value.dtype != wanted.dtype or value.shape != wanted.shape:
            wrong.append(f"{text}: {value.dtype}{value.shape}, expected {wanted.dtype}{wanted.shape}")
        # Sums of at most 400 products in another order, of values of at most 100; integers are equal.
        elif not np.allclose(value.astype("d"), wanted.astype("d"), 1e-5, 1e-5 * (value.dtype.kind == "f"), True):
            wrong.append(f"{text}: {value.ravel()[:8]}, expected {wanted.ravel()[:8]}")
    assert not wrong, "\n".join(wrong)


def test_half_precision_equals_onnxruntime() -> None:
    text = "g (float16[n, 5] x) => (float16[n, 5] z) { y = Exp(x) z = Softmax(y) }"
    model, x = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}'), f(3, 5).astype(np.float16)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # Half precision has 11 bits.
    found = Executor(build_program(model))({"x": x})["z"]
    np.testing.assert_allclose(
        found.astype(np.float64), np.asarray(session.run(None, {"x": x})[0]), rtol=2e-3, atol=2e-3
    )


def test_reductions_and_extrema_keep_every_nan() -> None:
    # onnxruntime keeps a NaN in some places of a row and drops it in others, so the rule is NumPy's here.
    x = v([1, NAN, 2], [NAN, 3, 1], [1, 3, NAN], [1, 2, 3])
    cases = [case(f"z = Reduce{n}<keepdims=0>(x, a)", {"a": v(1, dtype=np.int64)}, x=x) for n in ("Max", "Min")]
    model, inputs = model_of(cases)
    found = Executor(build_program(model))(inputs)
    np.testing.assert_array_equal(found["z0"], x.max(1))
    np.testing.assert_array_equal(found["z1"], x.min(1))


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"x{k + 1} = Mul(x{k}, x{k}) " for k in range(40)) + "z = Neg(x40)",
        "a = Mish(x0) b = Mish(a) c = Mish(b) d = Tanh(c) z = Exp(d)",
    ],
)
def test_values_that_are_read_often_are_not_written_out_each_time(text: str) -> None:
    # 2^40 factors would never be compiled.
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float[n] x0) => (float[n] z) {{ {text} }}'
    )
    session, x = ort.InferenceSession(model.SerializeToString()), v(1, 0.5, 0)
    found = Executor(build_program(model))({"x0": x})["z"]
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(session.run(None, {"x0": x})[0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "lengths", "message"),
    [
        ("z = Reshape(x, s)", (2,), "Reshape z0 has elements"),
        ("z = Squeeze(x, a)", (3,), "Squeeze z0 has elements"),
        ("z = Slice(x, b, c)", (1,), "slice z0 needs an axis of at least 2"),
    ],
)
def test_lengths_that_do_not_fit_are_limits(text: str, lengths: tuple[int, ...], message: str) -> None:
    weights = {"s": v(3, 4), "a": v(0), "b": v(0), "c": v(2)}
    one = case(
        text, {n: w.astype(np.int64) for n, w in weights.items() if f"{n})" in text or f"{n}," in text}, x=f(5, 4)
    )
    program = Executor(build_program(model_of([one])[0]))
    with pytest.raises(AssertionError, match=message):
        program({"x0": f(*lengths, 4)})


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (case("z = Reshape(x, s)", free=(9,), x=f(3, 5), s=i(9)), "Reshape 'z0': how many axes it names"),
        (case("z = Slice(x, s, s)", free=(9,), x=f(3, 5), s=i(9)), "Slice 'z0': how many axes it names"),
        (
            case("z = ReduceSum<keepdims=0>(x, s)", free=(9,), x=f(3, 5), s=i(9)),
            "ReduceSum 'z0': how many axes it names",
        ),
        (case("z = Pad(x, s)", free=(9,), x=f(3, 5), s=i(9)), "Pad 'z0': how many axes it names"),
        (case("z = Expand(x, s)", {"s": v(3, 4, dtype=np.int64)}, x=f(2, 5)), "dimensions 5 and 4 do not fit"),
        (
            case("z = ConvTranspose<output_shape=[7, 8]>(x, w)", x=IMAGES, w=f(4, 3, 3, 3), free=(9, 8)),
            "TVM has no output_shape for axes",
        ),
        (case("z = RandomNormalLike(x)", x=f(3, 3)), "RandomNormalLike"),
    ],
    ids=lambda value: value.text if isinstance(value, Case) else "",
)
def test_what_has_no_kernel_is_refused_by_name(one: Case, message: str) -> None:
    model, _ = model_of([one], 19)
    with pytest.raises(softq.RefusalError, match=message) as caught:
        build_program(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_updates_stay_at_their_places_along_the_other_axes(axis: int) -> None:
    x, updates = f(3, 4, 5), f(2, 3, 4)
    # Each place once: which of two updates stays is not defined.
    order = np.argsort(np.random.default_rng(axis).random(x.shape), axis=axis)
    index = (order - x.shape[axis] * (order % 2))[:2, :3, :4]
    model, inputs = model_of([case(f"z = ScatterElements<axis={axis}>(x, i, u)", x=x, i=index, u=updates)])
    expected = x.copy()
    for place in np.ndindex(updates.shape):
        target = list(place)
        target[axis] = index[place]
        expected[tuple(target)] = updates[place]
    np.testing.assert_array_equal(Executor(build_program(model))(inputs)["z0"], expected)


def test_positions_outside_their_axis_end_the_run() -> None:
    one = case("z = ScatterND(x, i, u)", x=f(3, 5), i=v([1], [0], dtype=np.int64), u=f(2, 5))
    model, inputs = model_of([one])
    run = Executor(build_program(model))
    for wrong in (3, -4, 2**40):
        with pytest.raises(ValueError, match="ScatterND 'z0': an index is outside its axis"):
            run({**inputs, "i0": v([1], [wrong], dtype=np.int64)})


def test_positions_outside_an_axis_are_flagged_and_read_nothing() -> None:
    """A device starts what reads at them before it looks at the flag."""
    from benchmarks.cpu.native import library, pointer
    from softq.codegen.cpu.machines import host
    from softq.compiler.ops.data_movement import positions_kernel

    machine = host("cpu", "native", "")
    positions = library([positions_kernel("positions", 2)], machine)["positions"]
    far = 2**62
    for given, expected in (
        ([[1, -1], [-3, 0], [2, 4]], [[1, 4], [0, 0], [2, 4]]),
        ([[1, -1], [3, 0], [far, -6], [-4, 4]], [[1, 4], [0, 0], [0, 0], [0, 4]]),
    ):
        array, flag = np.array(given), np.zeros(1, np.int32)
        out = np.full_like(array, 77)
        numbers = (3, 5, 0, len(array))
        positions(*map(pointer, (flag, array, out)), *map(ctypes.c_int64, numbers))
        np.testing.assert_array_equal(out, expected)
        assert flag[0] == (array.max() > 4 or array.min() < -3)
