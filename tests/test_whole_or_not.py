"""Outputs of several files are the old or the new ones after a full disk or a kill at any moment, and never both."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import softq
from softq.errors import InputError
from softq.files import SUFFIX
from softq.modelfile import save
from softq.rtl import hls, rtl, write_hls, write_rtl
from softq.vectors import vectors, write_vectors
from tests.attention import attention

Files = Mapping[str, bytes]
Write = Callable[[Path, int], object]

FUNCTIONS = ("replace", "rename", "fsync", "unlink", "link")
"""Functions of `os` that change a folder or wait for a disk."""


@cache
def _made(kind: str, bits: int) -> Any:
    settings = {"bits": bits, "step": 0.0625}
    if kind == "rtl":
        return rtl("deferred-log", settings, length=8, rows=1)
    if kind == "hls":
        return hls("deferred-log", settings, length=8, rows=1)
    if kind == "vectors":
        return vectors("deferred-log", {"bits": bits}, lengths=(4,), rows=1)
    return softq.convert(attention(), bits=bits)


def write_model(folder: Path, bits: int) -> None:
    """Write a model and its plan, as `softq convert --save-plan` does."""
    made = _made("convert", bits)
    save(made.model, folder / "m.onnx", also={folder / "p.json": made.plan.to_text().encode()})


WRITERS: Mapping[str, Write] = {
    "rtl": lambda folder, bits: write_rtl(_made("rtl", bits), folder),
    "hls": lambda folder, bits: write_hls(_made("hls", bits), folder),
    "vectors": lambda folder, bits: write_vectors(_made("vectors", bits), folder / "v"),
    "convert": write_model,
}


def read(folder: Path) -> Files:
    """Return the files of a folder, without those that were on their way."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if SUFFIX not in path.name}


class Nth:
    """Calls a function at the n-th call of any of `FUNCTIONS`."""

    def __init__(self, n: int, act: Callable[[], object]) -> None:
        self.left, self._act = n, act

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in FUNCTIONS:
            patch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            self.left -= 1
            if self.left == 0:
                self._act()
            return function(*args, **more)

        return call


def _die(write: Write, folder: Path, n: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Nth(n, lambda: os._exit(9)).install(patch)
        write(folder, 4)


def kills(write: Write, folder: Path) -> Iterator[None]:
    """Kill a writer at its first step, at its second, ... until it lives."""
    context = multiprocessing.get_context("fork")
    for n in range(1, 200):
        process = context.Process(target=_die, args=(write, folder, n))
        process.start()
        process.join()
        yield
        if process.exitcode == 0:
            return
        assert process.exitcode == 9
    raise AssertionError("it never ended")


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def states(write: Write, folder: Path) -> tuple[Files, Files]:
    """Write old files with one beside them, and return them with the new ones."""
    folder.mkdir()
    write(folder, 4)
    new = read(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    write(folder, 3)
    (folder / "sim").mkdir()
    (folder / "sim" / "wave.vcd").write_bytes(b"wave")
    old = read(folder)
    beside = {"sim/wave.vcd": b"wave"}
    assert old.keys() == new.keys() | beside.keys()
    assert old != {**new, **beside}
    return old, {**new, **beside}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("inside", [False, True], ids=["", "inside"])
def test_a_kill_leaves_old_or_new_files(
    name: str, inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, folder = WRITERS[name], tmp_path / "out"
    old, new = states(write, folder)
    if inside:  # A folder in which somebody works keeps its place.
        monkeypatch.chdir(folder)
    whole = name in ("rtl", "hls") and not inside
    seen = []
    for _ in kills(write, folder):
        left = read(folder)
        seen.append(left == new)
        assert (left in (old, new)) if whole else (left.items() <= old.items() or left.items() <= new.items())
        assert left["sim/wave.vcd"] == b"wave"
        if left != new and left != old:
            WRITERS[name](folder, 3)
    assert seen[-1]
    assert not seen[0]
    assert not [path for path in tmp_path.rglob(f"*{SUFFIX}*") if path.parent != folder and not whole]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_a_full_disk_leaves_what_was_there(name: str, there: bool, tmp_path: Path) -> None:
    write, folder = WRITERS[name], tmp_path / "out"
    old, new = states(write, folder)
    for n in range(1, 200):
        if not there:
            shutil.rmtree(folder)
            folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            injected = Nth(n, fail)
            injected.install(patch)
            try:
                write(folder, 4)
                told = ""
            except InputError as error:
                told = str(error)
        failed = bool(told)
        assert not failed or "No space left on device" in told
        if injected.left > 0:
            break
        before, left = old if there else {}, read(folder)
        if name == "convert" and failed and left.get("m.onnx") == new["m.onnx"]:
            write(folder, 3)  # The last rename of all, into a place that is free, has no way back.
            continue
        assert left == (before if failed else {k: v for k, v in new.items() if there or k != "sim/wave.vcd"})
        if there and not failed:  # What failed was the tidying.
            write(folder, 3)
        assert not list(tmp_path.rglob(f"*{SUFFIX}*"))
    else:
        raise AssertionError("it never ended")


def test_a_model_is_not_written_without_its_plan(tmp_path: Path) -> None:
    (tmp_path / "p.json").mkdir()
    with pytest.raises(InputError, match=r"cannot write '.*p\.json': Is a directory"):
        write_model(tmp_path, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_what_is_beside_a_core_stays(tmp_path: Path) -> None:
    WRITERS["rtl"](tmp_path / "out", 3)
    (tmp_path / "out" / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "out" / "pipe")
    os.chmod(tmp_path / "out", 0o750)
    WRITERS["rtl"](tmp_path / "out", 4)
    assert os.readlink(tmp_path / "out" / "link") == "nowhere"
    assert (tmp_path / "out" / "pipe").is_fifo()
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
    (tmp_path / "named").symlink_to("out")
    WRITERS["rtl"](tmp_path / "named", 3)
    assert (tmp_path / "named").is_symlink()
    assert read(tmp_path / "out").keys() == read(tmp_path / "named").keys()
