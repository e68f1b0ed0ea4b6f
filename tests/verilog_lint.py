"""What Verilator warns of in cores: every method with a core, every option of it.

    python -m tests.verilog_lint

writes tests/verilator_warnings.json anew: for each core the warnings of `verilator --lint-only -Wall` by their names.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import pytest

from softq.codegen.verilog.weighted_plan import ValueSettings
from softq.errors import SoftqError
from softq.methods import METHODS
from softq.rtl import rtl, rtl_with_values
from tests.rtl_rows import INTEGER, REFUSED, settings_of

FILE = Path(__file__).with_name("verilator_warnings.json")
LENGTH = 64

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    **{f"lanes={lanes}": {"lanes": lanes} for lanes in (2, 4, 8)},
    "uint8 masked": {"scores": "u8", "masked": True},
    "masked lanes=4": {"masked": True, "lanes": 4},
    "no reset": {"reset": False},
    "packed": {"packed": True},
    "cut": {"cut": True},
    "registers": {"registers": True},
    "registers heads=2": {"registers": True, "heads": 2},
    "serial": {"products": "serial"},
    "no constants": {"constants": False},
}
_VALUES = {
    "values averages": ValueSettings(8, 4, 4),
    "values sums": ValueSettings(8, 2, outputs=("sums", "normalizer")),
    "values multipliers": ValueSettings(8, 4, multipliers=True),
}
_WARNING = re.compile(r"^%Warning-(\w+):", re.MULTILINE)


class Recorded(TypedDict):
    """The file: the release of Verilator, and by core how often each warning comes."""

    verilator: str
    cores: dict[str, dict[str, int]]


def cores() -> Iterator[tuple[str, str]]:
    """Yield the names of all cores, with their text; those that are refused are left out."""
    for name in names():
        text = text_of(name)
        if text is not None:
            yield name, text


def names() -> list[str]:
    """Return names: method, published output or nothing, and option."""
    formats = [(method, output) for method in INTEGER if method not in REFUSED for output in _outputs(method)]
    found = [f"{method}|{output}|{option}" for method, output in formats for option in _OPTIONS]
    return found + [f"{method}||{option}" for method, output in formats if not output for option in _VALUES]


def _outputs(method: str) -> list[str]:
    option = METHODS.get(method).options.specs().get("output")
    return ["", *(word for word in option.words if word != "pair")] if option else [""]


def text_of(name: str) -> str | None:
    """Return the Verilog of a core; None if it is refused."""
    method, output, option = name.split("|")
    settings = {**settings_of(method), **({"output": output} if output else {})}
    try:
        if option in _VALUES:
            return rtl_with_values(method, _VALUES[option], settings, length=LENGTH, rows=0).core.text
        return rtl(method, settings, length=LENGTH, rows=0, **_OPTIONS[option]).core.text
    except SoftqError:
        return None


def release() -> str:
    """Return the release of Verilator; skip where it is not installed."""
    if shutil.which("verilator") is None:
        pytest.skip("verilator is not installed")
    said = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def warnings(text: str) -> dict[str, int]:
    """Return how often Verilator warns of what in a core."""
    with tempfile.TemporaryDirectory() as folder:
        top = re.findall(r"^module (\w+)", text, re.MULTILINE)[-1]
        (Path(folder) / f"{top}.v").write_text(text)
        command = ["verilator", "--lint-only", "-Wall", "-Wno-fatal", "--top-module", top, f"{top}.v"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "%Error" not in done.stderr, done.stderr
    return dict(sorted(Counter(_WARNING.findall(done.stderr)).items()))


def read() -> Recorded:
    """Return what is recorded."""
    return json.loads(FILE.read_text())


def all_warnings() -> dict[str, dict[str, int]]:
    """Return the warnings of all cores by name."""
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(lambda core: (core[0], warnings(core[1])), cores()))


def main() -> None:
    """Write the file, a line for each core."""
    lines = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in all_warnings().items()]
    text = ",\n".join(lines)
    FILE.write_text(f'{{"verilator": "{release()}", "cores": {{\n{text}\n}}}}\n')


if __name__ == "__main__":
    sys.exit(main())
