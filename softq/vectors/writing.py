"""Golden vectors on the disk: the arrays as .npz, and as a C99 header whose literals give back the same bits."""

from __future__ import annotations

import io
import json
import math
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.files import write_files
from softq.rowprog import DType, Kind
from softq.vectors.making import Vectors

Array = NDArray[np.generic]

_TYPES = {"float32": "float", "bool": "uint8_t"} | {
    f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)
}
_COMMENTS = {
    "length": "elements of each row",
    "offset": "where each row begins in the arrays of rows",
    "kind": "what is special about each row, an index into the kinds",
    "has_nan": "1 where an element that takes part is NaN",
    "scores": "the scores, row behind row",
    "valid": "1 where an element takes part, row behind row",
}
_WIDTH = 120


def write_vectors(vectors: Vectors, out: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write OUT.npz and OUT.h, both or neither, and return their names.

    Args:
        vectors: What to write. In the .npz the manifest is a text, `manifest`, of JSON; nothing in it is a pickle.
        out: The name without an ending.

    Raises:
        UsageError: the name has one of the endings already, or is no file's name.
        InputError: the folder is absent or cannot be written, or the disk is full.
    """
    path = Path(out)
    if path.suffix in (".npz", ".h") or not path.name:
        raise UsageError(f"OUT is {str(out)!r}; give the name without its ending: OUT.npz and OUT.h are written")
    packed = io.BytesIO()
    manifest = json.dumps(dict(vectors.manifest), indent=1, allow_nan=False)
    np.savez_compressed(packed, allow_pickle=False, manifest=np.array(manifest), **vectors.arrays)  # pyright: ignore[reportArgumentType]
    arrays, header = path.with_name(path.name + ".npz"), path.with_name(path.name + ".h")
    write_files({arrays: packed.getvalue(), header: to_header(vectors).encode("utf-8")})
    return arrays, header


def to_header(vectors: Vectors) -> str:
    """Return the vectors as C99; it needs <math.h> for NAN and INFINITY, and nothing to link."""
    prefix = symbol(vectors)
    guard = f"{prefix}_vectors_h".upper()
    kinds = cast("list[str]", vectors.manifest["kinds"])
    lines = [*_comment(vectors), "", f"#ifndef {guard}", f"#define {guard}", "", "#include <math.h>"]
    lines += ["#include <stdint.h>", ""]
    lines += [f"#define {prefix.upper()}_ROWS {vectors.arrays['length'].size}"]
    lines += [f"#define {prefix.upper()}_ELEMENTS {vectors.arrays['scores'].size}"]
    lines += [f"#define {prefix.upper()}_LONGEST {max(vectors.arrays['length'].tolist(), default=0)}", ""]
    lines += [f"static const char *const {prefix}_kinds[{len(kinds)}] = {{"]
    lines += [f'    "{kind}",' for kind in kinds] + ["};"]
    for name, array in vectors.arrays.items():
        lines += ["", *_array(f"{prefix}_{name}", array, _about(vectors, name))]
    return "\n".join([*lines, "", f"#endif /* {guard} */", ""])


def symbol(vectors: Vectors) -> str:
    """Return what every name in the header begins with: method, options, scores, mask."""
    program = vectors.program
    parts = ["softq", program.name, program.structure, program.scores.value, *["valid"] * program.masked]
    return re.sub(r"\W", "_", "_".join(part for part in parts if part), flags=re.ASCII)


def _comment(vectors: Vectors) -> Iterator[str]:
    made: Mapping[str, Any] = vectors.manifest
    options = " ".join(f"{k}={v}" for k, v in made["options"].items()) or "none"
    fitted = " ".join(f"{k}={v!r}" for k, v in made["fitted"].items())
    text = [
        f"Golden vectors of the softmax method {made['method']}, by softq {made['softq']}.",
        made["summary"],
        f"Options: {options}{'; fitted: ' + fitted if fitted else ''}. Source of the formula: {made['source']}.",
        f"`softq methods {made['method']}` has the specification; docs/vectors.md says what the rows are.",
        "",
        "How to compare. Row r is [offset[r], offset[r] + length[r]) of scores and of every output a row; the other "
        "outputs have one value a row.",
        *(f"  {name}: {_rule(vectors, name)}" for name in made["outputs"]),
    ]
    if "has_nan" in vectors.arrays:
        text.append(f"Where has_nan is 1 only {vectors.decisive} is specified: it is NaN.")
    if any(node.dtype is DType.F32 for node in vectors.program.nodes()):
        text.append(
            "Float operations are those of IEEE 754 binary32, rounded to nearest even, with subnormals, "
            + (
                "a product and a sum fused or not."
                if vectors.program.contract
                else "one by one: no fused multiply-add."
            )
        )
    text += ["", "The program (docs/rowprog.md has the operators):", ""]
    yield "/*"
    for line in text:
        for part in textwrap.wrap(line, _WIDTH - 4, subsequent_indent="  " if line.startswith("  ") else "") or [""]:
            yield f" * {part}".rstrip().replace("*/", "* /")
    for line in str(made["program"]).rstrip().splitlines():
        yield f" * {line}".replace("*/", "* /")
    yield " */"


def _rule(vectors: Vectors, name: str) -> str:
    node = vectors.program.outputs[name]
    each = "a value an element" if node.kind is Kind.ROW else "a value a row"
    if f"{name}_low" in vectors.arrays:
        return f"{each}, right within [{name}_low, {name}_high]"
    return f"{each}, equal" + (" (to the bit, but any NaN is a NaN and 0 is -0)" if node.dtype.is_float else "")


def _about(vectors: Vectors, name: str) -> str:
    if name in _COMMENTS:
        return _COMMENTS[name]
    if name in vectors.program.outputs:
        return f"output: {_rule(vectors, name)}"
    output, _, end = name.rpartition("_")
    if output == "table":
        return f"table {end} of the program, counted from 0 in the order of its text"
    if end in ("low", "high") and output in vectors.program.outputs:
        return f"{'least' if end == 'low' else 'greatest'} value allowed of {output}"
    return next(f"parameter: {p.meaning}" for p in vectors.program.params if name == f"given_{p.name}")


def _array(name: str, array: Array, about: str) -> Iterator[str]:
    yield f"/* {about} */".replace("*/ */", "*/")
    flat = array.reshape(-1)
    # C has no array of no elements.
    values = [_literal(v, flat.dtype) for v in flat.tolist()] or ["0"]
    yield f"static const {_TYPES[flat.dtype.name]} {name}[{len(values)}] = {{"
    yield from textwrap.wrap(
        ", ".join(values) + ",", _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    yield "};"


def _literal(value: float, dtype: np.dtype[np.generic]) -> str:
    if dtype.kind == "f":
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        mantissa, _, exponent = value.hex().partition("p")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}p{exponent}f"
    if dtype.itemsize < 4:
        return str(int(value))
    if dtype.itemsize == 4:
        return f"{value}u" if dtype.kind == "u" else f"(-{-value - 1} - 1)" if value == -(2**31) else str(value)
    if dtype.kind == "u":
        return f"UINT64_C({value})"
    return f"(-INT64_C({-value - 1}) - 1)" if value == -(2**63) else f"INT64_C({value})"
