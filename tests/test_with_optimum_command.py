"""The command for optimum-cli, where Optimum is installed: `make integrations` runs this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert "decoder.onnx: 1 of 1 softmaxes replaced" in done.stdout
    assert "warning: the model has no softmax: nothing to convert" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "decoder.onnx", "embedding.onnx"]
    assert onnx.load(out / "decoder.onnx").functions[0].name.startswith("Log2_b3")
    again = cli("softq", "--onnx_model", exported, "-o", out)
    assert (again.returncode, again.stderr.splitlines()[-1]) == (2, f"error: {out} is there; name a new folder")
    other = cli("softq", "--onnx_model", exported, "-o", tmp_path / "other", "--set", "bits")
    assert (other.returncode, other.stderr.splitlines()[-1]) == (2, "error: --set bits: expected KEY=VALUE")


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
