"""Pictures and tokenizers that strangers could upload to hang `softq data`, fill its memory, or start programs."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softq.address_space import ApartError, run_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and signals are Linux's")

Write = Callable[[Path], object]

ASK = """
import json, resource, sys
from softq import limits
from softq.errors import InputError
from softq.samples import Input, read_images, read_texts

said = []
with limits.limited(memory=200 << 20, seconds=2):
    for name in sys.argv[2:]:
        try:
            if sys.argv[1] == "images":
                made = read_images([Input("x", "uint8", (None, 3, 4, 6), "values")], name)
            else:
                inputs = [Input("ids", "int64", (None, None), "indices"), Input("mask", "int64", (None, None), "mask")]
                made = read_texts(inputs[: 1 + ("line" in name)], "text.txt", name, length=4)
            said.append(list(next(iter(made.values())).shape))
        except InputError as error:
            said.append(str(error))
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([said, own >> 10, others >> 10]))
"""
"""Reads folders of images, or tokenizers; prints the shape or the error of each, and the memory of all processes."""


def ask(kind: str, names: list[str], folder: Path, **environment: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, kind, *names], capture_output=True, text=True, cwd=folder, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    said, own, others = json.loads(done.stdout)
    assert own < 300
    assert others < 500, "200 MiB, and those of the interpreter with its modules"
    assert all("\n" not in str(line) for line in said)
    return said


def quick_and_all(cases: Iterable[str], *quick: str) -> list[object]:
    """Return the names of some cases for the quick run, and those of all for the slow one."""
    return [pytest.param(list(quick), id="quick"), pytest.param(list(cases), id="all", marks=pytest.mark.slow)]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def write_png(path: Path, width: int, height: int, *more: bytes) -> None:
    """Write a black image of one bit per pixel, with other chunks in front of its data."""
    lines = zlib.compress(bytes((width + 7) // 8 + 1) * height, 9)
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), *more]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join([*parts, chunk(b"IDAT", lines), chunk(b"IEND", b"")]))


def write_tiff(path: Path, width: int, height: int, tags: int = 0, size: int = 64) -> None:
    """Write a black TIFF of one bit per pixel, with more tags that all are the same bytes."""
    lines = zlib.compress(bytes((width + 7) // 8 * height), 9)
    at = {256: width, 257: height, 258: 1, 259: 8, 262: 1, 273: 8, 278: height, 279: len(lines)}
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in at.items()]
    entries += [struct.pack("<HHII", 40000 + number, 7, size, 8) for number in range(tags)]
    body = struct.pack("<2sHI", b"II", 42, 8 + max(size, len(lines))) + lines.ljust(size, b"\0")
    path.write_bytes(body + struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4))


def write_webp(path: Path, size: int) -> None:
    """Write a lossless image of one colour: its pixels take no bits at all."""
    codes = int("1000" * 5, 2)
    bits = sum(int(bit) << place for place, bit in enumerate("000" + f"{codes:020b}"))
    data = b"\x2f" + struct.pack("<I", (size - 1) | (size - 1) << 14) + bits.to_bytes(3, "little")
    body = b"WEBPVP8L" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)


def save_frames(path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    frames = [image.new("L", (3000, 3000), number % 7) for number in range(40)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


PAGE = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\nshowpage\n"


def deflate(size: int) -> bytes:
    return zlib.compress(bytes(size), 9)


def texts(count: int) -> list[bytes]:
    return [chunk(b"zTXt", b"k%d\0\0" % number + deflate(1 << 20)) for number in range(count)]


PICTURES: dict[str, tuple[str, Write, object]] = {
    "good": ("a.png", lambda path: write_png(path, 9, 5), [1, 3, 4, 6]),
    "frames": ("a.gif", save_frames, [1, 3, 4, 6]),
    "eps": ("a.png", lambda path: path.write_text(PAGE), "cannot be read"),
    "png": ("a.png", lambda path: write_png(path, 30000, 30000), "pixels"),
    "bmp": (
        "a.bmp",
        lambda path: path.write_bytes(
            b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 30000, 30000, 1, 24, 0, 0, 0, 0, 0, 0)
        ),
        "pixels",
    ),
    "tiff": ("a.tif", lambda path: write_tiff(path, 30000, 30000), "pixels"),
    "webp": ("a.webp", lambda path: write_webp(path, 16383), "a.webp: c"),
    "gif": ("a.gif", lambda path: path.write_bytes(b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0)), ""),
    "tags": ("a.tif", lambda path: write_tiff(path, 6, 4, 4000, 1 << 19), ""),
    "text": ("a.png", lambda path: write_png(path, 9, 5, *texts(80)), "cannot be read"),
    "profile": ("a.png", lambda path: write_png(path, 9, 5, chunk(b"iCCP", b"k\0\0" + deflate(1 << 28))), ""),
}  # fmt: skip
"""Name of the file, how it is written, and the shape that comes out or words of the refusal (or either, if empty)."""


@pytest.mark.parametrize("names", quick_and_all(PICTURES, "good", "eps", "webp", "tags"))
def test_pictures_are_decoded_within_limits_and_start_nothing(names: list[str], tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    trap = tmp_path / "bin" / "gs"
    trap.parent.mkdir()
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    trap.chmod(0o755)
    pictures = {name: PICTURES[name] for name in names}
    for name, (file, write, _) in pictures.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / file)
        assert (tmp_path / name / file).stat().st_size < 5 << 20
    said = ask("images", names, tmp_path, PATH=f"{trap.parent}:{os.environ['PATH']}")
    for (name, (file, _, wanted)), answer in zip(pictures.items(), said, strict=True):
        if isinstance(wanted, list):
            assert answer == wanted, name
        elif wanted or isinstance(answer, str):
            assert f"{name}/{file}" in answer, name
            assert str(wanted) in answer, name
    assert not (tmp_path / "started").exists()


WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}


def tokenizer(**parts: object) -> str:
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    said = dict.fromkeys(names) | {"version": "1.0", "added_tokens": [], "model": WORDS} | parts
    return json.dumps(said)


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


FIXED = {"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
DOUBLES = {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 36}

TOKENIZERS: dict[str, tuple[str, object]] = {
    "good": (tokenizer(pre_tokenizer={"type": "Whitespace"}), [1, 4]),
    "good-line": (tokenizer(pre_tokenizer={"type": "Whitespace"}), [3, 4]),
    "padding-line": (tokenizer(pre_tokenizer={"type": "Whitespace"}, padding=FIXED | {"pad_token": "a"}), [3, 4]),
    "doubles": (tokenizer(normalizer=DOUBLES), "needs more than"),
    "doubles-line": (tokenizer(normalizer=DOUBLES), "needs more than"),
    "expression": (tokenizer(pre_tokenizer=split("^(a|a)*(a|a)*(a|a)*$")), ""),
    "no-expression": (tokenizer(pre_tokenizer=split("(((")), "is no tokenizer"),
    "no-json": ("{", "is no tokenizer"),
    "deep": ("[" * 100_000, "is no tokenizer"),
}
"""What the file says, and the shape that comes out or words of the refusal (or either, if empty)."""


@pytest.mark.parametrize("names", quick_and_all(TOKENIZERS, "good-line", "padding-line", "doubles", "no-json"))
def test_tokenizers_work_within_limits(names: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "text.txt").write_text(f"a a\n{'a' * 40}b a\na a a\n")
    for name in names:
        (tmp_path / name).write_text(TOKENIZERS[name][0])
        assert (tmp_path / name).stat().st_size < 1 << 20
    for name, answer in zip(names, ask("texts", names, tmp_path), strict=True):
        wanted = TOKENIZERS[name][1]
        assert answer == wanted if isinstance(wanted, list) else str(wanted) in str(answer), (name, answer)


def spin(given: Any, out: Any) -> None:
    out.write(given.read())
    out.flush()
    while True:
        pass


def grow(given: Any, out: Any) -> None:
    print("noise")
    held = [bytes(1 << 20)]
    while True:
        held.append(held[-1] + bytes(1 << 20))


def say(given: Any, out: Any) -> None:
    print("noise")
    if given.read():
        raise ValueError("two\nlines")
    out.write(np.arange(3).tobytes())


def test_what_ends_work_in_a_process_of_its_own() -> None:
    np.testing.assert_array_equal(np.frombuffer(run_apart(say, b"", 1 << 26, 5), np.int64), [0, 1, 2])
    for work, words in ((spin, "1 seconds (--limit-seconds"), (grow, "64 MiB (--limit-memory"), (say, "")):
        with pytest.raises(ApartError) as raised:
            run_apart(work, b"some", 1 << 26, 1)
        assert words in raised.value.limit
        assert raised.value.written == (b"some" if work is spin else b"")
        assert ("two lines" in str(raised.value)) == (work is say)
