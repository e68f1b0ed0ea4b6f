"""`softq quickstart` and `softq data`: what they write fits the model, and the commands that are printed work."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.data import TensorSpec, open_data
from softq.samples import find_inputs, make_up
from tests.attention import attention

MODELS = Path(__file__).resolve().parent.parent / "models"
ENCODER = """<ir_version: 10, opset_import: ["": 18]>
g (int64[N, L] input_ids, int64[N, L] attention_mask, int64[N, L] token_type_ids, int64[1, L] position_ids)
=> (float[N, L, 2] y)
<float[7, 2] table = {0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13.}>
{ y = Gather (table, input_ids) }"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def save(text: str, name: str = "model.onnx") -> None:
    onnx.save(onnx.parser.parse_model(text), name)


def picture(shape: str, kind: str = "float") -> None:
    save(f'<ir_version: 10, opset_import: ["": 18]> g ({kind}{shape} x) => ({kind}{shape} y) {{ y = Identity (x) }}')


def arrays(path: str = "out.npz") -> dict[str, Any]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("model", ["mnist_vit", "attention", "head"])
def test_the_commands_of_quickstart_work_as_they_stand(model: str) -> None:
    if model == "head":  # Kept by default: it is a classifier.
        save('<ir_version: 10, opset_import: ["": 18]> g (float[N, 8] x) => (float[N, 8] y) { y = Softmax (x) }')
    elif model == "attention":
        onnx.save(attention(), "model.onnx")
    path = str(MODELS / model / f"{model}.onnx") if model == "mnist_vit" else "model.onnx"
    result = softq("quickstart", path)
    assert result.exit_code == 0, result.output
    commands = [shlex.split(line) for line in result.stdout.splitlines() if line.startswith("  softq ")]
    assert [words[1] for words in commands] == ["convert", "check", "sweep"]
    for name, *words in commands:
        assert name == "softq"
        done = softq(*words)
        assert done.exit_code == 0, done.output
    assert "converted 0" not in softq(*commands[0][1:]).stdout
    again = softq("quickstart", path)
    assert (again.exit_code, again.stderr) == (
        2, "softq: data.py exists, and your samples may be in it; --out names another file\n")  # fmt: skip


def test_quickstart_without_a_softmax() -> None:
    save('<ir_version: 10, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Exp (x) }')
    result = softq("quickstart", "model.onnx")
    assert (result.exit_code, result.stdout) == (0, "no softmax\nnothing in this model can be converted\n")
    assert not Path("data.py").exists()


def test_inputs_are_told_apart_by_their_use_and_name() -> None:
    inputs = find_inputs(onnx.parser.parse_model(ENCODER))
    assert [(one.role, one.bound) for one in inputs] == [
        ("indices", 7), ("mask", None), ("segments", None), ("positions", None)
    ]  # fmt: skip
    made = make_up(inputs, 50, open_length=9)
    assert all(array.dtype == np.int64 for array in made.values())
    assert set(np.unique(made["input_ids"])) == set(range(7))
    assert made["attention_mask"].all()
    assert made["position_ids"][3].tolist() == list(range(9))
    assert not made["token_type_ids"].any()


def test_random_data_are_read_back() -> None:
    onnx.save(attention(), "model.onnx")
    result = softq("data", "model.onnx", "out.npz", "--random", "--count", "5", "--length", "3")
    assert result.exit_code == 0, result.output
    inputs = find_inputs("model.onnx")
    data = open_data("out.npz", [TensorSpec(one.name, one.dtype, one.shape) for one in inputs])
    assert data.samples == 5
    first = arrays()
    assert softq("data", "model.onnx", "out.npz", "--random", "--count", "5", "--length", "3").exit_code == 0
    assert all(np.array_equal(first[name], array) for name, array in arrays().items())


def image(path: str, pixels: Any) -> None:
    pillow = pytest.importorskip("PIL.Image")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pillow.fromarray(pixels).save(path)


def test_images_in_both_layouts() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    image("in/b.png", pixels)
    image("in/a.png", pixels[::-1])
    picture("[N, 3, 4, 6]")
    words = ("--images", "in", "--mean", "0.5,0.25,0", "--std", "0.5,1,2")
    assert softq("data", "model.onnx", "out.npz", *words).exit_code == 0
    wanted = (np.stack([pixels[::-1], pixels]) / 255 - [0.5, 0.25, 0]) / [0.5, 1, 2]
    np.testing.assert_allclose(arrays()["x"], wanted.transpose(0, 3, 1, 2), rtol=1e-6)
    assert list(arrays()) == ["x"]
    picture("[N, 4, 6, 3]")
    assert softq("data", "model.onnx", "out.npz", *words).exit_code == 0
    np.testing.assert_allclose(arrays()["x"], wanted, rtol=1e-6)
    picture("[N, 4, 6, 3]", "uint8")
    assert softq("data", "model.onnx", "out.npz", "--images", "in", "--count", "1").exit_code == 0
    assert np.array_equal(arrays()["x"], pixels[::-1][None])
    assert "mean and std are for floats" in softq("data", "model.onnx", "out.npz", *words).stderr


def test_folders_of_images_are_classes_and_the_middle_is_cut_out() -> None:
    wide = np.zeros((2, 6), np.uint8)
    wide[:, 2:4] = 255
    image("in/cat/1.png", wide)
    image("in/dog/1.png", 255 - wide)
    picture("[N, 1, 2, 2]")
    assert softq("data", "model.onnx", "out.npz", "--images", "in").exit_code == 0
    assert arrays()["label.class"].tolist() == [0, 1]
    assert arrays()["x"][:, 0].tolist() == [[[1, 1], [1, 1]], [[0, 0], [0, 0]]]
    assert softq("data", "model.onnx", "out.npz", "--images", "in", "--fit", "stretch").exit_code == 0
    assert 0 < arrays()["x"][0].mean() < 1


def tokenizer(words: int) -> None:
    library = pytest.importorskip("tokenizers")
    vocabulary = {"[PAD]": 0, **{f"w{i}": i for i in range(1, words)}}
    made = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="[PAD]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.save("tokenizer.json")


def test_text_with_a_mask_is_a_line_a_sample() -> None:
    save(ENCODER.replace("int64[1, L] position_ids", "int64[N, L] position_ids"))
    tokenizer(7)
    Path("text.txt").write_text("w1 w2\n\nw3 w4 w5 w6\n")
    words = ("--text", "text.txt", "--tokenizer", "tokenizer.json", "--length", "3")
    result = softq("data", "model.onnx", "out.npz", *words)
    assert result.exit_code == 0, result.output
    made = {name: array.tolist() for name, array in arrays().items()}
    assert made == {
        "input_ids": [[1, 2, 0], [3, 4, 5]],
        "attention_mask": [[1, 1, 0], [1, 1, 1]],
        "token_type_ids": [[0] * 3] * 2,
        "position_ids": [[0, 1, 2]] * 2,
    }
    tokenizer(9)
    Path("text.txt").write_text("w8\n")
    assert "gives token 8; the model has 7" in softq("data", "model.onnx", "out.npz", *words).stderr


def test_text_without_a_mask_is_one_row_of_tokens() -> None:
    save(ENCODER.replace(", int64[N, L] attention_mask, int64[N, L] token_type_ids, int64[1, L] position_ids", ""))
    tokenizer(7)
    Path("text.txt").write_text("w1 w2\nw3\n\nw4 w5 w6 w1\n")
    words = ("--text", "text.txt", "--tokenizer", "tokenizer.json", "--length", "3")
    assert softq("data", "model.onnx", "out.npz", *words).exit_code == 0
    assert arrays()["input_ids"].tolist() == [[1, 2, 3], [4, 5, 6]]
    masks = ", int64[N, L] attention_mask, int64[N, L] token_type_ids, int64[1, L] position_ids"
    save(ENCODER.replace(masks, ", int64[L] position_ids"))
    assert softq("data", "model.onnx", "out.npz", *words).exit_code == 0
    assert {name: array.tolist() for name, array in arrays().items()} == {
        "input_ids": [[1, 2, 3], [4, 5, 6]],
        "shared.position_ids": [0, 1, 2],
    }


def test_arrays_are_cast_where_that_is_asked_for() -> None:
    picture("[N, 2]")
    mine: dict[str, Any] = {"x": np.array([[0.1, 2.0]]), "label.y": np.array([3])}
    np.savez("mine.npz", **mine)
    refused = softq("check", "model.onnx", "model.onnx", "--data", "mine.npz")
    assert refused.exit_code == 2
    assert "softq data MODEL OUT.npz --cast" in refused.stderr
    assert softq("data", "model.onnx", "out.npz", "--cast", "mine.npz").exit_code == 0
    assert arrays()["x"].dtype == np.float32
    assert arrays()["x"].tolist() == [[float(np.float32(0.1)), 2.0]]
    assert arrays()["label.y"].tolist() == [3]
    np.savez("mine.npz", x=np.array([[1e300, 2.0]]))
    assert "has 1e+300, which is no float32" in softq("data", "model.onnx", "out.npz", "--cast", "mine.npz").stderr
    picture("[N, 2]", "int64")
    np.savez("mine.npz", x=np.array([[1.5, 2.0]]))
    assert "has 1.5, which is no int64" in softq("data", "model.onnx", "out.npz", "--cast", "mine.npz").stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "made of one of --random"),
        (("--random", "--cast", "a.npz"), "made of one of --random"),
        (("--text", "a.txt"), "--text and --tokenizer belong together"),
        (("--random", "--mean", "1"), "--mean and --std are for --images"),
        (("--images", "absent"), "no such folder"),
        (("--images", "."), "holds no images"),
        (("--images", ".", "--mean", "x"), "'x' is not numbers with commas"),
        (("--cast", "absent.npz"), "absent.npz"),
    ],
)
def test_bad_arguments_write_nothing(words: tuple[str, ...], line: str) -> None:
    picture("[N, 3, 4, 4]")
    result = softq("data", "model.onnx", "out.npz", *words)
    assert result.exit_code == 2
    assert line in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("out.npz").exists()


FLAGGED = """<ir_version: 10, opset_import: ["": 18]>
g (bool flag, float[N, L, 4] x, float temperature) => (float[N, L, 4] y)
{
    k = Transpose <perm = [0, 2, 1]> (x)
    s = MatMul (x, k)
    c = Mul (s, temperature)
    p = Softmax <axis = -1> (c)
    z = MatMul (p, x)
    y = If (flag) <then_branch = one () => (float[N, L, 4] a) { a = Identity (z) },
                   else_branch = two () => (float[N, L, 4] b) { b = Neg (z) }>
}"""


def test_a_scalar_input_has_one_value_for_all_samples(tmp_path: Path) -> None:
    """Every command takes it; the value of check is that of the two models run by hand."""
    save(FLAGGED)
    began = softq("quickstart", "model.onnx")
    assert began.exit_code == 0, began.output
    commands = [shlex.split(line)[1:] for line in began.stdout.splitlines() if line.startswith("  softq ")]
    for command in commands:
        done = softq(*command, *(["--bits", "3"] if command[0] == "sweep" else []))
        assert done.exit_code == 0, (command, done.output)
    made = softq("data", "model.onnx", "data.npz", "--random", "--count", "6")
    assert "flag  bool[]" in made.stdout, made.output
    arrays = dict(np.load("data.npz"))
    for flag in (True, False):
        arrays["flag"] = np.array(flag)
        np.savez("data.npz", **arrays)
        assert softq("convert", "model.onnx", "q.onnx", "--bits", "4", "--calibration", "data.npz").exit_code == 0
        checked = softq("check", "model.onnx", "q.onnx", "--data", "data.npz", "--metric", "max-error", "--batch", "4",
                        "--json")  # fmt: skip
        assert checked.exit_code == 0, checked.output
        ours, theirs = (onnxruntime.InferenceSession(path).run(None, arrays)[0] for path in ("model.onnx", "q.onnx"))
        found = json.loads(checked.stdout)
        assert found["samples"] == 6
        assert found["metrics"][0]["candidate"] == pytest.approx(float(np.abs(ours - theirs).max()), rel=1e-6)
    built = softq("plan", "model.onnx", "--data", "data.npz", "--metric", "relative-error", "--max-drop", "1", "--out",
                  "plan.json", "--methods", "deferred-log", "--bits", "3,4")  # fmt: skip
    assert built.exit_code == 0, built.output


def test_quickstart_shows_the_softmaxes_of_a_model_that_it_makes_no_data_for() -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
        g (string[N] name, float[N, 4] x) => (float[N, 4] y, string[N] same)
        { y = Softmax (x) same = Identity (name) }"""
    save(text)
    done = softq("quickstart", "model.onnx")
    assert (done.exit_code, done.stderr) == (2, "softq: input 'name' holds no numbers\n")
    assert "1 softmax: " in done.stdout


def test_quickstart_names_the_option_that_would_convert() -> None:
    save("""<ir_version: 10, opset_import: ["": 18]>
        g (double[N, 4, 4] x) => (double[N, 4, 4] y) { p = Softmax (x) y = MatMul (p, x) }""")
    done = softq("quickstart", "model.onnx")
    told = (
        "nothing in this model can be converted without --allow-float32: softq convert model.onnx OUT --allow-float32"
    )
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, told)
