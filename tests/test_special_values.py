"""Special scores in whole converted models, on onnxruntime and in built artifacts, in every float type.

The expected rows are written down here by hand, from the definition of the softmax and from what the mask makes of a
row without any unmasked element; nothing of softq computes them. Scores reach the softmax through a Cast, so that the
interface is float32 whatever its type is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq

Array = NDArray[np.float32]

METHODS = ("exact", "deferred-log", "uniform", "log2")
TYPES = {"float": 1, "float16": 10, "bfloat16": 16}
INF, NAN = np.inf, np.nan

# Scores, and the weights that each method and type must give exactly: each of them holds powers of two.
ROWS: tuple[tuple[list[float], list[float]], ...] = (
    ([2, 2, 2, 2], [0.25] * 4),
    ([-0.0, 0.0, 0.0, -0.0], [0.25] * 4),
    ([1e-40, -1e-40, 0, 1e-45], [0.25] * 4),
    ([NAN, 1, 2, 3], [NAN] * 4),
    ([1, 2, 3, NAN], [NAN] * 4),
    ([INF, NAN, 1, 1], [NAN] * 4),
    ([-INF] * 4, [NAN] * 4),
    ([-INF, -INF, -INF, 5], [0, 0, 0, 1]),
    ([-INF, 1, -INF, 1], [0, 0.5, 0, 0.5]),
    ([30000, -30000, 0, -INF], [1, 0, 0, 0]),
    # +inf takes all the weight, shared: softq's contract, where ONNX's Softmax gives NaN.
    ([INF, 1, 2, -INF], [1, 0, 0, 0]),
    ([INF, 1, INF, 3e4], [0.5, 0, 0.5, 0]),
)
STEP = 1 / 255
"""Of the method `uniform` with its 8 bits: the weights above are not multiples of it."""

SCORES = np.array([scores for scores, _ in ROWS], np.float32)
WEIGHTS = np.array([weights for _, weights in ROWS], np.float32)


MASKS = ("-inf", "-1e30")


def model(kind: str, rows: str = "r", length: str = "n") -> onnx.ModelProto:
    """Return the softmax of scores of a type."""
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[{rows},{length}] x) => (float[{rows},{length}] y) {{
            s = Cast <to: int = {TYPES[kind]}> (x)
            p = Softmax (s)
            y = Cast <to: int = 1> (p)
        }}""")


def every_type() -> onnx.ModelProto:
    """Return softmaxes of the same scores in each type, as they are and with each mask in the place of hidden ones.

    The result for a type and a mask is `y_TYPE_NUMBER`, 0 without a mask.
    """
    nodes = "x0 = Identity (x)\n"
    for number, mask in enumerate(MASKS, 1):
        nodes += f"low{number} = Constant <value: tensor = float {{{mask}}}> ()\n"
        nodes += f"x{number} = Where (keep, x, low{number})\n"
    for kind, at in itertools.product(TYPES, range(len(MASKS) + 1)):
        nodes += f"s_{kind}_{at} = Cast <to: int = {TYPES[kind]}> (x{at})\n"
        nodes += f"p_{kind}_{at} = Softmax (s_{kind}_{at})\n"
        nodes += f"y_{kind}_{at} = Cast <to: int = 1> (p_{kind}_{at})\n"
    results = ", ".join(f"float[r,n] y_{kind}_{at}" for kind, at in itertools.product(TYPES, range(len(MASKS) + 1)))
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[r,n] x, bool[r,n] keep) => ({results}) {{ {nodes} }}'
    )


def same(y: Array, expected: Array, method: str) -> None:
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    # bfloat16 rounds a multiple of the step by 2^-9 of itself.
    np.testing.assert_allclose(y, expected, atol=STEP / 2 + 2**-9 if method == "uniform" else 0, rtol=0)


Run = Callable[..., dict[str, Array]]


def on_onnxruntime(proto: onnx.ModelProto) -> Run:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(**feeds: NDArray[np.generic]) -> dict[str, Array]:
        return dict(zip(names, map(np.asarray, session.run(names, feeds)), strict=True))

    return run


def built(proto: onnx.ModelProto, folder: Path) -> Run:
    pytest.importorskip("tvm")
    artifact = softq.load(softq.build(proto, folder / "artifact", target="cpu").folder)

    def run(**feeds: NDArray[np.generic]) -> dict[str, Array]:
        results = artifact(feeds)
        assert all(y.dtype == np.float32 for y in results.values())
        return {name: y.astype(np.float32) for name, y in results.items()}

    return run


def converted(method: str, proto: onnx.ModelProto, max_length: int | None = None) -> onnx.ModelProto:
    return softq.convert(proto, method=method, all_sites=True, require=True, max_length=max_length).model


@pytest.fixture(scope="module", params=METHODS)
def everywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Run]]:
    """A method, and what runs `every_type` with it: onnxruntime and an artifact."""
    proto = converted(request.param, every_type())
    artifact = built(proto, tmp_path_factory.mktemp("special"))
    return request.param, [on_onnxruntime(proto), artifact]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kind", TYPES)
def test_special_scores(everywhere: tuple[str, list[Run]], kind: str) -> None:
    method, backends = everywhere
    name = f"y_{kind}_0"
    for run in backends:
        same(run(x=SCORES, keep=np.ones(SCORES.shape, np.bool_))[name], WEIGHTS, method)
        for length in (0, 1, 2, 3, 17):
            equal = np.full((3, length), 7.0, np.float32)
            expected = np.full((3, length), 1 / max(length, 1))
            tolerance = {"exact": 1e-2 if kind == "bfloat16" else 1e-3}.get(method, 0.5)
            y = run(x=equal, keep=np.ones(equal.shape, np.bool_))[name]
            assert y.shape == equal.shape
            np.testing.assert_allclose(y, expected, rtol=tolerance)
        assert run(x=SCORES[:0], keep=np.ones((0, 4), np.bool_))[name].shape == (0, 4)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("mask", "fully_masked"), [("-inf", NAN), ("-1e30", 0.25)])
def test_masked_scores(everywhere: tuple[str, list[Run]], kind: str, mask: str, fully_masked: float) -> None:
    if kind == "float16" and mask == "-1e30":
        fully_masked = NAN  # -1e30 is -inf there
    keep = np.array([[True, False, True, False], [False] * 4, [False, False, True, False], [True] * 4])
    scores = np.array([[1, 50, 1, NAN], [1, 2, 3, 4], [INF, NAN, 3, 0], [-INF, 2, -INF, 2]], np.float32)
    expected = np.array([[0.5, 0, 0.5, 0], [fully_masked] * 4, [0, 0, 1, 0], [0, 0.5, 0, 0.5]], np.float32)
    method, backends = everywhere
    for run in backends:
        same(run(x=scores, keep=keep)[f"y_{kind}_{1 + MASKS.index(mask)}"], expected, method)


@pytest.mark.parametrize("method", METHODS)
def test_rows_above_65536(method: str, tmp_path: Path) -> None:
    length = 70_001
    x = np.full((2, length), -400.0, np.float32)
    x[0, [3, 65_536, 70_000]] = [9, 9, -INF]
    x[1, 70_000] = INF
    expected = np.zeros_like(x)
    expected[0, [3, 65_536]] = 0.5
    expected[1, 70_000] = 1
    proto = converted(method, model("float", length=str(length)))
    artifact = built(proto, tmp_path)
    for results in (on_onnxruntime(proto)(x=x), artifact(x=x)):
        same(results["y"], expected, method)


def test_a_row_longer_than_proved_is_an_error_of_the_artifact(tmp_path: Path) -> None:
    artifact = built(converted("deferred-log", model("float"), max_length=100), tmp_path)
    assert artifact(x=np.zeros((1, 100), np.float32))["y"].shape == (1, 100)
    with pytest.raises(softq.InputError, match="proved for at most 100 elements: it is 101"):
        artifact(x=np.zeros((1, 101), np.float32))


def test_a_row_too_long_for_a_method_is_refused_by_name() -> None:
    with pytest.raises(softq.ProofError, match=r"site p: .*row"):
        converted("deferred-log", model("float", length="2000000"))
    assert converted("exact", model("float", length="2000000")).graph.node


def test_bfloat16_is_moved_as_it_is(tmp_path: Path) -> None:
    proto = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[a,3,b] x) => (float[a,c,d] y) {
            h = Cast <to: int = 16> (x)
            t = Transpose <perm: ints = [0, 2, 1]> (h)
            two = Constant <value: tensor = int64[1] {2}> ()
            zero = Constant <value: tensor = int64[1] {0}> ()
            s = Slice (t, zero, two, two)
            j = Concat <axis: int = 2> (s, t)
            k = Unsqueeze (j, zero)
            m = Squeeze (k, zero)
            y = Cast <to: int = 1> (m)
        }""")
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    x[0, 0, :3] = [NAN, INF, -0.0]
    np.testing.assert_array_equal(built(proto, tmp_path)(x=x)["y"], on_onnxruntime(proto)(x=x)["y"])


LOW = -3.4028235e38
UNDER = {
    "two that are named": "z = Add (x, k)\n s = Add (z, l)",
    "one that is not named": "z = Add (x, k)\n s = Add (z, l)",
    "their sum": "z = Add (k, l)\n s = Add (x, z)",
    "a Where": f"c = Constant <value: tensor = float {{{LOW}}}> ()\n z = Where (keep, x, c)\n s = Add (z, l)",
}


@pytest.mark.parametrize(
    ("low", "lower"), [(LOW, LOW), (LOW, -1e4), (-1e4, LOW), (-1e9, -1e4), (-1e4, -1e4), (-INF, LOW)]
)
@pytest.mark.parametrize("under", UNDER)
def test_a_row_that_several_masks_hide_only_together_stays_what_it_was(under: str, low: float, lower: float) -> None:
    # Padding on the left under a causal mask: of the first queries each key is hidden by one of the two.
    proto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[3,4] x, float[1,4] k, float[3,4] l, bool[1,4] keep) => (float[3,4] y) {{
            {UNDER[under]}
            y = Softmax (s)
        }}""")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    keep = np.array([[False, False, True, True]])
    feeds = {"x": x, "keep": keep, "k": np.where(keep, 0, low).astype(np.float32)}
    feeds["l"] = np.where(np.triu(np.ones((3, 4), bool), 1), lower, 0).astype(np.float32)
    named = ["l"] if under in ("a Where", "one that is not named") else ["k", "l"]
    result = softq.convert(proto, method="exact", all_sites=True, masks=named)
    found, wanted = (on_onnxruntime(each)(**feeds)["y"] for each in (result.model, proto))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
