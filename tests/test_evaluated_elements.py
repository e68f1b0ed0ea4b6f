"""Parts of a graph that are evaluated when a model is inspected: few elements, whatever sizes the model asks for."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import softq
from softq import limits
from softq.errors import InputError
from softq.graph.constants import evaluate
from softq.passes.fold_constants import FoldConstants
from softq.passes.fold_shapes import FoldShapes

LIVE = 1 << 24
"""Elements of all results of a node, at most: those that a run holds at a time."""

MEBIBYTES = 500
"""Of memory that a process takes which inspects models one after the other; 100 are the interpreter with onnx."""

INSPECT = """
import json, sys
import numpy as np
from onnx.reference import ReferenceEvaluator

counts = [0, 0]
begin = ReferenceEvaluator.__init__

def count(run):
    def counted(*arguments, **named):
        results = run(*arguments, **named)
        size = sum(map(np.size, results))
        counts[:] = [max(counts[0], size), counts[1] + size]
        return results
    return counted

def begin_counting(self, *arguments, **named):
    begin(self, *arguments, **named)
    for node in self.rt_nodes_:
        node.run = count(node.run)

ReferenceEvaluator.__init__ = begin_counting
import softq
from softq.errors import InputError

answers = []
for path in sys.argv[1:]:
    counts[:] = [0, 0]
    try:
        said = [site.verdict.action for site in softq.inspect(path)]
    except InputError as error:
        said = str(error)
    answers.append([path, said, *counts])
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([answers, peak >> 10]))
"""
"""Inspects models; prints for each what was said, the elements of its largest result and of all, and the peak."""


def inspect_apart(models: dict[str, onnx.ModelProto], folder: Path) -> dict[str, list[str] | str]:
    """Return the verdicts, or the refusal, of models; one process inspects all and must not take much."""
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    paths = [str(folder / f"{name}.onnx") for name in models]

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    done = subprocess.run(
        [sys.executable, "-c", INSPECT, *paths], capture_output=True, text=True, preexec_fn=bound,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    answers, peak = json.loads(done.stdout)
    assert [path for path, *_ in answers] == paths
    for path, _, largest, every in answers:
        assert largest <= LIVE, path
        assert every <= limits.Limits().evaluated, path
    assert peak <= MEBIBYTES
    return {name: said for name, (_, said, *_) in zip(models, answers, strict=True)}


def attention(body: str, shape: str = "1,2,n,n", fixed: str = "") -> onnx.ModelProto:
    """Return attention of an open length on an image of open height and width; `body` makes the weights `p` of `s`."""
    *lead, queries, keys = shape.split(",")
    outer = ",".join(lead)
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,h,w] image, float[{outer},{queries},8] q, float[{outer},8,{keys}] k, float[{outer},{keys},8] v)
        => (float[{outer},{queries},8] y)
        <int64[1] a0 = {{0}}, int64[1] a1 = {{1}}, int64[1] a2 = {{2}}, int64[1] last = {{-1}}, int64 zero = {{0}},
         int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, float[1] half = {{0.5}}, float eps = {{1e-6}},
         float[2] marks = {{0.0, 1.0}} {fixed}>
        {{ sh = Shape (image) hh = Gather (sh, two) ww = Gather (sh, three) h1 = Unsqueeze (hh, a0)
           w1 = Unsqueeze (ww, a0) hw = Concat <axis = 0> (h1, w1) s = MatMul (q, k) {body} y = MatMul (p, v) }}"""
    )


WITH_BIAS = "f = Cast <to = 1> (z) b = ReduceMax <keepdims = 0> (f) sb = Add (s, b) p = Softmax <axis = -1> (sb)"

RELU = "r = Relu ({}) t = ReduceSum (r, last) u = Add (t, eps) p = Div (r, u)"

SHIFTED = """
    m = ConstantOfShape (hw) c = Constant <value_int = 4> () hn = Div (hh, c) wn = Div (ww, c)
    r = Range (zero, hn, one) g = Range (zero, wn, one) r3 = Mul (r, three) rr = Unsqueeze (r3, a1)
    cc = Unsqueeze (g, a0) e = Add (rr, cc) flat = Reshape (e, last) row = Unsqueeze (flat, a0)
    column = Unsqueeze (flat, a1) z = Sub (row, column)"""
"""The windows of a picture by number, and which pairs of them differ, as masks of shifted windows are written out."""


def test_masks_of_open_heights_and_widths(tmp_path: Path) -> None:
    grid = "y0 = Range (zero, hh, one) c = Range (zero, ww, one) rr = Unsqueeze (y0, a1) cc = Unsqueeze (c, a0)"
    bodies = {
        "product": f"{grid} z = Mul (rr, cc) {WITH_BIAS}",
        "shifted": f"{SHIFTED} {WITH_BIAS}",
        "relu": f"{grid} z = Add (rr, cc) f = Cast <to = 1> (z) b = ReduceMax <keepdims = 0> (f) sb = Add (s, b) "
        + RELU.format("sb"),
    }
    said = inspect_apart({name: attention(body) for name, body in bodies.items()}, tmp_path)
    assert said == {"product": ["convert"], "shifted": ["convert"], "relu": ["keep"]}


def test_fixed_sizes_of_any_length(tmp_path: Path) -> None:
    numbers = ", ".join(["0.5"] * 50_000)
    models = {
        "row": attention(RELU.format("s"), "1,1,4,100000000"),
        "rows": attention(RELU.format("s"), "1,1,100000000,4"),
        "heads": attention(RELU.format("s"), "1,1000000,4,4"),
        "heads-and-row": attention(RELU.format("s"), "1,32,65536,65536"),
        "numbers": attention(
            "d = Add (s, c) " + RELU.format("d"), "1,50000,4,8", f", float[50000,1,1] c = {{{numbers}}}"
        ),
        "range": attention(
            "x = Range (nil, great, unit) b = ReduceMax <keepdims = 0> (x) d = Add (s, b) " + RELU.format("d"),
            "1,1,4,9", ", float nil = {0.0}, float great = {2e8}, float unit = {1.0}",
        ),
        "constants": attention(
            "z = ConstantOfShape (to) b = ReduceMax <keepdims = 0> (z) d = Add (s, b) " + RELU.format("d"),
            "1,1,4,9", ", int64[2] to = {20000, 20000}",
        ),
    }  # fmt: skip
    said = inspect_apart(models, tmp_path)
    assert said["rows"] == ["keep"], "a row of four is told, as many as there may be"
    assert all(isinstance(sites, list) for sites in said.values())


# An operator that makes something larger of vectors and sizes: `{v}` is a vector, `{n}` a size, `{o}` what comes out,
# `{t}` names of its own.
STEPS = {
    "Range": "{t}0 = Squeeze ({n}, a0) {o} = Range (zero, {t}0, one)",
    "Expand": "{t}0 = Unsqueeze ({v}, a1) {t}1 = Concat <axis = 0> (a1, {n}) {t}2 = Expand ({t}0, {t}1) "
    "{o} = Reshape ({t}2, last)",
    "ConstantOfShape": "{t}0 = Concat <axis = 0> ({n}, {n}) {t}1 = ConstantOfShape ({t}0) {t}2 = Cast <to = 7> ({t}1) "
    "{o} = Reshape ({t}2, last)",
    "Tile": "{o} = Tile ({v}, {n})",
    "Mul": "{t}0 = Unsqueeze ({v}, a0) {t}1 = Unsqueeze ({v}, a1) {t}2 = Mul ({t}0, {t}1) {o} = Reshape ({t}2, last)",
    "Where": "{t}0 = Unsqueeze ({v}, a0) {t}1 = Unsqueeze ({v}, a1) {t}2 = Less ({t}0, {t}1) "
    "{t}3 = Where ({t}2, {t}0, {t}1) {o} = Reshape ({t}3, last)",
    "MatMul": "{t}0 = Unsqueeze ({v}, a0) {t}1 = Unsqueeze ({v}, a1) {t}2 = MatMul ({t}1, {t}0) "
    "{o} = Reshape ({t}2, last)",
    "Einsum": '{t}0 = Einsum <equation = "i,j->ij"> ({v}, {v}) {o} = Reshape ({t}0, last)',
    "NonZero": "{t}0 = Unsqueeze ({v}, a0) {t}1 = Unsqueeze ({v}, a1) {t}2 = Mul ({t}0, {t}1) {t}3 = NonZero ({t}2) "
    "{o} = Reshape ({t}3, last)",
    "OneHot": "{t}0 = OneHot ({v}, {n}, marks) {t}1 = Cast <to = 7> ({t}0) {o} = Reshape ({t}1, last)",
    "Pad": "{t}0 = Concat <axis = 0> (a0, {n}) {o} = Pad ({v}, {t}0)",
    "Resize": "{t}0 = Cast <to = 1> ({v}) {t}1 = Resize ({t}0, , , {n}) {o} = Cast <to = 7> ({t}1)",
    "Gather": "{t}0 = Unsqueeze ({v}, a1) {t}1 = Expand ({t}0, {n}) {t}2 = Mul ({t}1, zero) {t}3 = Gather ({v}, {t}2) "
    "{o} = Reshape ({t}3, last)",
    "GatherElements": "{t}0 = Range (zero, hh, one) {t}1 = Mul ({t}0, zero) {o} = GatherElements ({v}, {t}1)",
    "CumSum": "{o} = CumSum ({v}, zero)",
    "Concat": "{o} = Concat <axis = 0> ({v}, {v}, {v}, {v})",
    "TopK": "{t}0 = Shape ({v}) {o}, {t}1 = TopK <axis = 0> ({v}, {t}0)",
    "ScatterElements": "{t}0 = Range (zero, hh, one) {t}1 = Mul ({t}0, zero) "
    "{o} = ScatterElements ({v}, {t}1, {t}0)",
    "Loop": "{t}0 = Squeeze ({n}, a0) {t}1 = Cast <to = 9> (one) {t}2, {t}3 = Loop ({t}0, {t}1, {v}) <body = body "
    "(int64 i{t}, bool c{t}, int64[m{t}] v{t}) => (bool d{t}, int64[m{t}] w{t}, int64[m{t}] x{t}) "
    "{{ d{t} = Identity (c{t}) w{t} = Identity (v{t}) x{t} = Identity (v{t}) }}> {o} = Reshape ({t}3, last)",
}  # fmt: skip


def make_shapes(seed: int, operators: list[str]) -> onnx.ModelProto:
    """Return an attention whose bias is made of an image's height and width by operators drawn at random."""
    rng = np.random.default_rng(seed)
    vectors, sizes = ["v0", "hw"], ["h1", "w1"]
    lines = ["v0 = Range (zero, hh, one)"]
    for step, operator in enumerate(rng.choice(operators, size=int(rng.integers(1, 6)))):
        v, n = vectors[int(rng.integers(len(vectors)))], sizes[int(rng.integers(len(sizes)))]
        lines.append(STEPS[str(operator)].format(v=v, n=n, o=f"o{step}", t=f"t{step}x"))
        vectors.append(f"o{step}")
        if rng.random() < 0.3:
            lines.append(f"n{step} = Shape (o{step})")
            sizes.append(f"n{step}")
    z = vectors[-1]
    ending = WITH_BIAS if rng.random() < 0.7 else WITH_BIAS.replace("p = Softmax <axis = -1> (sb)", RELU.format("sb"))
    lines.append(ending.replace("(z)", f"({z})"))
    return attention(" ".join(lines))


EVALUATED = [name for name in STEPS if name not in {"MatMul", "Einsum", "NonZero", "OneHot", "Pad", "Resize", "Loop"}]
"""Operators of which functions of scores are made: the others are never evaluated."""


@pytest.mark.parametrize("operators", [EVALUATED, list(STEPS)], ids=["functions", "all"])
def test_sizes_that_are_computed_of_open_lengths(operators: list[str], tmp_path: Path) -> None:
    models = {f"seed{seed}": make_shapes(seed, operators) for seed in range(20)}
    said = inspect_apart(models, tmp_path)
    assert any(sites == ["convert"] for sites in said.values())
    assert all(isinstance(sites, list) or "--limit-" in sites for sites in said.values()), said


@pytest.mark.slow
def test_many_sizes_that_are_computed_of_open_lengths(tmp_path: Path) -> None:
    models = {f"seed{seed}": make_shapes(seed, [EVALUATED, list(STEPS)][seed % 2]) for seed in range(100, 400)}
    said = inspect_apart(models, tmp_path)
    assert all(isinstance(sites, list) or "--limit-" in sites for sites in said.values()), said


def make_different(count: int, *, equal: bool = False) -> onnx.ModelProto:
    """Return attentions with a function of the scores in front of each softmax, all different or all equal."""
    body = """m = ReduceMax <axes = [-1]> (s) d = Sub (s, m) u = Mul (d, c{i}) w = Tanh (u) x = Add (s, w)
        p = Softmax <axis = -1> (x)"""
    model = attention(body.replace("{i}", ""), "1,2,9,9", ", float c = {0.125}")
    nodes = [node for node in model.graph.node if node.output[0] in "smduwxpy"]
    model.graph.output[0].type.tensor_type.shape.dim[3].dim_value = 8
    for number in range(1, count):
        value = 0.125 if equal else 0.125 + number / 1024
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), f"c{number}"))
        for node in nodes:
            made = model.graph.node.add()
            made.CopyFrom(node)
            names = {"c": f"c{number}", **{one.output[0]: f"{one.output[0]}x{number}" for one in nodes}}
            made.input[:] = ["y" if name == "q" else names.get(name, name) for name in node.input]
            made.output[:] = [names[made.output[0]]]
    return model


def test_what_functions_cost_is_bounded() -> None:
    with limits.limited(evaluated=40_000_000):
        assert len(softq.inspect(make_different(12, equal=True))) == 12
        assert len(softq.inspect(make_different(3))) == 3
        for _ in range(2):  # what is known from before counts all the same
            with pytest.raises(InputError, match=r"more than 40000000 computed elements \(--limit-evaluated"):
                softq.inspect(make_different(12))


@pytest.mark.parametrize(
    ("line", "given", "elements"),
    [
        ("o = ConstantOfShape (i)", [np.array([2000, 3000])], None),
        ("o = ConstantOfShape (i)", [np.array([20, 30])], 600),
        ("o = Expand (i, j)", [np.zeros((5, 1)), np.array([5, 10**7])], None),
        ("o = Tile (i, j)", [np.zeros(5), np.array([10**7])], None),
        ("o = Range (i, j, k)", [np.float32(0), np.float32(1e9), np.float32(1)], None),
        ("o = Einsum <equation = 'a,b,c->'> (i, j, k)".replace("'", '"'), [np.zeros(3000)] * 3, None),
        ("o = Einsum <equation = 'ab,bc->ac'> (i, j)".replace("'", '"'), [np.ones((30, 30))] * 2, 900),
        ("o = Conv (i, j)", [np.zeros((1, 1, 60000), np.float32), np.zeros((1, 1, 30000), np.float32)], None),
        ("o = MatMul (i, j)", [np.zeros((60000, 1)), np.zeros((1, 60000))], None),
        ("o = MatMul (i, j)", [np.ones((64, 64)), np.ones((64, 64))], 4096),
        ("o = NonZero (i)", [np.ones((40, 50))], 4000),
        ("o = Sub (i, j)", [np.zeros((4000, 1)), np.zeros((1, 4000))], None),
        ("o = Pad (i, j)", [np.zeros(5), np.array([0, 10**8])], None),
        ("o = Resize (i, , , j)", [np.zeros((1, 1, 4, 4), np.float32), np.array([1, 1, 9**5, 9**5])], None),
    ],
)  # fmt: skip
def test_a_node_is_counted_before_it_is_evaluated(line: str, given: list[np.ndarray], elements: int | None) -> None:
    inputs = ", ".join(f"float {name}" for name in "ijk"[: len(given)])
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float o) {{ {line} }}')
    node = ir.from_proto(model).graph.node(0)
    places = [given[0], None, None, given[1]] if "Resize" in line else given
    results = evaluate(node, 17, places, most=5_000_000)
    assert (None if results is None else results[0].size) == elements


def test_constants_that_lie_about_their_size_stay() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)
        <float[4] z, int64[2] n = {50000, 50000}>
        { z = ConstantOfShape (n) y = Add (x, z) }"""
    )
    work = ir.from_proto(model)
    FoldConstants()(work)
    assert [node.op_type for node in work.graph] == ["ConstantOfShape", "Add"]


def test_constants_are_folded_until_they_take_the_memory() -> None:
    lines = " ".join(f"z{i} = ConstantOfShape (n) y{i + 1} = Add (y{i}, z{i})" for i in range(5))
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[256,256] y0) => (float[256,256] y5)
        <{", ".join(f"float[256,256] z{i}" for i in range(5))}, int64[2] n = {{256, 256}}> {{ {lines} }}"""
    )
    work = ir.from_proto(model)
    with limits.limited(memory=1 << 20):
        FoldConstants()(work)
    assert [node.op_type for node in work.graph if node.op_type != "Add"] == ["ConstantOfShape"] * 3
    FoldConstants()(work)
    assert {node.op_type for node in work.graph} == {"Add"}


@pytest.mark.parametrize(("steps", "left"), [(1, []), (2, ["Gather"])])
def test_sums_of_shapes_with_one_another_are_not_followed(steps: int, left: list[str]) -> None:
    step = "c{i} = Unsqueeze (v{i}, a1) m{i} = Add (c{i}, v{i}) v{j} = Reshape (m{i}, last) "
    lines = "".join(step.format(i=i, j=i + 1) for i in range(steps))
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[n,3,4,5,6,7,8,9] x) => (int64[1] y)
        <int64[1] a1 = {{1}}, int64[1] last = {{-1}}>
        {{ v0 = Shape (x) {lines} z = Gather (v{steps}, last) y = Identity (z) }}"""
    )
    work = ir.from_proto(model)
    FoldShapes()(work)
    assert [node.op_type for node in work.graph if node.op_type == "Gather"] == left
    known = [value.const_value for value in work.graph.initializers.values()]
    assert [18] in [tensor.numpy().tolist() for tensor in known if tensor is not None] or steps > 1
