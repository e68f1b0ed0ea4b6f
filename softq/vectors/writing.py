"""Golden vectors on the disk: the arrays as .npz, and a C header."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np

from softq.errors import UsageError
from softq.files import write_files
from softq.vectors.header import to_header
from softq.vectors.making import Vectors


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
