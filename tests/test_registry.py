"""The extension folders: what their docstrings tell a contributor to do works, and every mistake is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import softq.methods
from softq.errors import SoftqError
from softq.forms import FORMS
from softq.methods import METHODS, Method
from softq.metrics import METRICS
from softq.passes import PASSES
from softq.registry import Folder, Named, _discover
from softq.sweeps.frameworks import FRAMEWORKS
from softq.targets import TARGETS

TOY = '''
"""Every element weighs 1."""
from dataclasses import dataclass
from softq.methods import Auto, Method, Options, option

@dataclass(frozen=True)
class ToyOptions(Options):
    """Two options."""
    bits: int = option(4, "bits of nothing", low=1, high=8)
    scale: float | Auto = option("auto", "scale of nothing", low=0.5, high=2.0)

def _trace(t, options):
    one = t.select(t.scores < 0.0, t.const(1.0, t.scores.dtype), 1.0)
    return {"weights": one, "normalizer": t.row_sum(one)}

METHOD = Method(name="NAME", summary="one", source="none", options=ToyOptions, trace=_trace, drop_in=False)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `toys` on the path."""
    package = tmp_path / "toys"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [n for n in sys.modules if n == "toys" or n.startswith("toys.")]:
        del sys.modules[name]
    _discover.cache_clear()


def toys() -> Folder[Method]:
    _discover.cache_clear()
    return Folder(package="toys", attribute="METHOD", kind=Method, group="softq.no-such-group", noun="method")


def test_a_file_is_all_that_a_method_takes(folder: Path) -> None:
    (folder / "my_method.py").write_text(TOY.replace("NAME", "my-method"))
    method = toys().get("my-method")
    program = method.program(method.configure({"bits": "3"}))
    assert program.structure == "b3_sauto"
    assert program.is_pair


def test_words_of_an_option_are_those_of_its_type_and_its_default_is_checked(folder: Path) -> None:
    (folder / "my_method.py").write_text(TOY.replace("NAME", "my-method"))
    assert toys().get("my-method").options.specs()["scale"].allowed == "a number from 0.5 to 2 or auto"
    (folder / "other.py").write_text(TOY.replace("NAME", "other").replace("option(4", "option(9"))
    with pytest.raises(SoftqError, match=r"toys\.other .*default of bits is 9; allowed is a whole number from 1 to 8"):
        toys().entries()


def test_a_broken_file_is_named(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_module")
    with pytest.raises(SoftqError, match=r"method module toys\.broken cannot be imported: No module named"):
        toys().entries()


def test_a_file_without_an_entry_is_named(folder: Path) -> None:
    (folder / "empty.py").write_text("METHOD = 3")
    with pytest.raises(SoftqError, match=r"empty\.py: exposes no METHOD of type Method"):
        toys().entries()


def test_a_name_that_is_not_the_files_is_named(folder: Path) -> None:
    (folder / "one.py").write_text(TOY.replace("NAME", "two"))
    with pytest.raises(SoftqError, match=r"one\.py: method is named 'two'; the file's name asks for 'one'"):
        toys().entries()


def test_two_owners_of_a_name_are_both_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "one.py").write_text(TOY.replace("NAME", "one"))
    (folder / "_hidden.py").write_text(TOY.replace("NAME", "one"))

    class Point:
        name, value = "one", "toys._hidden:METHOD"

        @staticmethod
        def load() -> object:
            return import_module("toys._hidden").METHOD

    monkeypatch.setattr("softq.registry.entry_points", lambda group: [Point])
    with pytest.raises(SoftqError, match=r"'one' is defined twice: by .*one\.py and by toys\._hidden:METHOD"):
        toys().entries()


@pytest.mark.parametrize(
    "folder", [METHODS, METRICS, FORMS, PASSES, TARGETS, FRAMEWORKS], ids=lambda folder: folder.noun
)
def test_every_file_of_the_folders_is_found(folder: Folder[Named]) -> None:
    home = Path(import_module(folder.package).__path__[0])
    expected: set[str] = set()
    for path in home.glob("*.py"):
        if not path.stem.startswith("_"):
            several = getattr(import_module(f"{folder.package}.{path.stem}"), f"{folder.attribute}S", None)
            expected |= {path.stem.replace("_", "-")} if several is None else {entry.name for entry in several}
    assert set(folder.entries()) == expected


def test_a_file_of_several_entries(folder: Path) -> None:
    several = 'METHODS = tuple(replace(METHOD, name=name) for name in ("one", "two"))\ndel METHOD\n'
    (folder / "alike.py").write_text(f"{TOY}\nfrom dataclasses import replace\n{several}")
    assert list(toys().entries()) == ["one", "two"]


@pytest.mark.parametrize("wrong", ["METHODS = ()", "METHODS = (1,)", "METHODS = [1]"])
def test_a_file_of_several_wrong_entries_is_named(folder: Path, wrong: str) -> None:
    (folder / "alike.py").write_text(wrong)
    with pytest.raises(SoftqError, match=r"alike\.py: exposes no METHOD of type Method"):
        toys().entries()


def test_generic_code_names_no_method_and_no_target() -> None:
    root = Path(softq.methods.__path__[0]).parent
    names = [*METHODS.entries(), *(t for t in TARGETS.entries() if t != "onnx")]
    # These are words, too: of mathematics, the names that processors have in triples, ELF files and LLVM, languages, a
    # toolkit, a tool.
    words = ("exact", "uniform", "log2", "cpu", "aarch64", "armv7", "riscv64", "riscv32", "cortex-m", "c", "power",
             "clipped", "relu", "sigmoid", "softplus", "top-k", "cuda", "onnxruntime", "verilog", "hls4ml")  # fmt: skip
    names = [n for n in names if n not in words]
    for path in root.rglob("*.py"):
        if path.parent.name in ("methods", "targets"):
            continue
        text = path.read_text(encoding="utf-8")
        for name in names:
            # Most files do not have it even as a part of a word, which is found out far sooner.
            assert name not in text or not re.search(rf"(?<![\w-]){name}(?![\w-])", text), (
                f"{path.relative_to(root)} names {name}"
            )
