"""Signed artifacts: what is unsigned, signed by another or changed is refused before any library is opened."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from softq.artifact import Artifact, check_folder, load, loading, write
from softq.artifact.library import Library
from softq.artifact.signing import signer
from softq.cli import main
from softq.errors import InputError, UsageError
from tests.attention import attention, inputs
from tests.handmade import HOST, needs_host, rows_expected, rows_inputs, rows_program

pytest.importorskip("cryptography", reason="it is in the extra sign")
pytestmark = [
    needs_host,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="keys are made by openssl, as users are told to"),
]

ARTIFACTS = Path(__file__).resolve().parent.parent / "docs" / "signing.md"
KEY, PUBLIC = "key.pem", "public.pem"


def command(name: str) -> list[str]:
    """Return a command as docs/signing.md has it."""
    found = re.search(rf"^openssl {name}.*$", ARTIFACTS.read_text("utf-8"), re.MULTILINE)
    assert found is not None, name
    return shlex.split(found[0], comments=True)


def keys(folder: Path) -> Path:
    folder.mkdir()
    for name in ("genpkey", "pkey "):
        subprocess.run(command(name), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keys(tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keys(tmp_path_factory.mktemp("keys") / "theirs")


@pytest.fixture(scope="module")
def signed(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "built"
    return write(rows_program(), HOST, folder, target="cpu", sign=signer(ours / KEY))


@pytest.fixture
def copy(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, and a place for temporary files that must be empty afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return Path(shutil.copytree(signed, tmp_path / "built"))


def assert_right(model: Artifact) -> None:
    given = rows_inputs(2, 3)
    found = model(given)
    for name, expected in rows_expected(**given).items():
        np.testing.assert_allclose(np.asarray(found[name], np.float32), expected, rtol=1e-5, atol=1e-5)


def test_what_is_signed_runs(copy: Path, ours: Path, tmp_path: Path) -> None:
    with load(copy, signature=ours / PUBLIC) as model:
        assert list((tmp_path / "temporary").iterdir()) == []
        assert model.name == str(copy)
        assert_right(model)
    with load(copy) as model:
        assert_right(model)


def test_openssl_makes_and_checks_the_same_signature(copy: Path, ours: Path, tmp_path: Path) -> None:
    folder = tmp_path / "as-documented"
    shutil.copytree(ours, folder)
    shutil.move(copy, folder / "built")
    check = subprocess.run(command("pkeyutl -verify"), cwd=folder, capture_output=True, text=True)
    assert "Signature Verified Successfully" in check.stdout
    made = (folder / "built" / "manifest.sig").read_bytes()
    (folder / "built" / "manifest.sig").unlink()
    subprocess.run(command("pkeyutl -sign"), cwd=folder, check=True)
    assert (folder / "built" / "manifest.sig").read_bytes() == made


def _flip(name: str, at: int = -1) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)

    change.__name__ = f"flip-{name}"
    return change


def _rewrite(folder: Path) -> None:
    """Change the library and give the manifest its new hash."""
    _flip("libmodel.so")(folder)
    facts = json.loads((folder / "manifest.json").read_text("utf-8"))
    facts["files"]["libmodel.so"]["sha256"] = hashlib.sha256((folder / "libmodel.so").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _pipe(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    change.__name__ = f"pipe-{name}"
    return change


def _longer(folder: Path) -> None:
    with open(folder / "weights.bin", "ab") as file:
        file.write(b"more")


def _short(folder: Path) -> None:
    (folder / "manifest.sig").write_bytes(b"short")


def _unsigned(folder: Path) -> None:
    (folder / "manifest.sig").unlink()


def _lost(folder: Path) -> None:
    (folder / "weights.bin").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((_flip(name), "was changed: its SHA-256") for name in ("libmodel.so", "weights.bin", "kernels.o")),
        *((_flip(name), "was changed: its SHA-256") for name in ("driver.c", "softq.h")),
        (_flip("manifest.json"), "is not signed by the key"),
        (_flip("manifest.sig", 0), "is not signed by the key"),
        (_rewrite, "is not signed by the key"),
        (_short, "is not signed by the key"),
        (_unsigned, "is not signed: it has no manifest.sig"),
        (_longer, "the manifest says"),
        (_lost, "weights.bin: .*No such file"),
        (_pipe("manifest.sig"), "not a regular file"),
        (_pipe("manifest.json"), "not a regular file"),
        (_pipe("weights.bin"), "not a regular file"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_was_changed_is_refused(
    change: Callable[[Path], None], message: str, copy: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "Library", None)  # opening one ends the test
    change(copy)
    with pytest.raises(InputError, match=message) as error:
        load(copy, signature=ours / PUBLIC)
    assert str(copy) in str(error.value)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_another_key_and_what_is_none(copy: Path, ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "Library", None)
    (copy.parent / "text.pem").write_text("no key")
    for key, message in (
        (theirs / PUBLIC, "is not signed by the key"),
        (ours / KEY, "holds no public Ed25519 key"),
        (copy.parent / "text.pem", "holds no public Ed25519 key"),
        (copy.parent / "absent.pem", "cannot read"),
        (copy.parent, "Is a directory"),
        ("/dev/zero", "not a regular file"),
    ):
        with pytest.raises(InputError, match=message):
            load(copy, signature=key)
    for key, message in ((ours / PUBLIC, "holds no private"), (copy.parent / "text.pem", "holds no private")):
        with pytest.raises(InputError, match=message):
            signer(key)
    locked = [*command("genpkey"), "-aes256", "-pass", "pass:x"]
    subprocess.run(locked, cwd=copy.parent, check=True, capture_output=True)
    with pytest.raises(InputError, match="has a passphrase"):
        signer(copy.parent / KEY)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    for call in (lambda: load(copy, signature=ours / PUBLIC), lambda: signer(ours / KEY)):
        with pytest.raises(UsageError, match=r"pip install 'softq\[sign\]'"):
            call()


def test_what_changes_after_the_check_changes_nothing(copy: Path, ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files become others, in place, between the check and the opening."""

    def opened(code: bytes, name: str) -> Library:
        for path in copy.iterdir():
            path.write_bytes(bytes(path.stat().st_size))
        return Library(code, name)

    monkeypatch.setattr(loading, "Library", opened)
    with load(copy, signature=ours / PUBLIC) as model:
        assert_right(model)


def test_from_the_command_line(ours: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(), "model.onnx")
    np.savez("data.npz", allow_pickle=False, **inputs())

    def softq(*arguments: str | Path) -> tuple[int, str]:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        return result.exit_code, result.output

    code, said = softq("build", "model.onnx", "built", "--target", "cpu", "--sign", ours / PUBLIC)
    assert (code, said.count("\n")) == (2, 1)
    assert not Path("built").exists()
    assert softq("build", "model.onnx", "built", "--target", "cpu", "--sign", ours / KEY)[0] == 0
    run = ("run", "built", "--data", "data.npz", "--metric", "max-error")
    assert softq(*run, "--reference", "model.onnx", "--require-signature", ours / PUBLIC)[0] == 0
    assert softq(*run, "--reference", "model.onnx", "--require-signature", theirs / PUBLIC)[0] == 2
    shutil.copytree("built", "unsigned")
    Path("unsigned/manifest.sig").unlink()
    code, said = softq(*run, "--reference", "unsigned", "--require-signature", ours / PUBLIC)
    assert code == 2
    assert "unsigned: is not signed" in said
    assert check_folder("built").name == "built"  # It is replaced like any other.
