"""`softq build --target onnxruntime`, `softq.onnxruntime.register`: a converted model, with and without the library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq
from softq.building import BuiltArtifact
from softq.cli import main
from softq.errors import InputError, RefusalError, UsageError
from softq.modelfile import save
from softq.onnxruntime import register
from tests.ort_cases import operators_run
from tests.ort_library import MACHINE

TARGET = f"onnxruntime,mcpu={MACHINE.cpu}"
MODEL = """<ir_version: 10, opset_import: ["": 18]>
attention (float[b, 3, q, n] scores, float[b, 3, n, 8] values, bool[b, 1, q, n] keep) => (float[b, 3, q, 8] out) {
  none = Constant<value = float {-inf}>()
  masked = Where(keep, scores, none)
  p = Softmax<axis = -1>(masked)
  out = MatMul(p, values)
}"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuiltArtifact]:
    folder = tmp_path_factory.mktemp("onnxruntime")
    model = folder / "quantized.onnx"
    save(softq.convert(parser.parse_model(MODEL)).model, model)
    return model, softq.build(model, folder / "operators", target=TARGET)


def feeds() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    keep = rng.random((2, 1, 5, 40)) < 0.8
    keep[:, :, :, 0] = True
    shapes = {"scores": (2, 3, 5, 40), "values": (2, 3, 40, 8)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | {"keep": keep}


def run(model: Path, folder: Path | None, saved: Path | None = None) -> NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    if folder is not None:
        register(options, folder)
    made = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return np.asarray(made.run(None, feeds())[0])


def test_the_library_computes_what_the_model_says(built: tuple[Path, BuiltArtifact]) -> None:
    model, artifact = built
    np.testing.assert_array_equal(run(model, artifact.folder), run(model, None))
    (operator,) = artifact.manifest["operators"]
    assert operator["sites"] == ["p"]
    library = artifact.folder / "libsoftq_operators.so"
    assert operator["name"] in operators_run(model, library, feeds()) - operators_run(model, None, feeds())


def test_models_that_onnxruntime_saved(built: tuple[Path, BuiltArtifact], tmp_path: Path) -> None:
    model, artifact = built
    wanted = run(model, None, tmp_path / "opened.onnx")
    run(model, artifact.folder, tmp_path / "kept.onnx")
    np.testing.assert_array_equal(run(tmp_path / "kept.onnx", artifact.folder), wanted)
    np.testing.assert_array_equal(run(tmp_path / "opened.onnx", artifact.folder), wanted)
    with pytest.raises(Exception, match="is not a registered function"):
        run(tmp_path / "kept.onnx", None)  # onnxruntime writes the operator without the function


def test_the_command_line(built: tuple[Path, BuiltArtifact], capsys: pytest.CaptureFixture[str]) -> None:
    model, artifact = built
    name = artifact.manifest["operators"][0]["name"]
    with pytest.raises(SystemExit) as ended:
        main(["build", str(model), str(artifact.folder), "--target", TARGET])
    assert not ended.value.code
    assert f"softq::{name}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["targets", "onnxruntime", "--json"])
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert [option["name"] for option in target["options"]] == ["family", "mcpu", "features"]


def test_a_model_without_functions_is_refused(tmp_path: Path) -> None:
    for inline in (None, True):
        plain = parser.parse_model(MODEL)
        model = plain if inline is None else softq.convert(plain, inline=inline).model
        with pytest.raises(RefusalError, match="calls no function of the domain softq"):
            softq.build(model, tmp_path / "out", target=TARGET)
        assert not (tmp_path / "out").exists()


def test_a_damaged_library_is_not_loaded(built: tuple[Path, BuiltArtifact], tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    copy = tmp_path / "copy"
    shutil.copytree(built[1].folder, copy)
    library = copy / "libsoftq_operators.so"
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match="SHA-256"):
        register(options, copy)
    with pytest.raises(InputError, match="no such folder"):
        register(options, tmp_path / "nothing")
    with pytest.raises(InputError, match="kind is 'softq operators'; expected 'softq artifact'"):
        softq.load(built[1].folder)


def test_a_runtime_that_refuses_is_one_error(built: tuple[Path, BuiltArtifact]) -> None:
    class Refusing:
        def register_custom_ops_library(self, path: str, /) -> None:
            raise RuntimeError("no")

    with pytest.raises(InputError, match="onnxruntime cannot load the operators: no"):
        register(Refusing(), built[1].folder)


def test_only_signed_operators_if_that_is_asked_for(built: tuple[Path, BuiltArtifact], tmp_path: Path) -> None:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    private = ed25519.Ed25519PrivateKey.generate()
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public = tmp_path / "public.pem"
    public.write_bytes(private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    signed = softq.build(built[0], tmp_path / "signed", target=TARGET, sign=tmp_path / "key.pem").folder
    register(onnxruntime.SessionOptions(), signed, signature=public)
    with pytest.raises(InputError, match="is not signed"):
        register(onnxruntime.SessionOptions(), built[1].folder, signature=public)


def test_an_option_that_is_none(built: tuple[Path, BuiltArtifact], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its options are: family, mcpu, features"):
        softq.build(built[0], tmp_path / "out", target="onnxruntime,cpu=native")
    with pytest.raises(UsageError, match="has no family 'armv7'; there are: native, aarch64"):
        softq.build(built[0], tmp_path / "out", target="onnxruntime,family=armv7")
