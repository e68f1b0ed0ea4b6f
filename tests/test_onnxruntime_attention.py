"""Custom operators of whole attentions in onnxruntime: close to the functions that they stand for, with O(N) memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import softq
from softq.artifact import manifest
from softq.artifact.operators.writing import write_operators
from softq.artifact.program import evaluate
from softq.codegen.cpu.gemm.dot_product import has_words
from softq.codegen.cpu.operators import compile_operators
from softq.compiler.attention_functions import FoundFunctions, find_functions
from softq.errors import RefusalError
from softq.methods import OptionValue
from softq.modelfile import as_model
from tests.fused import ATTENTIONS, DIMS, Attention, Feeds
from tests.ort_cases import operators_run, session
from tests.ort_library import MACHINE, fused_model, write_attentions

LONGER = {"B": 1, "S": 70, "N": 130, "P": 9}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Operators for all of `ATTENTIONS` in one library."""
    return write_attentions(tmp_path_factory.mktemp("operators") / "built") / manifest.OPERATOR_LIBRARY


def both(name: str, library: Path, feeds: Feeds) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of the operator and of the function's body."""
    model = fused_model(ATTENTIONS[name]).SerializeToString()
    got, want = (np.asarray(session(model, used).run(None, feeds)[0]) for used in (library, None))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    return got, want


def close(got: np.ndarray, want: np.ndarray) -> None:
    """Assert that weighted means of values agree: codes are the same where sums of products round alike, and else a
    code of a score next to a threshold may be its neighbour, which moves a mean by less than 1 in 100 of the values.
    """
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=0.01)
    assert np.mean(np.abs(got[finite] - want[finite]) > 1e-5) < 0.05


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", sorted({*ATTENTIONS} - {"half"}))
def test_close_to_the_function(name: str, library: Path) -> None:
    for dims in (DIMS, LONGER):
        close(*both(name, library, ATTENTIONS[name].feeds(dims)))


@pytest.mark.parametrize("dims", [{"B": 1, "S": 100, "N": 2003}, {"B": 41, "S": 8, "N": 30}], ids=["long", "many"])
def test_threads_take_several_items_at_once(dims: dict[str, int], library: Path) -> None:
    # Panels of keys, and matrices, that do not divide evenly.
    close(*both("plain", library, ATTENTIONS["plain"].feeds(dims)))


@pytest.mark.parametrize("name", sorted({*ATTENTIONS} - {"half", "capped"}))
def test_equal_where_no_sum_is_rounded(name: str, library: Path) -> None:
    # Codes and sums of weights are whole numbers; a hyperbolic tangent is none.
    for dims in (DIMS, LONGER):
        got, want = both(name, library, ATTENTIONS[name].feeds(dims, whole=True))
        np.testing.assert_array_equal(got, want)


def coded(zero: int) -> Attention:
    """Return an attention of codes; those of keys and values have a zero point."""
    return Attention(
        {"q": "int8[B,4,S,16]", "k": "int8[B,N,4,16]", "v": "int8[B,4,N,16]"},
        f"""step = Constant <value: tensor = float {{0.25}}> () zero = Constant <value: tensor = int8 {{{zero}}}> ()
        scale = Constant <value: tensor = float {{0.25}}> () turned = DequantizeLinear(k, step, zero)
        kd = Transpose <perm: ints = [0, 2, 3, 1]> (turned)
        qd = DequantizeLinear(q, step) vd = DequantizeLinear(v, step, zero)
        scores = MatMul(qd, kd) masked = Mul(scores, scale) p = Softmax <axis: int = -1> (masked) out = MatMul(p, vd)
        """,
        "float[B,4,S,16]",
    )


def grouped(decoded: int) -> Attention:
    """Return an attention of codes in which two queries share a head; behind so many moves codes become numbers."""

    def lay_out(x: str, *turns: str) -> str:
        steps = ["Unsqueeze({}, two)", "Expand({}, often)", "Reshape({}, four)", *turns]
        steps.insert(decoded, "DequantizeLinear({}, step)")
        names = [x, *(f"{x}{i}" for i in range(1, len(steps))), f"{x}_last"]
        return " ".join(f"{names[i + 1]} = {step.format(names[i])}" for i, step in enumerate(steps))

    return Attention(
        {"q": "int8[B,4,S,16]", "k": "int8[B,2,N,16]", "v": "int8[B,2,N,16]"},
        f"""step = Constant <value: tensor = float {{0.25}}> () two = Constant <value: tensor = int64[1] {{2}}> ()
        often = Constant <value: tensor = int64[5] {{1, 1, 2, 1, 1}}> ()
        four = Constant <value: tensor = int64[4] {{0, 4, -1, 16}}> ()
        {lay_out("k", "Transpose <perm: ints = [0, 1, 3, 2]> ({})")} {lay_out("v")} qd = DequantizeLinear(q, step)
        scores = MatMul(qd, k_last) p = Softmax <axis: int = -1> (scores) out = MatMul(p, v_last)""",
        "float[B,4,S,16]",
    )


BYTES: dict[str, OptionValue] = {"weight_bits": 8, "peak": "full"}
"""Options with which a weight is a byte."""


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(
    ("settings", "pack"),
    [({}, "_words_int8_less" if has_words(MACHINE) else "_block_pack"), (BYTES, "_int8")],
    ids=["words", "bytes"],
)
def test_operands_of_codes_are_multiplied_as_integers(
    settings: dict[str, OptionValue], pack: str, zero: int, tmp_path: Path
) -> None:
    given = coded(zero)
    model = softq.convert(given.model(), bits=4, settings=settings, fuse_attention=True).model
    made = compile_operators(find_functions(as_model(model)), MACHINE)
    (attention,) = made.attentions
    assert [str(attention.program.tensors[i].dtype) for i in attention.program.inputs] == ["int8"] * 3
    assert pack in attention.program.steps[-2].kernel
    library = write_operators(made, MACHINE, tmp_path / "operators") / manifest.OPERATOR_LIBRARY
    for dims in (DIMS, LONGER):
        feeds = given.feeds(dims, whole=True)
        got, want = (session(model.SerializeToString(), used).run(None, feeds)[0] for used in (library, None))
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(
    ("given", "kernel"), [(ATTENTIONS["plain"], b"softq_block_scaled"), (coded(3), b"_words_scaled")]
)
def test_scores_are_scaled_before_they_are_written(given: Attention, kernel: bytes) -> None:
    made = compile_operators(find_functions(as_model(fused_model(given))), MACHINE)
    assert kernel in b"".join(made.objects)


@pytest.mark.parametrize("decoded", [0, 3, 4])
def test_codes_of_heads_that_queries_share_are_multiplied_as_integers(decoded: int, tmp_path: Path) -> None:
    given = grouped(decoded)
    model = softq.convert(given.model(), bits=4, settings=BYTES, fuse_attention=True).model
    made = compile_operators(find_functions(as_model(model)), MACHINE)
    (attention,) = made.attentions
    assert [str(attention.program.tensors[i].dtype) for i in attention.program.inputs] == ["int8"] * 3
    assert ["_int8" in step.kernel for step in attention.program.steps] == [True, True, False], "packing, and the rest"
    library = write_operators(made, MACHINE, tmp_path / "operators") / manifest.OPERATOR_LIBRARY
    feeds, text = given.feeds(LONGER, whole=True), model.SerializeToString()
    # Where onnxruntime 1.31.1 optimizes such a model, converted or not, its results are .3 off.
    plain = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    body = session(text, None, graph_optimization_level=plain)
    got, want = (np.asarray(each.run(None, feeds)[0]) for each in (session(text, library), body))
    np.testing.assert_array_equal(got, want)


def test_scores_that_batches_share(tmp_path: Path) -> None:
    given = Attention(
        {"s": "float[1,4,S,N]", "v": "float[B,4,N,16]"}, "p = Softmax(s) out = MatMul(p, v)", "float[B,4,S,16]"
    )
    model = softq.convert(given.model(), method="exact", fuse_attention=True).model
    made = compile_operators(find_functions(as_model(model)), MACHINE)
    library = write_operators(made, MACHINE, tmp_path / "operators") / manifest.OPERATOR_LIBRARY
    for dims in (DIMS, LONGER):
        feeds = given.feeds(dims)
        got, want = (np.asarray(session(model.SerializeToString(), used).run(None, feeds)[0])
                     for used in (library, None))  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values(special: float, library: Path) -> None:
    for name in ("given-scores", "chosen-mask"):
        feeds = ATTENTIONS[name].feeds(DIMS)
        first = next(iter(feeds))
        feeds[first][0, 1, 2, 3] = special
        feeds[first][1, 0, 0] = special
        if "keep" in feeds:
            feeds["keep"][0, 0, 1] = False
        close(*both(name, library, feeds))


def test_scores_of_16_bits_are_rounded_once(library: Path) -> None:
    # As the model says; onnxruntime leaves that out where it computes the body.
    feeds = ATTENTIONS["half"].feeds(LONGER)
    got = np.asarray(session(fused_model(ATTENTIONS["half"]).SerializeToString(), library).run(None, feeds)[0])
    q, k, v = (feeds[name].astype(np.float32) for name in "qkv")
    scores = (q @ k.swapaxes(-1, -2)).astype(np.float16).astype(np.float32)
    want = session(fused_model(ATTENTIONS["given-scores"]).SerializeToString(), None).run(
        None, {"scores": scores, "v": v}
    )
    close(got.astype(np.float32), np.asarray(want[0]).astype(np.float16).astype(np.float32))


def test_which_one_runs(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = fused_model(ATTENTIONS["plain"])
    onnx.save(model, path)
    (name,) = (f.name for f in model.functions if f.name.startswith("Attention_"))
    feeds = ATTENTIONS["plain"].feeds(DIMS)
    assert operators_run(path, library, feeds) == {name}
    assert "MatMul" in operators_run(path, None, feeds)


def test_numbers_are_inputs(tmp_path: Path) -> None:
    given = ATTENTIONS["plain"]
    feeds = given.feeds(DIMS)
    model = softq.convert(given.model(), method="bias-corrected", calibration=[feeds], fuse_attention=True).model
    built = softq.build(model, tmp_path / "operators", target=f"onnxruntime,mcpu={MACHINE.cpu}")
    path = built.folder / manifest.OPERATOR_LIBRARY
    got, want = (session(model.SerializeToString(), used).run(None, feeds)[0] for used in (path, None))
    close(np.asarray(got), np.asarray(want))
    (told,) = json.loads((built.folder / manifest.NAME).read_text())["operators"]
    assert told["name"].startswith("Attention_")
    assert len(told["inputs"]) > 3
    assert told["sites"] == ["p"]


@pytest.mark.parametrize("name", ["plain", "given-scores"])
def test_memory_grows_with_the_length(name: str) -> None:
    found = find_functions(as_model(fused_model(ATTENTIONS[name])))
    (operator,) = compile_operators(FoundFunctions({}, {}, found.attentions, found.called), MACHINE).attentions
    program = operator.program
    short, long = (
        sum(evaluate(size, {"B": 1, "S": n, "N": n}) for size in (*program.slots, program.scratch))
        for n in (1024, 4096)
    )
    assert long < 4.1 * short


def _wrong(name: str, array: Callable[[Feeds], np.ndarray]) -> Callable[[Feeds], Feeds]:
    return lambda feeds: {**feeds, name: array(feeds)}


def test_contradicting_shapes_are_errors_of_the_run(library: Path) -> None:
    made = session(fused_model(ATTENTIONS["plain"]).SerializeToString(), library)
    feeds = ATTENTIONS["plain"].feeds(DIMS)
    for wrong in (_wrong("v", lambda f: f["v"][:, :, :-1]), _wrong("k", lambda f: f["k"][:1])):
        with pytest.raises(Exception, match=r"softq::Attention_.* has \d elements along axis \d; expected \d"):
            made.run(None, wrong(feeds))
    empty = ATTENTIONS["plain"].feeds({"B": 0, "S": 3, "N": 4})
    assert np.asarray(made.run(None, empty)[0]).shape == (0, 4, 3, 16)


def test_concurrent_runs(library: Path) -> None:
    made = session(fused_model(ATTENTIONS["side-by-side"]).SerializeToString(), library)
    runs = [ATTENTIONS["side-by-side"].feeds({"B": 1 + seed % 2, "S": 20 + 90 * seed}, seed=seed) for seed in range(6)]
    alone = [np.asarray(made.run(None, feeds)[0]) for feeds in runs]
    with ThreadPoolExecutor(4) as pool:
        for number, got in enumerate(pool.map(lambda feeds: made.run(None, feeds)[0], runs * 5)):
            np.testing.assert_array_equal(np.asarray(got), alone[number % 6])


def test_lengths_that_are_not_known_are_refused() -> None:
    fused = fused_model(ATTENTIONS["given-scores"])
    fused.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(RefusalError, match="value has an unknown number of axes; convert without --fuse-attention"):
        find_functions(as_model(fused))
