"""Two models on the same data: which output, labels and metrics are taken, and what is refused."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from onnx import parser

from softq.cli import main
from softq.compare import check
from softq.data import Array, TensorSpec
from softq.errors import InputError, UsageError
from softq.metrics import NanCounts, find_metric
from softq.reports import MetricResult, judge, parse_drop
from softq.runner import OnnxRunner, Runner
from softq.sweeps.budget import Budget
from softq.sweeps.records import Estimate

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
PLAIN = f"{HEAD} plain (float[n, 4] x) => (float[n, 4] y) {{ y = Identity(x) }}"
DOUBLED = f"{HEAD} doubled (float[n, 4] x) => (float[n, 4] y) {{ y = Add(x, x) }}"
BACKWARD = f"{HEAD} backward (float[n, 4] x) => (float[n, 4] y) {{ y = Neg(x) }}"
ROOT = f"{HEAD} root (float[n, 4] x) => (float[n, 4] y) {{ y = Sqrt(x) }}"


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def samples(count: int = 10) -> list[dict[str, Array]]:
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return [{"x": x, "label.y": x.argmax(axis=1)}]


def values(report_metrics: Sequence[object]) -> dict[str, object]:
    return {m.name: m.candidate for m in report_metrics}  # pyright: ignore


def test_a_model_against_itself() -> None:
    report = check(model(PLAIN), model(PLAIN), samples())
    assert values(report.metrics) == {
        "top1-accuracy": 1,
        "top1-agreement": 1,
        "relative-error": 0,
        "max-error": 0,
    }
    assert (report.output, report.labels, report.count, report.batch, report.gate) == ("y", "y", 10, 32, None)
    assert report.metrics[0].samples is not None
    assert report.metrics[0].interval is not None
    assert report.passed


def test_gates() -> None:
    better = check(model(PLAIN), model(DOUBLED), samples(), metrics=["top1-accuracy"], max_drop="0.3")
    assert better.passed
    # 10 samples without a flip show a drop of at most z^2 / (10 + z^2) = 0.278 and no less.
    assert not check(model(PLAIN), model(DOUBLED), samples(), metrics=["top1-accuracy"], max_drop="0.2").passed
    worse = check(model(PLAIN), model(BACKWARD), samples(), metrics=["top1-accuracy", "cosine"], max_drop=0.5)
    assert not worse.passed
    assert worse.metrics[1].candidate == pytest.approx(-1)
    limited = check(model(PLAIN), model(DOUBLED), samples(), metrics=["relative-error"], limit=1)
    assert limited.passed
    assert limited.metrics[0].candidate == 1


@pytest.mark.parametrize(
    ("metric", "best", "value"),
    [("top1-agreement", 1.0, 0.0), ("cosine", 1.0, -1.0), ("relative-error", 0.0, 2.0), ("max-error", 0.0, None)],
)
def test_a_paired_metric_drops_from_the_reference_compared_with_itself(
    metric: str, best: float, value: float | None
) -> None:
    """As in a sweep. BACKWARD gives the scores with the other sign."""
    found = check(model(PLAIN), model(BACKWARD), samples(), metrics=metric, max_drop=1e9)
    assert found.passed
    assert found.metrics[0].reference is None
    worst = found.metrics[0].candidate
    assert value is None or worst == pytest.approx(value)
    assert found.gate is not None
    assert f"{metric} goes from {best:g} to {worst:.6g}, worse by {abs(best - worst):.4g}" in found.gate.sentence
    assert not check(model(PLAIN), model(BACKWARD), samples(), metrics=metric, max_drop=abs(best - worst) / 2).passed
    assert not check(model(PLAIN), model(BACKWARD), samples(), metrics=metric, max_drop=0).passed


def test_a_share_of_no_error_is_no_gate() -> None:
    with pytest.raises(UsageError, match=r"max-drop is 1%, a share of the kl .* which is 0; give it without %"):
        check(model(PLAIN), model(PLAIN), samples(), metrics="kl", max_drop="1%")
    assert check(model(PLAIN), model(PLAIN), samples(10_000), metrics="top1-agreement", max_drop="1%").passed


@pytest.mark.parametrize(
    ("metric", "limit", "message"),
    [
        ("max-error", -1, "limit is -1; max-error is at least 0, so that no model could pass"),
        ("top1-agreement", 1.5, "limit is 1.5; top1-agreement is at most 1, so that no model could pass"),
        ("perplexity", 0.5, "limit is 0.5; perplexity is at least 1, so that no model could pass"),
    ],
)
def test_a_limit_that_no_model_reaches_is_refused(metric: str, limit: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(model(PLAIN), model(PLAIN), samples(), metrics=metric, limit=limit)


def test_a_text_is_one_metric() -> None:
    assert [one.name for one in check(model(PLAIN), model(PLAIN), samples(), metrics="kl").metrics] == ["kl"]


def test_nan_in_the_data_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(PLAIN), "m.onnx")
    x = np.ones((3, 4), np.float32)
    x[1] = np.nan
    np.savez("d.npz", x=x)
    line = ["check", "m.onnx", "m.onnx", "--data", "d.npz", "--metric", "max-error", "--limit", "1", "--json"]
    done = CliRunner().invoke(main, line)
    told = "softq: warning: NaN seen by max-error: 4 in the reference, 4 in the candidate, 4 in both at the same place"
    assert (done.exit_code, done.stderr.startswith(told), done.stderr.count("\n")) == (0, True, 1), done.output
    result = MetricResult("score", "fraction", "higher", math.nan, math.nan, math.nan, NanCounts())
    gate = judge([result], parse_drop(0.1), None)
    assert gate is not None
    assert gate.sentence == "score of the reference is NaN: nothing can be compared with it; are there NaN in the data?"
    budget = Budget(parse_drop(0.1), find_metric("top1-accuracy"), math.nan)
    assert "inf" not in budget.judge(Estimate(math.nan)).sentence


def test_nan_in_the_candidate_fails_without_a_gate() -> None:
    report = check(model(PLAIN), model(ROOT), samples(), metrics=["top1-accuracy"])
    negative = int((samples()[0]["x"].astype(np.float64) < 0).sum())
    assert not report.passed
    assert report.gate is not None
    assert report.gate.sentence == f"top1-accuracy: the candidate has {negative} NaN where the reference has numbers"
    assert math.isnan(report.metrics[0].candidate)
    shared = check(model(ROOT), model(ROOT), samples(), metrics=["max-error"], limit=0)
    assert shared.passed
    assert shared.metrics[0].nan.both == negative


def test_paths_protos_and_ir_give_the_same(tmp_path: Path) -> None:
    weights = np.arange(4, dtype=np.float32)
    text = f"{HEAD} biased (float[n, 4] x) => (float[n, 4] y) {{ y = Add(x, w) }}"
    proto = model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(
        proto,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    inline = model(text)
    inline.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    external = ir.load(tmp_path / "m.onnx")
    assert (tmp_path / "w.bin").stat().st_size >= 16
    for other in (inline, tmp_path / "m.onnx", str(tmp_path / "m.onnx"), external, ir.from_proto(inline)):
        report = check(inline, other, samples(), metrics=["max-error"])
        assert report.metrics[0].candidate == 0
    assert check(tmp_path / "m.onnx", external, samples()).candidate == "<biased>"
    with pytest.raises(InputError, match="a ModelProto does not say where; give the path"):
        check(inline, onnx.load(tmp_path / "m.onnx", load_external_data=False), samples())


def test_a_model_too_large_for_one_message_goes_through_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from softq import runner

    proto = model(f"{HEAD} biased (float[n, 4] x) => (float[n, 4] y) {{ y = Add(x, w) }}")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(4, np.float32), "w"))
    plain = OnnxRunner.open(model(PLAIN))
    monkeypatch.setattr(runner, "_SERIAL_BYTES", 4)
    for large in (proto, ir.from_proto(proto)):
        assert check(plain, large, samples(), metrics=["max-error"]).metrics[0].candidate == 0


@dataclass(frozen=True)
class Twice:
    """An artifact in the place of a model."""

    name: str = "twice.so"
    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", (2, 4)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", "float32", (2, 4)),)

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        assert len(inputs["x"]) == 2, "its batch is fixed"
        return {"y": inputs["x"].astype(np.float32) * np.float32(2)}


def test_an_artifact_is_compared_by_the_same_code() -> None:
    assert isinstance(Twice(), Runner)
    report = check(model(DOUBLED), Twice(), samples(), metrics=["max-error"])
    assert (report.candidate, report.batch, report.metrics[0].candidate) == ("twice.so", 2, 0)


TOKENS = f"""{HEAD} tokens (int64[n, t] ids) => (float[n, t, 3] logits) {{
    depth = Constant<value_int = 3>()
    values = Constant<value = float[2] {{0, 2}}>()
    logits = OneHot<axis = -1>(ids, depth, values)
}}"""


def test_perplexity_with_the_token_ids_of_the_input() -> None:
    ids = np.array([[0, 0, 1], [2, 2, -100]])
    data = [{"ids": np.where(ids < 0, 0, ids), "label.ids": ids}]
    # logits are 2 at the token itself and 0 elsewhere: a repeated token has p = e^2 / (e^2 + 2), another 1 / (e^2 + 2).
    total = math.exp(2) + 2
    same, other = -math.log(math.exp(2) / total), -math.log(1 / total)
    report = check(model(TOKENS), model(TOKENS), data)
    assert [m.name for m in report.metrics[:3]] == ["perplexity", "top1-agreement", "kl"]
    assert report.metrics[0].candidate == pytest.approx(math.exp((same + other + same) / 3), rel=1e-6)
    assert report.metrics[0].interval is not None
    assert (report.metrics[0].interval.of, report.metrics[0].interval.low) == ("ratio", 1)
    alone = [{"ids": np.array([[0, 0, 1], [2, 2, 0]])}]
    report = check(model(TOKENS), model(TOKENS), alone, metrics=["perplexity"], labels="ids")
    assert report.metrics[0].candidate == pytest.approx(math.exp((same + other) / 2), rel=1e-6)
    assert report.labels == "ids"


def test_default_metrics_follow_output_and_labels() -> None:
    def first(labels: dict[str, Array]) -> str:
        return check(model(PLAIN), model(PLAIN), [{"x": samples()[0]["x"], **labels}]).metrics[0].name

    assert first({}) == "top1-agreement"
    assert first({"label.y": np.arange(10) % 4}) == "top1-accuracy"
    assert first({"label.y": np.random.default_rng(1).normal(size=(10, 10))}) == "spearman"
    assert first({"label.y": np.arange(10) % 4, "label.z": np.arange(10) % 4}) == "top1-agreement"


def test_the_default_batch_keeps_the_output_small() -> None:
    wide = f'{HEAD} wide (float[n, t] x) => (float[n, t, t] y) {{ y = Einsum<equation = "ni,nj->nij">(x, x) }}'
    data = [{"x": np.ones((2, 4000), np.float32)}]
    assert check(model(wide), model(wide), data, metrics=["max-error"]).batch == 1
    assert check(model(wide), model(wide), [{"x": np.ones((3, 4), np.float32)}], metrics=["max-error"]).batch == 32


def test_progress_and_threads() -> None:
    seen: list[tuple[int, int | None]] = []
    check(
        model(PLAIN), model(PLAIN), samples(), batch=4, threads=1, progress=lambda done, all_: seen.append((done, all_))
    )
    assert seen == [(4, None), (8, None), (10, None)]
    with pytest.raises(UsageError, match="threads is 0"):
        check(model(PLAIN), model(PLAIN), samples(), threads=0)


TWO = f"""{HEAD} two (float[n, 4] x) => (int64[n] best, float[n, 4] y, float[n, 4] z) {{
    best = ArgMax<axis = 1, keepdims = 0>(x)
    y = Identity(x)
    z = Neg(x)
}}"""


def test_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(model(TWO), model(TWO), samples()).output == "y"
    assert check(model(TWO), model(TWO), samples(), output="z").metrics[0].candidate < 1
    best = check(model(TWO), model(TWO), samples(), output="best")
    assert [m.name for m in best.metrics] == ["relative-error", "max-error", "changed-choices"]
    with pytest.raises(UsageError, match=r"has no output 'q'; there are: best, y, z"):
        check(model(TWO), model(TWO), samples(), output="q")
    seen: list[tuple[list[str], list[str]]] = []

    def count(outputs: dict[str, Array], labels: dict[str, Array]) -> float:
        seen.append((list(outputs), list(labels)))
        return 1.0

    count.direction, count.unit = "higher", "things"  # pyright: ignore[reportFunctionMemberAccess]
    module = ModuleType("counting")
    module.count = count  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "counting", module)
    check(model(TWO), model(TWO), samples(), metrics=["counting:count", "cosine"])
    check(model(TWO), model(TWO), samples(), metrics=["counting:count"], output="z")
    assert seen == [(["best", "y", "z"], ["y"])] * 2 + [(["z"], ["y"])] * 2


BAD_PAIRS = [
    ("float[n, 4] x", "float[n, 4] a", "float[n, 4] y", r"has no input 'x', which <one> has"),
    ("float[n, 4] x", "double[n, 4] x", "double[n, 4] y", r"input 'x' is float32\[n, 4\] in <one>, but float64"),
    ("float[n, 4] x", "float[n, 5] x", "float[n, 5] y", r"input 'x' is float32\[n, 4\] in <one>, but float32\[n, 5\]"),
    ("float[n, 4] x", "float[n, 4, 1] x", "float[n, 4, 1] y", r"but float32\[n, 4, 1\] in <two>"),
    ("float[n, 4] x", "float[n, 4] x", "float[n, 4] z", r"<two>: has no output 'y', which <one> has; there are: z"),
]


@pytest.mark.parametrize(("one", "two", "out", "message"), BAD_PAIRS)
def test_interfaces_must_agree(one: str, two: str, out: str, message: str) -> None:
    left = model(f"{HEAD} one ({one}) => (float[n, 4] y) {{ y = Identity(x) }}")
    right = model(f"{HEAD} two ({two}) => ({out}) {{ {out.split()[-1]} = Identity({two.split()[-1]}) }}")
    with pytest.raises(InputError, match=message):
        check(left, right, samples())


def test_bad_requests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown metric 'f1'; softq metrics lists all"):
        check(model(PLAIN), model(PLAIN), samples(), metrics=["f1"])
    with pytest.raises(UsageError, match="one is named twice"):
        check(model(PLAIN), model(PLAIN), samples(), metrics=["kl", "kl"])
    with pytest.raises(UsageError, match=r"labels 'q' are not in <list>; there are: y, x"):
        check(model(PLAIN), model(PLAIN), samples(), labels="q")
    unlabelled = [{"x": np.ones((2, 4), np.float32)}]
    with pytest.raises(UsageError, match="metric top1-accuracy needs labels; <list>: it has none"):
        check(model(PLAIN), model(PLAIN), unlabelled, metrics=["top1-accuracy"])
    two = [{**unlabelled[0], "label.a": np.zeros(2, np.int64), "label.b": np.zeros(2, np.int64)}]
    with pytest.raises(UsageError, match="choose one of its labels: a, b"):
        check(model(PLAIN), model(PLAIN), two, metrics=["top1-accuracy"])
    with pytest.raises(UsageError, match="batch is 0"):
        check(model(PLAIN), model(PLAIN), samples(), batch=0)
    with pytest.raises(InputError, match=r"none\.onnx: no such file"):
        check(tmp_path / "none.onnx", model(PLAIN), samples())
    with pytest.raises(InputError, match="is a folder; softq run takes what softq build wrote"):
        check(model(PLAIN), tmp_path, samples())
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(InputError, match=r"text\.onnx' is not an ONNX file in binary form"):
        check(tmp_path / "text.onnx", model(PLAIN), samples())
    foreign = HEAD.replace("]>", ', "own": 1]>') + " foreign (float[n, 4] x) => (float[n, 4] y) { y = own.Nope(x) }"
    onnx.save(model(foreign), tmp_path / "foreign.onnx")
    with pytest.raises(InputError, match=r"foreign\.onnx: onnxruntime cannot load it: \[ONNXRuntimeError\]") as error:
        check(tmp_path / "foreign.onnx", model(PLAIN), samples())
    assert "\n" not in str(error.value)


def test_an_output_without_samples_is_refused() -> None:
    text = f"{HEAD} total (float[n, 4] x) => (float y) {{ y = ReduceSum<keepdims = 0>(x) }}"
    with pytest.raises(InputError, match=r"output 'y' has shape \[\]; its first axis must be 10 samples"):
        check(model(text), model(text), samples(), metrics=["max-error"])


def test_texts_are_not_compared() -> None:
    text = f"{HEAD} words (float[n, 4] x) => (string[n, 4] y) {{ y = Cast<to = 8>(x) }}"
    with pytest.raises(InputError, match="output 'y' holds texts; only numbers can be compared"):
        check(model(text), model(text), samples())


def test_the_same_report_twice() -> None:
    from softq.reports import to_json

    first, second = (to_json(check(model(PLAIN), model(DOUBLED), samples()), samples=True) for _ in range(2))
    assert first == second
