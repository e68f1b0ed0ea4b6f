"""Functions in C++ for high-level synthesis; what they compute is tested where their types are, with hls4ml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import RefusalError, SoftqError, UsageError
from softq.rtl import hls


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two runs of the command write the same files, and the description names the function's arguments."""
    for name in ("a", "b"):
        arguments = ["hls", "ita", "--set", "step=0.06", "--length", "64", "--masked", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "ita::run(length, scores, valid, weights, normalizer): rows of 1 to 64 elements" in done.output
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    facts = json.loads((tmp_path / "a" / "ita.json").read_text())
    text = (tmp_path / "a" / "ita.h").read_text()
    declared = text[text.index("inline void run(") :].split(") {")[0]
    for each in facts["arguments"]:
        assert f"{each['type']} {'' if each['row'] else '&'}{each['name']}_" in declared
    assert [each["name"] for each in facts["arguments"]] == ["scores", "valid", "weights", "normalizer"]


def test_types_are_as_narrow_as_the_proof_allows() -> None:
    """Codes of 4 bits are 4 bits, and the sum of 1,024 weights of at most 2^14 is 25."""
    made = hls("deferred-log", {"bits": 4, "step": 0.06}, length=1024, rows=0)
    types = {each.name: each.type for each in made.function.arguments}
    assert types == {"scores": "ap_int<8>", "codes": "ap_uint<4>", "normalizer": "ap_uint<25>"}


def test_numbers_that_no_row_changes_can_be_left_out(tmp_path: Path) -> None:
    arguments = ["hls", "ita", "--set", "step=0.06", "--set", "output=uint8", "--length", "16", "--no-constants"]
    done = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts = json.loads((tmp_path / "ita.json").read_text())
    assert [each["name"] for each in facts["arguments"]] == ["scores", "weights"]
    assert facts["constants"] == {"normalizer": 256}
    assert hls("deferred-log", {"step": 0.06}, rows=0, constants=False).function.argument("normalizer") is not None


@pytest.mark.parametrize(
    ("method", "changed", "error"),
    [
        ("qlinear", {"settings": {"step": 0.06}}, RefusalError),
        ("ita", {"scores": "f32"}, UsageError),
        ("ita", {"length": 0}, UsageError),
        ("ita", {"name": "Ita"}, UsageError),
        ("ita", {"rows": -1}, UsageError),
        ("ita", {"outputs": ("colours",)}, UsageError),
    ],
)
def test_refuses(method: str, changed: Mapping[str, object], error: type[SoftqError]) -> None:
    """What a function cannot be is one line."""
    with pytest.raises(error) as raised:
        hls(method, **{"settings": {"step": 0.06}, **changed})  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)
