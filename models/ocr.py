"""Fetches two text recognizers of others, with lines of Wikipedia text drawn as images.

    python -m models.ocr OUT

OUT then holds, for each recognizer, a folder with

    model.onnx        x float32 [batch, 3, 48, width] to probabilities [batch, steps, characters]
    calibration.npz   64 lines of text, as images of 48 by 320
    evaluation.npz    512 lines of other articles, and `label.text` int64 [512, length]: their characters, then -1

ppocr-v4/ is PP-OCRv4's, of the package rapidocr-onnxruntime, ppocr-v6/ PP-OCRv6's, of the package rapidocr, both
Apache-2.0. The lines are drawn with Pillow's own font (Aileron, CC0) in dark on light grey, with noise. The text is
CC BY-SA 3.0, from Wikipedia's authors.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx

from models._common import (
    GENSIM,
    RAPIDOCR,
    RAPIDOCR_ONNXRUNTIME,
    Package,
    cache_dir,
    fetch,
    run_builder,
    stage,
    unpack,
    versions,
    write_npz,
)
from models._wikipedia import articles
from models.splits import SPLITS, count, file_of
from softq.data import Array
from softq.metrics import PROPORTION, AloneMetric, PerSample

HEIGHT, WIDTH, SIZE, MARGIN = 48, 320, 28, 6
NOISE, SEED = 12.0, 20261
RECOGNIZERS: dict[str, tuple[Package, str]] = {
    "ppocr-v4": (RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "ppocr-v6": (RAPIDOCR, "rapidocr/models/PP-OCRv6_rec_small.onnx"),
}
"""The package of each, and where the model lies in it."""


def _contribute(output: Array, labels: Array) -> PerSample:
    """Return which lines are read right: the most probable characters, without repetitions, blanks and spaces."""
    blank, space = 0, output.shape[-1] - 1
    right: list[float] = []
    for steps, line in zip(output.argmax(axis=-1), labels, strict=True):
        changed = np.concatenate([[True], steps[1:] != steps[:-1]])
        read, written = steps[changed & (steps != blank)], line[line >= 0]
        right.append(float(np.array_equal(read[read != space], written[written != space])))
    return PerSample(np.array(right), np.ones(len(right)))


LINE_ACCURACY = AloneMetric(
    name="line-accuracy",
    direction="higher",
    unit="fraction",
    summary="share of lines whose characters are all read right, spaces aside",
    needs_labels=True,
    contribute=_contribute,
    kind=PROPORTION,
    bounds=(0.0, 1.0),
)


def characters(model: Path) -> list[str]:
    """Return what each class of a recognizer means: the blank, the characters that its metadata list, the space."""
    known = {entry.key: entry.value for entry in onnx.load(model, load_external_data=False).metadata_props}
    return ["", *known["character"].splitlines(), " "]


def build(out: Path) -> None:
    """Fetches both and writes their data; what an earlier run finished is kept.

    Raises:
        BuildError: a package cannot be had.
    """
    split = SPLITS["ocr"]
    recipe = {"text": GENSIM.sha256, "split": {part: list(places) for part, places in split.parts.items()},
              "files": {part: dict(files) for part, files in split.files.items()}, **versions("pillow")}  # fmt: skip
    for name, (package, file) in RECOGNIZERS.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        source = unpack(fetch(package), cache_dir() / name, f"{PurePosixPath(file).parent}/") / PurePosixPath(file).name
        stage(folder, "model", {"package": package.sha256}, ["model.onnx"],
              lambda there=source, folder=folder: shutil.copyfile(there, folder / "model.onnx"))  # fmt: skip
        files = [file_of("ocr", part) for part in split.files]
        stage(folder, "data", recipe, files, lambda folder=folder: _write_data(folder))


def _write_data(folder: Path) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(SIZE)
    class_of = {character: at for at, character in enumerate(characters(folder / "model.onnx")) if character}
    found = articles()
    for number, part in enumerate(SPLITS["ocr"].files):
        known = [line for at in SPLITS["ocr"].parts[part] for line in _lines(found[at].text, font)
                 if all(character in class_of for character in line) and line.isascii()]  # fmt: skip
        wanted = count("ocr", part)
        chosen = [known[len(known) * at // wanted] for at in range(wanted)]
        rng = np.random.default_rng([SEED, number])
        images = np.stack([_draw(line, font, rng) for line in chosen]).astype(np.float32)
        arrays = {"x": np.repeat((images[:, None] / 255 - 0.5) / 0.5, 3, axis=1).astype(np.float32)}
        if part != "calibration":
            codes = [[class_of[character] for character in line] for line in chosen]
            arrays["label.text"] = _padded(codes)
        write_npz(folder / file_of("ocr", part), arrays)


def _lines(text: str, font: Any) -> Iterator[str]:
    """Yield the text word by word in lines that fit an image; a word that does not is left out."""
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) <= WIDTH - 2 * MARGIN:
            line = longer
            continue
        if line:
            yield line
        line = word if font.getlength(word) <= WIDTH - 2 * MARGIN else ""


def _draw(line: str, font: Any, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image, ImageDraw

    image = Image.new("L", (WIDTH, HEIGHT), int(rng.integers(200, 256)))
    fill = int(rng.integers(0, 110))
    ImageDraw.Draw(image).text((MARGIN, HEIGHT // 2), line, font=font, fill=fill, anchor="lm")
    return np.clip(np.rint(np.asarray(image) + rng.normal(0, NOISE, (HEIGHT, WIDTH))), 0, 255)


def _padded(codes: Sequence[Sequence[int]]) -> np.ndarray:
    table = np.full((len(codes), max(map(len, codes))), -1, np.int64)
    for row, line in zip(table, codes, strict=True):
        row[: len(line)] = line
    return table


def main() -> int:
    """Returns the exit status of the command line."""
    parser = argparse.ArgumentParser(description="Fetch two text recognizers, with lines of text as images.")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    chosen = parser.parse_args()
    return run_builder(lambda: build(chosen.out))


if __name__ == "__main__":
    raise SystemExit(main())
