"""Writes an image of the test data, and its label, as a header for main.c: write_image.py DATA NUMBER OUT."""

import sys
from pathlib import Path

import numpy as np


def main(data: str, number: str, out: str) -> None:
    with np.load(data) as arrays:
        image, label = arrays["images"][int(number)], int(arrays["label.digit"][int(number)])
    pixels = ", ".join(map(str, image.ravel().tolist()))
    array = f"static const uint8_t image[{image.size}] = {{{pixels}}};"
    Path(out).write_text(f"#include <stdint.h>\n\n#define IMAGE_LABEL {label}\n{array}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
