"""What arguments say before the work begins: settings of a method, and outputs that must not be inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from softq.errors import UsageError


def parse_settings(pairs: Sequence[str], bits: int | None, option: str = "--set") -> dict[str, int | float | str]:
    """Return the settings of `--set KEY=VALUE`, or of another such option, and `--bits` by name.

    Raises:
        UsageError: a pair is none, a key is given twice, or the two contradict each other.
    """
    settings: dict[str, int | float | str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {pair!r}; expected KEY=VALUE")
        if key in settings:
            raise UsageError(f"{option} {key} is given twice")
        settings[key] = value
    if bits is not None and str(settings.setdefault("bits", bits)) != str(bits):
        raise UsageError(f"--bits {bits} and --set bits={settings['bits']} contradict each other")
    return settings


def check_outputs(outputs: Sequence[str | None], inputs: Sequence[str | None]) -> None:
    """Refuse an output that is an input or another output, or that has no folder to go into.

    Raises:
        UsageError: there is such an output; None stands for a file that is not asked for.
    """
    taken: dict[tuple[int, int] | str, str] = {}
    for name in inputs:
        if name is None:
            continue
        path = Path(name)
        for file in [path, *path.glob("*.npz")] if path.is_dir() else [path]:
            taken[_identity(file)] = str(file)
        # Weights lie beside the model that names them.
        taken |= {_identity(file): str(file) for file in _weights(path)}
    for name in outputs:
        if name is None:
            continue
        path = Path(name)
        if _identity(path) in taken:
            raise UsageError(f"output {name!r} is {taken[_identity(path)]!r} too; inputs are never written")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {name!r}: the folder '{path.parent}' does not exist or is not writable")
        taken[_identity(path)] = name


def _weights(model: Path) -> list[Path]:
    if model.suffix != ".onnx" or not model.is_file():
        return []
    from softq.modelfile import data_files

    return [Path(file) for file in data_files(model)]


def _identity(path: Path) -> tuple[int, int] | str:
    """Return what two names of one file have in common."""
    try:
        status = path.stat()
    except OSError:
        return str(path.resolve())
    return (status.st_dev, status.st_ino)
