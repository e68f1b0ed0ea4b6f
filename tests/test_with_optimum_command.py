"""The command for optimum-cli, where Optimum is installed: `make integrations` runs this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from softq.errors import InputError, RefusalError, UsageError
from tests.attention import attention

pytestmark = [pytest.mark.slow, pytest.mark.integrations]
PLAIN = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Abs(x) }'


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("optimum.commands")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    onnx.save(attention(), folder / "decoder.onnx")
    onnx.save(onnx.parser.parse_model(PLAIN), folder / "embedding.onnx")
    (folder / "config.json").write_text("{}")
    return folder


def cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("optimum-cli")
    return subprocess.run([program, *arguments], capture_output=True, text=True)


def test_a_folder(exported: Path, tmp_path: Path) -> None:
    register = pytest.importorskip("softq.integrations.optimum").register

    assert register().parent.name == "register"
    assert not (register().parent / "__init__.py").exists()
    out = tmp_path / "out"
    done = cli("softq", "--onnx_model", exported, "-o", out, "--method", "log2", "--set", "bits=3")
    assert done.returncode == 0, done.stderr
    assert "decoder.onnx: 1 of 1 softmax replaced" in done.stdout
    assert "warning: the model has no softmax: nothing to convert" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "decoder.onnx", "embedding.onnx"]
    assert onnx.load(out / "decoder.onnx").functions[0].name.startswith("Log2_b3")
    again = cli("softq", "--onnx_model", exported, "-o", out)
    assert (again.returncode, again.stderr.splitlines()[-1]) == (2, f"error: {out} is there; name a new folder")
    other = cli("softq", "--onnx_model", exported, "-o", tmp_path / "other", "--set", "bits")
    assert (other.returncode, other.stderr.splitlines()[-1]) == (2, "error: --set bits: expected KEY=VALUE")


def test_folders_in_it_and_weights_outside(exported: Path, tmp_path: Path) -> None:
    convert_folder = pytest.importorskip("softq.integrations.optimum").convert_folder

    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
    g (float[2, 64] x) => (float[2, 64] out) { s = MatMul (x, w) p = Softmax (s) v = Abs (w) out = MatMul (p, v) }""")
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype("f")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (exported / "unet").mkdir()
    onnx.convert_model_to_external_data(model, location="weights.bin")
    onnx.save(model, exported / "unet" / "model.onnx")
    (exported / "unet" / "model.onnx_data.md").write_text("about the weights")
    (exported / "text" / "deep").mkdir(parents=True)
    onnx.save(attention(), exported / "text" / "deep" / "model.onnx")
    before = {path.relative_to(exported) for path in exported.rglob("*")}
    for out in (tmp_path / "new" / "out", exported / "out"):
        made = convert_folder(exported, out, bits=4)
        assert list(made) == ["decoder.onnx", "embedding.onnx", "text/deep/model.onnx", "unet/model.onnx"]
        assert {path.relative_to(out) for path in out.rglob("*")} == before
        assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []
        assert (out / "unet" / "weights.bin").read_bytes() == (exported / "unet" / "weights.bin").read_bytes()
        assert len(onnx.load(out / "text" / "deep" / "model.onnx").functions) == 1
        onnx.checker.check_model(out / "unet" / "model.onnx")


def test_a_softmax_that_goes_without_another(tmp_path: Path) -> None:
    graph = "g (float[2, 4] x) => (int64[2] y) { p = Softmax (x) y = ArgMax <axis = -1, keepdims = 0> (p) }"
    (tmp_path / "exported").mkdir()
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + graph)
    onnx.save(model, tmp_path / "exported" / "m.onnx")
    done = cli("softq", "--onnx_model", tmp_path / "exported", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "m.onnx: 0 of 1 softmax replaced, 1 superfluous" in done.stdout
    assert [node.op_type for node in onnx.load(tmp_path / "out" / "m.onnx").graph.node] == ["ArgMax"]


def test_nothing_is_left_of_what_fails(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_folder = pytest.importorskip("softq.integrations.optimum").convert_folder
    import softq.modelfile

    def fail(*_: object, **__: object) -> None:
        raise InputError("the disk is full")

    monkeypatch.setattr(softq.modelfile, "save", fail)
    with pytest.raises(InputError, match="the disk is full"):
        convert_folder(exported, tmp_path / "out", bits=4)
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/out: "):
        convert_folder(exported, tmp_path / "file" / "out", bits=4)
    with pytest.raises(InputError, match="nowhere: no such folder"):
        convert_folder(tmp_path / "nowhere", tmp_path / "out")
    (exported / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"broken\.onnx"):
        convert_folder(exported, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refusals(exported: Path, tmp_path: Path) -> None:
    convert_folder = pytest.importorskip("softq.integrations.optimum").convert_folder

    (exported / "decoder.onnx").unlink()
    with pytest.raises(RefusalError, match=r"embedding\.onnx: the model has no softmax"):
        convert_folder(exported, tmp_path / "out")
    (exported / "embedding.onnx").unlink()
    with pytest.raises(InputError, match=r"there is no \.onnx file"):
        convert_folder(exported, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (exported / "one.onnx").write_bytes(attention().SerializeToString())
    with pytest.raises(UsageError, match="bits is 40"):
        convert_folder(exported, tmp_path / "out", bits=40)
