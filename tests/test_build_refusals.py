"""What cannot be built is said at once and in full; what stands in functions of a model's own is built."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from softq.codegen.cpu import machines
from softq.compiler import pipeline
from softq.compiler.frontend.importer import Importer
from softq.compiler.legalize import elementwise
from tests.built import causes, check

tvm = pytest.importorskip("tvm")

F32 = np.float32

UNSUPPORTED = """<ir_version: 10, opset_import: ["": 18, "my": 1, "ai.onnx.ml": 3]>
g (float[2, 3] x, string[N] s, bool c, complex64[2] z) => (float[2, 3] y, string[N] t, float[2, 3] w) {
    a = my.First (x)
    b = my.First (a)
    d = StringNormalizer (b)
    t = Identity (s)
    drawn = RandomNormalLike (d)
    e = ai.onnx.ml.Scaler (drawn)
    y = If (c) <
        then_branch = g1 () => (float[2, 3] u) { u = my.Second (e) },
        else_branch = g2 () => (float[2, 3] v) { v = ImageDecoder (e) }>
    shape = Shape (x)
    n = Size (shape)
    two = Constant <value_int = 2> ()
    k = Equal (n, two)
    w = If (k) <
        then_branch = g3 () => (float[2, 3] p) { p = Exp (e) },
        else_branch = g4 () => (float[2, 3] q) { q = my.Never (e) }>
}"""


def test_all_that_cannot_be_built_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Importer, "from_onnx", lambda *_: pytest.fail("it was imported"))
    monkeypatch.setattr(pipeline, "prepare", lambda *_: pytest.fail("passes were run, which take seconds"))
    with pytest.raises(softq.RefusalError) as caught:
        softq.build(parser.parse_model(UNSUPPORTED), tmp_path / "built", target="cpu")
    text = str(caught.value)
    first = "my::First (first at 'a'), StringNormalizer (first at 'd'), ai.onnx.ml::Scaler (first at 'e')"
    assert f"no operator for: {first}, my::Second (first at 'u'), ImageDecoder (first at 'v');" in text
    for value in (
        "RandomNormalLike 'drawn' draws random numbers;",
        "input 's' is string",
        "input 'z' is complex64",
        "output 't' is string",
    ):
        assert value in text
    # Which body is taken is known from shapes alone.
    assert "my::Never" not in text
    assert text.endswith("(onnx.utils.extract_model)")


def test_what_is_not_there_in_the_end_is_not_refused(tmp_path: Path) -> None:
    """Operators that nothing uses but for their shape, or that are replaced where the operator set is raised."""
    x = {"x": np.arange(6, dtype=F32).reshape(1, 1, 2, 3)}
    body = "y = Upsample (x, twice)"
    graph = f"g (float[1, 1, N, 3] x) => (float[1, 1, A, B] y) <float[4] twice = {{1, 1, 2, 2}}> {{ {body} }}"
    check(graph, [x], tmp_path, opset=9)
    body = "never = StringNormalizer (name) drawn = RandomNormalLike (x) s = Shape (drawn) y = Expand (x, s)"
    graph = f'g (float[1, 1, 2, 3] x) => (float[1, 1, A, B] y) <string[1] name = {{"b"}}> {{ {body} }}'
    check(graph, [x], tmp_path, opset=18)


FUNCTION = """<ir_version: 10, opset_import: ["": 18, "my": 1]>
g (float[2, 3, 4] q, float[2, 5, 4] k) => (float[2, 3, 4] y) { y = my.attention (q, k) }
<domain: "my", opset_import: ["": 18]>
attention (q, k) => (y) {
    t = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul (q, t)
    p = Softmax <axis = -1> (s)
    y = MatMul (p, k)
}"""


@pytest.mark.parametrize("method", ["exact", "deferred-log", "i-exp"])
def test_a_converted_softmax_in_a_function_of_the_models_own_is_built(method: str, tmp_path: Path) -> None:
    model: onnx.ModelProto = softq.convert(parser.parse_model(FUNCTION), method=method).model
    assert {function.domain for function in model.functions} == {"my", "softq"}
    rng = np.random.default_rng(0)
    feed = {"q": rng.normal(size=(2, 3, 4)).astype(F32), "k": rng.normal(size=(2, 5, 4)).astype(F32)}
    check(model, [feed], tmp_path)


def test_an_attention_whose_rows_are_a_quotient_of_a_dimension(tmp_path: Path) -> None:
    # The function behind the product takes the dimension as a number: no tensor of it has the dimension itself.
    check(
        """g (float[1, 2, N, 4] q, float[1, 2, N, 4] k) => (float[A, B, C, D] z)
        <int64[1] zero = {0}, int64[1] far = {9223372036854775807}, int64[1] two = {2}> {
            rows = Slice (q, zero, far, two, two)
            keys = Slice (k, zero, far, two, two)
            t = Transpose <perm = [0, 1, 3, 2]> (keys)
            s = MatMul (rows, t)
            p = Softmax <axis = -1> (s)
            y = MatMul (p, keys)
            z = Transpose <perm = [0, 2, 1, 3]> (y)
        }""",
        [{x: np.random.default_rng(n).normal(size=(1, 2, n, 4)).astype(F32) for x in "qk"} for n in (5, 8, 1, 100)],
        tmp_path,
    )


PLAIN = """<ir_version: 10, opset_import: ["": 18]>
g (float[2, N] x) => (float[2, N] z, int64 n) {
    n = Size (x)
    y = Exp (x)
    z = Softmax (y)
}"""


def _fails(*arguments: object, **options: object) -> object:
    return tvm.tirx.floordiv(tvm.tirx.IntImm("int32", 1), tvm.tirx.IntImm("int32", 0))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("softq.compiler.legalize.elementwise.LEGALIZE", "TVM cannot lower 'y'"),
        ("softq.codegen.cpu.backend.CpuBackend.nests", "TVM cannot compile 'y'"),
        ("softq.codegen.cpu.object_code.lower", "TVM cannot generate code of softq_"),
        ("softq.compiler.frontend.importer.broadcast_inputs", "TVM cannot import Exp 'y'"),
        ("softq.compiler.frontend.onnx_node.fold", "TVM cannot import Size 'n'"),
        ("softq.compiler.pipeline.find_attentions", "TVM cannot compile the model"),
        ("softq.compiler.pipeline.bindings.in_order", "TVM cannot compile the model"),
    ],
)
def test_an_error_of_tvms_is_a_refusal_that_names_the_place(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTQ_CACHE_DIR", str(tmp_path / "cache"))
    if place.endswith("LEGALIZE"):
        monkeypatch.setitem(elementwise.LEGALIZE, "relax.exp", _fails)
    else:
        monkeypatch.setattr(place, _fails)
    with pytest.raises(softq.RefusalError, match=message) as caught:
        softq.build(parser.parse_model(PLAIN), tmp_path / "built", target="cpu")
    # TVM's own words are about its programs: who looks for the fault finds them.
    assert "`softq --debug` shows" in str(caught.value)
    assert "ivide by zero" not in str(caught.value)
    assert "ivide by zero" in str(causes(caught.value)[-1])


def test_a_product_of_no_rows_with_something_behind_it(tmp_path: Path) -> None:
    """TVM cannot make kernels of axes without elements; they are neither fused nor run."""
    body = "p = MatMul (x, y) r = Relu (p) z = Concat <axis = 0> (r, y)"
    feeds = {"x": np.zeros((0, 4), F32), "y": np.ones((4, 4), F32)}
    check(f"g (float[0, 4] x, float[4, 4] y) => (float[4, 4] z) {{ {body} }}", [feeds], tmp_path)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_sizes_over_nothing(operator: str, tmp_path: Path) -> None:
    """The quotient by a size of 0 is 0, as nobody defines it: the build does not end in an error of TVM's."""
    body = f"s = Shape (x) e = Shape (empty) q = {operator} (s, e) z = ConstantOfShape (q)"
    softq.build(
        parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 18]> g (float[N] x, float[0] empty) => (float[M] z) {{ {body} }}'
        ),
        tmp_path / "built",
        target="cpu",
    )
    with softq.load(tmp_path / "built") as built:
        assert np.asarray(built({"x": np.ones(3, F32), "empty": np.ones(0, F32)})["z"]).shape == (0,)


def test_an_error_of_our_own_is_none_of_tvms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("softq.codegen.cpu.backend.CpuBackend.nests", fail)
    with pytest.raises(KeyError, match="ours"):
        softq.build(parser.parse_model(PLAIN), tmp_path / "built", target="cpu")


def test_features_are_names_after_plus_signs(tmp_path: Path) -> None:
    for text in ("avx2", "avx2+fma"):
        with pytest.raises(
            softq.UsageError, match=re.escape(f"features are '{text}'; expected +name, several as +name+name")
        ):
            softq.build(parser.parse_model(PLAIN), tmp_path / "built", target=f"cpu,mcpu=x86-64,features={text}")
    machine = machines.host("cpu", "x86-64", "+avx2+fma")
    assert machine.features == ("avx2", "fma")
    assert (machine.vector_bytes, machine.fused) == (32, True)


def test_channels_in_blocks_are_refused_with_the_way_out(tmp_path: Path) -> None:
    graph = "g (float[1, 32, 9, 9] x) => (float[1, 32, 7, 7] y) { y = Conv (x, w) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    weights = np.random.default_rng(0).normal(size=(32, 32, 3, 3)).astype(F32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(tmp_path / "saved.onnx")
    if not any(node.domain == "com.microsoft.nchwc" for node in saved.graph.node):
        pytest.skip("onnxruntime has no kernels for blocks of channels on this processor")
    with pytest.raises(
        softq.RefusalError, match=r"nchwc::\w+ '\w+' keeps channels in blocks .* at ORT_ENABLE_EXTENDED"
    ):
        softq.build(saved, tmp_path / "built", target="cpu")
