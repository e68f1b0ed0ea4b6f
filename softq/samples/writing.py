"""Arrays as a .npz file, whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softq.data import Array
from softq.files import write_files


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays under their names.

    Raises:
        InputError: the folder is absent or cannot be written, or the disk is full.
    """
    buffer = io.BytesIO()
    named: dict[str, Any] = dict(arrays)
    np.savez(buffer, allow_pickle=False, **named)
    write_files({Path(path): buffer.getvalue()})
