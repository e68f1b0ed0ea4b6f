"""Inputs and outputs without an axis for samples, in data and in every command, with values worked out by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

import softq
from softq.calibration.sampling import names_of
from softq.cli import main
from softq.data import Array, TensorSpec, open_data, without_samples
from softq.errors import InputError, UsageError
from softq.sweeps.evaluate.evaluator import data_hash
from softq.sweeps.records import read

MASK = """<ir_version: 10, opset_import: ["" : 23]>
mask (float[N,2,4,8] q, float[N,2,6,8] k, float[N,2,6,8] v, float[4,6] mask) => (float[N,2,4,8] y)
{ y = Attention (q, k, v, mask) }"""
CACHE = """<ir_version: 8, opset_import: ["" : 17]>
cache (float[N,2,1,8] q, float[2,N,2,5,8] past) => (float[N,2,1,8] y) <int64[1] z = {0}> {
  k, v = Split <axis = 0> (past)
  ks = Squeeze (k, z)
  vs = Squeeze (v, z)
  kt = Transpose <perm = [0, 1, 3, 2]> (ks)
  s = MatMul (q, kt)
  p = Softmax <axis = -1> (s)
  y = MatMul (p, vs)
}"""
ANGLES = """<ir_version: 8, opset_import: ["" : 17]>
angles (float[N,2,T,8] q, float[T,8] cos, float[N,2,8,6] k, float[N,2,6,8] v) => (float[N,2,T,8] y)
{ r = Mul (q, cos) s = MatMul (r, k) p = Softmax <axis = -1> (s) y = MatMul (p, v) }"""
MODELS = {"mask": (MASK, "mask", (4, 6)), "cache": (CACHE, "past", (2, 1, 2, 5, 8)), "angles": (ANGLES, "cos", (6, 8))}
# One sample a run, and outputs that have no axis for it: rows, one row, and a number.
SQUEEZED = """<ir_version: 8, opset_import: ["" : 17]>
squeezed (float[1,4,8] x, float[8,4] w) => (float[4,8] rows, float[4] scores, float total)
<int64[1] z = {0}, int64[1] one = {1}> {
  t = Squeeze (x, z)
  s = MatMul (t, w)
  p = Softmax <axis = -1> (s)
  rows = MatMul (p, t)
  scores = ReduceSum <keepdims = 0> (rows, one)
  total = ReduceSum <keepdims = 0> (scores)
}"""

Arrays = dict[str, Array]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def output_of(*words: str) -> str:
    done = command(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def save(text: str, batch: str = "N", name: str = "m.onnx") -> onnx.ModelProto:
    model = onnx.parser.parse_model(text.replace("[N,", f"[{batch},").replace("2,N,", f"2,{batch},"))
    onnx.save(model, name)
    return model


def arrays_of(name: str, samples: int = 5) -> Arrays:
    _, shared, shape = MODELS[name]
    random = np.random.default_rng(1)
    shapes = {
        "mask": {"q": (2, 4, 8), "k": (2, 6, 8), "v": (2, 6, 8)},
        "cache": {"q": (2, 1, 8)},
        "angles": {"q": (2, 6, 8), "k": (2, 8, 6), "v": (2, 6, 8)},
    }[name]
    made: Arrays = {one: random.standard_normal((samples, *rest)).astype(np.float32) for one, rest in shapes.items()}
    return made | {f"shared.{shared}": random.standard_normal(shape).astype(np.float32) * 2}


def run_by_hand(path: str, arrays: Mapping[str, Array], output: str = "y") -> NDArray[np.float64]:
    """Return the output for all samples, each run by itself, without anything of softq's."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    own = {name: array for name, array in arrays.items() if "." not in name}
    whole = {name.removeprefix("shared."): array for name, array in arrays.items() if name.startswith("shared.")}
    runs: list[NDArray[np.float64]] = []
    for number in range(len(next(iter(own.values()), [0]))):
        given = whole | {name: array[[number]] for name, array in own.items()}
        runs.append(np.asarray(session.run([output], given)[0], np.float64))
    return np.stack(runs)


def error_by_hand(arrays: Mapping[str, Array], candidate: str = "q.onnx", output: str = "y") -> float:
    return float(np.abs(run_by_hand("m.onnx", arrays, output) - run_by_hand(candidate, arrays, output)).max())


def checked(*words: str) -> tuple[float, int]:
    report = json.loads(output_of(*words, "--metric", "max-error", "--json"))
    assert report["metrics"][0]["candidate"] > 1e-4
    return report["metrics"][0]["candidate"], report["samples"]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("batch", ["N", "1"])
@pytest.mark.parametrize("name", MODELS)
def test_every_command_that_measures_takes_an_array_for_all_samples(name: str, batch: str) -> None:
    save(MODELS[name][0], batch)
    arrays = arrays_of(name)
    np.savez("data.npz", allow_pickle=False, **arrays)
    output_of("convert", "m.onnx", "q.onnx", "--bits", "3", "--set", "r=auto", "--calibration", "data.npz")
    wanted = pytest.approx(error_by_hand(arrays), rel=1e-5)
    size = [] if batch == "1" or name == "cache" else ["--batch", "2"]
    assert checked("check", "m.onnx", "q.onnx", "--data", "data.npz", *size) == (wanted, 5)
    assert checked("check", "m.onnx", "q.onnx", "--data", "data.npz", "--batch", "1") == (wanted, 5)
    assert "time" in output_of("check", "m.onnx", "q.onnx", "--data", "data.npz", "--metric", "cosine", "--time")
    measured = ["--data", "data.npz", "--metric", "max-error", "--methods", "deferred-log", "--bits", "3,4"]
    output_of("sweep", "m.onnx", *measured, "--out", "swept")
    for one in read("swept")[1]:
        width = str(one.setting.options["bits"])
        output_of("convert", "m.onnx", "s.onnx", "--bits", width)
        assert one.metric.value == pytest.approx(error_by_hand(arrays, "s.onnx"), rel=1e-5)
        assert one.samples == 5
    output_of("report", "swept")
    output_of("sensitivity", "m.onnx", *measured, "--out", "sites")
    output_of("plan", "m.onnx", *measured, "--max-drop", "1", "--out", "plan.json")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_built_runs_on_the_same_data(name: str) -> None:
    pytest.importorskip("tvm")
    save(MODELS[name][0], "1")
    arrays = arrays_of(name)
    np.savez("data.npz", allow_pickle=False, **arrays)
    output_of("convert", "m.onnx", "q.onnx", "--bits", "3")
    output_of("build", "q.onnx", "built", "--target", "cpu")
    error, samples = checked("run", "built", "--data", "data.npz", "--reference", "m.onnx")
    assert (error, samples) == (pytest.approx(error_by_hand(arrays), rel=1e-3), 5)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", ["N", "1"])
def test_quickstart_and_data_write_what_the_axes_say(name: str, batch: str) -> None:
    text, shared, shape = MODELS[name]
    save(text, batch)
    began = output_of("quickstart", "m.onnx")
    assert f'"shared.{shared}": ' in Path("data.py").read_text()
    for line in began.splitlines():
        if line.startswith("  softq "):
            words = shlex.split(line)[1:]
            output_of(*words, *(["--bits", "3"] if words[0] == "sweep" else []))
    output_of("data", "m.onnx", "data.npz", "--random", "--count", "3", "--length", "6")
    with np.load("data.npz") as made:
        assert {key: made[key].shape[: 1 if key == "q" else None] for key in ("q", f"shared.{shared}")} == {
            "q": (3,), f"shared.{shared}": shape
        }  # fmt: skip
        wide = {key.removeprefix("shared."): made[key].astype(np.float64) for key in made}
        again = {key: made[key] for key in made}
    np.savez("wide.npz", allow_pickle=False, **wide)
    output_of("data", "m.onnx", "cast.npz", "--cast", "wide.npz")
    with np.load("cast.npz") as cast:
        assert set(cast) == set(again)
        assert all(np.array_equal(cast[key], again[key]) for key in again)


def test_python_takes_the_same_names_in_each_dict() -> None:
    """Each dict has its own array: two caches of two samples, and the value is that of the runs one by one."""
    model = save(CACHE)
    items = [arrays_of("cache", samples) for samples in (3, 1)]
    items[1]["shared.past"] = np.flip(items[1]["shared.past"])
    converted = softq.convert(model, bits=3, calibration=items).model
    softq.save(converted, "q.onnx")
    report = softq.check("m.onnx", "q.onnx", items, metrics="max-error")
    assert report.metrics[0].candidate == pytest.approx(max(map(error_by_hand, items)), rel=1e-5)
    assert report.count == 4


@pytest.mark.parametrize("output", ["rows", "scores", "total"])
def test_an_output_without_samples_is_one_sample_of_each_run(output: str) -> None:
    save(SQUEEZED)
    random = np.random.default_rng(2)
    arrays: Arrays = {"x": random.standard_normal((6, 4, 8)).astype(np.float32) * 3,
                      "shared.w": random.standard_normal((8, 4)).astype(np.float32)}  # fmt: skip
    labels = run_by_hand("m.onnx", arrays, "scores").argmax(-1)
    np.savez("data.npz", allow_pickle=False, **arrays, **{"label.best": labels})
    output_of("convert", "m.onnx", "q.onnx", "--bits", "2")
    wanted = pytest.approx(error_by_hand(arrays, output=output), rel=1e-5)
    words = ["--data", "data.npz", "--output", output]
    assert checked("check", "m.onnx", "q.onnx", *words) == (wanted, 6)
    output_of(
        "sweep", "m.onnx", *words, "--metric", "max-error", "--methods", "deferred-log", "--bits", "2", "--out", "s"
    )
    (outcome,) = read("s")[1]
    assert (outcome.metric.value, outcome.samples) == (wanted, 6)
    output_of("plan", "m.onnx", *words, "--metric", "max-error", "--methods", "deferred-log", "--bits", "2,4",
              "--max-drop", "9", "--out", "plan.json")  # fmt: skip
    if output == "scores":  # [4] of one sample are the scores of its four classes
        names = [one["name"] for one in json.loads(output_of("check", "m.onnx", "q.onnx", *words, "--json"))["metrics"]]
        assert names[:2] == ["top1-accuracy", "top1-agreement"]
        best = run_by_hand("q.onnx", arrays, "scores").argmax(-1)
        report = softq.check("m.onnx", "q.onnx", "data.npz", metrics="top1-accuracy", output=output)
        assert report.metrics[0].candidate == np.mean(best == labels)


def test_without_any_sample_axis_each_file_is_one_sample(tmp_path: Path) -> None:
    """Sequences of their own lengths, as a model takes them that knows no samples; labels, too, are one each."""
    save("""<ir_version: 8, opset_import: ["" : 17]> g (float[T,8] x, float[8,T] k, float scale) => (float[T,T] p)
        { s = MatMul (x, k) t = Mul (s, scale) p = Softmax (t) }""")
    random = np.random.default_rng(3)
    (tmp_path / "many").mkdir()
    items: list[Arrays] = []
    for length in (3, 1, 5):
        shapes = {"shared.x": (length, 8), "shared.k": (8, length), "scale": ()}
        items.append({key: np.asarray(random.standard_normal(shape), np.float32) for key, shape in shapes.items()})
        np.savez(f"many/{length}.npz", allow_pickle=False, **items[-1])
    output_of("convert", "m.onnx", "q.onnx", "--bits", "3", "--all")
    wanted = max(error_by_hand({"shared.scale": item.pop("scale"), **item}, output="p") for item in items)
    assert checked("check", "m.onnx", "q.onnx", "--data", "many") == (pytest.approx(wanted, rel=1e-5), 3)
    with pytest.raises(InputError, match=r"array 'label\.y' has 2 samples; a model without a sample axis has 1"):
        open_data([{"scale": np.ones((), "f"), "label.y": np.zeros(2)}], [TensorSpec("scale", "float32", ())])


AXES: dict[str, tuple[dict[str, tuple[int | str | None, ...]], list[tuple[int | str | None, ...]], str]] = {
    "mask": ({"q": (1, 4, 8), "k": (1, 6, 8), "mask": (4, 6)}, [(1, 4, 8)], "mask"),
    "mask first": ({"mask": (4, 6), "q": (1, 4, 8)}, [(1, 4, 8)], "mask"),
    "mask by names": ({"mask": ("S", "K"), "q": ("N", "S", 8)}, [(None, None, 8)], "mask"),
    "mask of other names": ({"mask": ("Q", "K"), "q": ("N", 4, 8)}, [("N", 4, 8)], "mask"),
    "mask of fixed samples": ({"mask": ("Q", "K"), "q": (1, 4, 8)}, [(1, 4, 8)], "mask"),
    "square mask": ({"q": ("N", "S", 8), "mask": ("S", "S")}, [("N", "S", 8)], "mask"),
    "cache": ({"past": (2, 1, 5), "q": (1, 8)}, [(1, 8)], "past"),
    "open cache": ({"past": (2, "N", 5), "q": ("N", 8)}, [], "past"),
    "positions": ({"ids": ("N", "L"), "positions": ("L",)}, [("N", "L", 4)], "positions"),
    "mask alone": ({"mask": ("S", "K"), "q": (1, "S", 8)}, [], "mask"),
    "graph": ({"x": ("N", 8), "edges": ("N", "N")}, [("N", 8)], "edges"),
    "sizes": ({"x": (1, 3, 8, 8), "size": (2,)}, [(1, 9)], "size"),
    "positions of one": ({"ids": ("N", "L"), "positions": (1, "L")}, [("N", "L", 4)], ""),
    "positions of one, fixed": ({"ids": (4, 9), "mask": (4, 9), "positions": (1, 9)}, [(4, 9)], "positions"),
    "two towers": ({"ids": ("T", 9), "mask": ("T", 9), "x": ("I", 3)}, [("T", 4), ("I", 4)], ""),
    "own names": ({"x": ("unk_1", 9), "y": ("unk_2", 9)}, [("unk_3", 9)], ""),
    "no names": ({"x": (None, 9), "y": (None, 9), "z": (3, 9)}, [(None, 9)], ""),
    "one name": ({"x": ("d", 3, "d", "d")}, [("d", 9)], ""),
    "scalars": ({"x": ("N", 9), "scale": ()}, [()], ""),
    "nothing known": ({}, [("N",)], ""),
}


@pytest.mark.parametrize("name", AXES)
def test_axes_tell_which_inputs_have_no_samples(name: str) -> None:
    inputs, outputs, wanted = AXES[name]
    specs, ends = (
        [TensorSpec(k, "float32", v) for k, v in inputs.items()],
        [TensorSpec("y", "float32", v) for v in outputs],
    )
    assert [spec.name for spec in without_samples(specs, ends)] == wanted.split()
    assert not without_samples(specs, ends, wanted.split())
    for spec in without_samples(specs, ends):
        plain: Arrays = {k: np.ones([4 if isinstance(n, str | None) else n for n in v], "f") for k, v in inputs.items()}
        message = rf"item 0: array '{wanted}': the first axis of .* does not count samples; name it 'shared\.{wanted}'"
        with pytest.raises(InputError, match=message):
            open_data([{key: array if key == spec.name else array[:1] for key, array in plain.items()}], specs, ends)


def test_axes_of_shared_inputs_tell_of_others() -> None:
    specs = [TensorSpec("bias", "float32", ("Q", 1)), TensorSpec("x", "float32", ("N", 8))]
    mask = TensorSpec("mask", "float32", ("Q", "K"))
    assert not without_samples(specs, [])
    assert without_samples([*specs, mask], [], ["mask"]) == specs[:1]


SPECS = (TensorSpec("x", "float32", ("N", "S")), TensorSpec("mask", "float32", ("S", "K")))


def whole(samples: int = 5, tokens: int = 3) -> Arrays:
    x = np.arange(samples * tokens, dtype=np.float32).reshape(samples, tokens)
    return {"x": x, "shared.mask": np.ones((tokens, 2), np.float32) * tokens, "label.y": np.arange(samples)}


def test_parts_of_the_data_keep_the_array_whole() -> None:
    np.savez("a.npz", allow_pickle=False, **whole(5, 3))
    for source in ("a.npz", [whole(5, 3)]):
        data = open_data(source, SPECS)
        assert (data.shared, data.sizes, data.fixed_batch) == ({"mask"}, {"S": 3, "K": 2}, None)
        for part, counts in ((data, [2, 2, 1]), (data.between(1, 4), [2, 1]), (data.spread(1, 2), [2])):
            assert [batch.samples for batch in part.batches(2)][: len(counts)] == counts
            assert all(batch.inputs["mask"].tolist() == [[3, 3]] * 3 for batch in part.batches(2))


def test_a_sample_is_known_by_all_of_a_shared_array() -> None:
    """Hashes of samples, by which rows are drawn and studies go on, see it whole, whatever batches and dicts are."""
    last = whole()
    last["shared.mask"][-1, -1] += 1
    parts = [{key: array if "shared" in key else array[part] for key, array in whole().items()}
             for part in (slice(2), slice(2, None))]  # fmt: skip
    names = {name: [sample for batch in open_data(items, SPECS).batches(size) for sample in names_of(batch)]
             for name, items, size in (("whole", [whole()], 5), ("parts", parts, 1), ("last", [last], 5))}  # fmt: skip
    assert names["whole"] == names["parts"]
    assert len({*names["whole"], *names["last"]}) == 10
    one, two, other = (data_hash(open_data(items, SPECS), 2) for items in ([whole()], parts, [last]))
    assert (one == two, one == other) == (True, False)


def test_an_array_that_names_the_samples_of_a_run_fixes_them() -> None:
    specs = [TensorSpec("q", "float32", ("N", 8)), TensorSpec("past", "float32", (2, "N", 8))]
    items: list[Arrays] = [{"q": np.ones((6, 8), "f"), "shared.past": np.ones((2, n, 8), "f")} for n in (3, 2, 4)]
    data = open_data(items[:1], specs)
    assert [batch.samples for batch in data.batches()] == [3, 3]
    with pytest.raises(InputError, match="has 4 samples; the model takes exactly 3 at a time, which leaves 1"):
        list(data.between(1, 5).batches())
    picture = TensorSpec("x", "float32", ("d", 3, "d", "d"))  # one name for all lengths
    assert open_data([{"x": np.ones((5, 3, 4, 4), "f")}], [picture]).fixed_batch is None
    with pytest.raises(UsageError, match="batch is 1, but the model's inputs are fixed at 3 samples"):
        data.batch_size(1)
    with pytest.raises(InputError, match="item 1: takes 2 samples at a time, the data before it 3"):
        list(open_data(items, specs).batches())
    with pytest.raises(InputError, match="has 6 samples; the model takes exactly 4 at a time, which leaves 2"):
        open_data(items[2:], specs)
    fixed = TensorSpec("p", "float32", (2, 8))
    with pytest.raises(InputError, match="first axes of inputs fix different numbers of samples: 'q' 3, 'p' 2"):
        open_data([items[0] | {"p": np.ones((6, 8), "f")}], [*specs, fixed], [TensorSpec("y", "float32", ("P",))])


def test_inputs_may_be_called_as_the_prefix_is() -> None:
    specs = [TensorSpec(name, "float32", ("N", 2)) for name in ("x", "shared.x")]
    x, y = np.ones((4, 2), "f"), np.zeros((4, 2), "f")
    (batch,) = open_data([{"x": x, "shared.x": y}], specs).batches()
    assert (batch.shared, batch.inputs["x"].max(), batch.inputs["shared.x"].max()) == (frozenset(), 1, 0)
    batches = list(open_data([{"x": x, "shared.shared.x": y[:1]}], specs).batches())
    assert [(batch.shared, batch.samples) for batch in batches] == [({"shared.x"}, 1)] * 4


BAD: dict[str, tuple[Arrays, str]] = {
    "shape": ({"shared.mask": np.ones((4, 6, 1), "f")}, "array 'shared.mask' is float32[4, 6, 1]; the model expects"
              " float32[4, 6], one array for all samples"),
    "length": ({"shared.mask": np.ones((5, 6), "f")}, "array 'shared.mask' is float32[5, 6]; the model expects"
               " float32[4, 6], one array for all samples"),
    "type": ({"shared.mask": np.ones((4, 6))}, "array 'shared.mask' is float64; the model expects float32, and nothing"
             " is cast unless asked for: softq data MODEL OUT.npz --cast FILE.npz"),
    "both": ({"mask": np.ones((4, 6), "f"), "shared.mask": np.ones((4, 6), "f")}, "arrays 'mask' and 'shared.mask' are"
             " of one input; give one of them"),
    "label": ({"shared.mask": np.ones((4, 6), "f"), "shared.label.y": np.ones(5)}, "unknown array 'shared.label.y'; the"
              " model takes 'q', 'k', 'v', 'mask'; labels are 'label.NAME', inputs that are the same for all samples"
              " 'shared.NAME'"),
    "unknown": ({"shared.mask": np.ones((4, 6), "f"), "shared.msk": np.ones((4, 6), "f")}, "unknown array 'shared.msk';"
                " the model takes 'q', 'k', 'v', 'mask'; labels are 'label.NAME', inputs that are the same for all"
                " samples 'shared.NAME'"),
    "not shared": ({"mask": np.ones((5, 6), "f")}, "array 'mask': the first axis of float32[4, 6] does not count"
                   " samples; name it 'shared.mask', one array for all samples"),
    "samples": ({"shared.mask": np.ones((4, 6), "f"), "k": np.ones((4, 2, 6, 8), "f")}, "array 'k' has 4 samples; 'q'"
                " has 5; an array for all samples is named 'shared.NAME'"),
    "missing": ({}, "no array 'mask'; the model expects float32[4, 6]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_wrong_arrays_give_one_line(name: str) -> None:
    save(MASK)
    arrays, message = BAD[name]
    np.savez("bad.npz", allow_pickle=False, **{k: v for k, v in arrays_of("mask").items() if "." not in k} | arrays)
    for words in (("check", "m.onnx", "m.onnx", "--data", "bad.npz", "--batch", "1"),
                  ("convert", "m.onnx", "q.onnx", "--calibration", "bad.npz"),
                  ("sweep", "m.onnx", "--data", "bad.npz", "--metric", "cosine", "--out", "s")):  # fmt: skip
        done = command(*words)
        assert (done.exit_code, done.stderr) == (2, f"softq: bad.npz: {message}\n")


def test_a_label_has_a_value_for_each_sample() -> None:
    save(MASK)
    np.savez("data.npz", allow_pickle=False, **arrays_of("mask"))
    done = command("check", "m.onnx", "m.onnx", "--data", "data.npz", "--labels", "mask")
    message = "softq: labels 'mask' are not in data.npz; there are: q, k, v\n"
    assert (done.exit_code, done.stderr) == (2, message)


def test_files_give_an_input_in_the_same_way() -> None:
    spec = TensorSpec("p", "float32", (1, "S"))
    own, shared = ({"x": np.ones((3, 2), "f"), key: np.ones((n, 2), "f")} for key, n in (("p", 3), ("shared.p", 1)))
    assert [batch.samples for batch in open_data([own], [SPECS[0], spec]).batches()] == [1, 1, 1]
    assert [batch.samples for batch in open_data([shared], [SPECS[0], spec]).batches()] == [3]
    for items, message in (([own, shared], "array 'shared.p' is not in the data before it"),
                           ([shared, own], "no array 'shared.p', which the data before it has")):  # fmt: skip
        with pytest.raises(InputError, match=f"item 1: {message}"):
            list(open_data(items, [SPECS[0], spec]).batches())
