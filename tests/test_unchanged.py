"""The comparison of two checkouts sees what differs; what it compares is made and found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.unchanged import corpus, elf, interface, studies
from benchmarks.unchanged.observe import CRASHED, REFUSED, Observer, bits_of
from benchmarks.unchanged.records import TOLD, compare, table

BEFORE = {"models": {"a": "1" * 64, "b": "2" * 64, "c": REFUSED + "3" * 64}, "files": {"a": "4" * 64}}


def test_records_that_are_equal_pass() -> None:
    found = compare(BEFORE, BEFORE)
    assert all(one.passed for one in found)
    assert {one.kind: (one.equal, one.refused) for one in found} == {"models": (3, 1), "files": (1, 0)}


@pytest.mark.parametrize("value", ["9" * 64, REFUSED + "2" * 64])
def test_one_changed_hash_is_seen_and_named(value: str, tmp_path: Path) -> None:
    found = compare(BEFORE, BEFORE | {"models": BEFORE["models"] | {"b": value}})
    assert [one.kind for one in found if not one.passed] == ["models"]
    assert "  b: other bytes" in table(found, tmp_path)
    texts = [tmp_path / "texts" / f"{part[-64:][:20]}.txt" for part in ("2" * 64, value)]
    texts[0].parent.mkdir()
    for text in texts:
        text.write_text("")
    assert f"  b: diff {texts[0]} {texts[1]}" in table(found, tmp_path)


def test_what_is_missing_differs_unless_a_part_was_asked_for() -> None:
    now = {"models": {key: value for key, value in BEFORE["models"].items() if key != "a"} | {"d": "5"}}
    models = next(one for one in compare(BEFORE, now) if one.kind == "models")
    assert (list(models.different), models.added, models.passed) == (["a"], 1, False)
    assert "a: is missing" in table([models], Path())
    assert all(one.passed for one in compare(BEFORE, now, partial=True))


def test_bytes_of_files_are_told_but_not_held() -> None:
    found = compare(BEFORE, BEFORE | {"files": {"a": "9"}})
    assert all(one.passed for one in found)
    assert "files: 1 may differ and do" in table(found, Path())
    assert set(TOLD) == {"files", "bytes of deferred-log"}


def test_bits_are_those_of_names_types_and_shapes() -> None:
    x = np.zeros((2, 3), np.float32)
    others: list[dict[str, corpus.Array]] = [
        {"y": x}, {"x": x.T}, {"x": x.astype(np.float64)}, {"x": -x}, {"x": np.full((2, 3), np.nan, np.float32)},
    ]  # fmt: skip
    assert len({bits_of(one) for one in [{"x": x}, *others]}) == 6


def test_times_are_left_out_of_json() -> None:
    one, other = (json.dumps({"seconds": s, "a": [{"seconds": s, "b": 1.5}]}) for s in (1.0, 2.0))
    assert studies.without_times(one) == studies.without_times(other)
    lines = [studies.without_times(f"{x}\n{x}\n[exit code 1]") for x in (one, other)]
    assert lines[0] == lines[1]
    assert studies.without_times(one) != studies.without_times(one.replace("1.5", "2.5"))
    assert studies.without_times("no JSON\n") == "no JSON\n"


def test_the_models_are_made_and_read_again(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    corpus.write(tmp_path)
    found = corpus.read(tmp_path)
    assert len(found) > 500
    for one in corpus.read(tmp_path, ["softmax", "attention*", "mnist_vit"]):
        inputs = {value.name for value in onnx.load(one.path).graph.input}
        assert all(set(feed) == inputs for feed in one.feeds()), one.name
    assert len(corpus.read(tmp_path, quick=True)) < len(found) / 5


def test_a_refusal_a_crash_and_a_name_that_is_gone_are_observed(tmp_path: Path) -> None:
    observer = Observer([], tmp_path, None, False)
    observer.attempt("commands", "unknown", lambda: interface.command("methods", "no-method"))
    observer.attempt("work", "refused", _refused)
    observer.attempt("work", "crashed", lambda: str(1 // 0))
    observer.attempt("names", "there", lambda: interface.described("softq:convert"))
    observer.attempt("names", "gone", lambda: interface.described("softq:no_such_name"))
    assert observer.kinds["work"]["refused"].startswith(REFUSED)
    assert observer.kinds["work"]["crashed"].startswith(CRASHED)
    assert observer.kinds["names"]["gone"].startswith(CRASHED)
    texts = {path.read_text() for path in tmp_path.iterdir()}
    assert "ZeroDivisionError: integer division or modulo by zero" in texts
    assert any(text.startswith("(positional_or_keyword model, keyword_only method = None") for text in texts)
    assert any("unknown method 'no-method'" in text and "[exit code 2]" in text for text in texts)


def _refused() -> str:
    import softq

    raise softq.RefusalError("no")


def test_scores_have_every_special_row() -> None:
    x = corpus.scores(11, 7)
    assert np.all(np.isneginf(x[2]))
    assert np.isnan(x[3]).sum() == 1
    assert np.isposinf(x[4]).sum() == 1
    assert 0 < np.isneginf(x[1]).sum() < 7


def test_of_an_object_file_the_code_is_compared(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    text = "static const int table[] = {{1, 2, {0}}}; int {1}(int {2}) {{ return table[{2}] * {3}; }}"

    def compiled(*parts: object, target: str = "aarch64-linux-gnu") -> str:
        (tmp_path / "x.c").write_text(text.format(*parts))
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-O1", "-g", "-c", "x.c", "-o", "x.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        return elf.code((tmp_path / "x.o").read_bytes())

    for target in ("aarch64-linux-gnu", "arm-linux-gnueabihf"):
        plain = compiled(3, "f", "i", 5, target=target)
        assert compiled(3, "f", "another_name", 5, target=target) == plain
        for other in ((4, "f", "i", 5), (3, "g", "i", 5), (3, "f", "i", 7)):
            assert compiled(*other, target=target) != plain
