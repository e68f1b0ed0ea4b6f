"""Words of Verilog, VHDL and C++ name no core and no function: the languages' own tools refuse them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import softq.rtl
from softq.cli import main
from softq.files import read_toml

WORDS = {name: words.split() for name, words in read_toml(Path(softq.rtl.__file__).with_name("reserved.toml")).items()}


def refuses(command: Sequence[str], suffix: str, text: str, folder: Path) -> bool:
    file = folder / f"word{suffix}"
    file.write_text(text)
    return subprocess.run([*command, file.name], cwd=folder, capture_output=True, check=False).returncode != 0


VERILOG = ("iverilog", "-g2012", "-t", "null")
CPP = ("g++", "-std=gnu++20", "-fsyntax-only", "-include", "cstdio")


def write_module(word: str) -> str:
    return f"module {word}(input a, output b); assign b = a; endmodule\n"


def write_namespace(word: str) -> str:
    return f"namespace {word} {{ int run() {{ return 0; }} }}\nint main() {{ return {word}::run(); }}\n"


OTHERS = {"std", "ap_int", "ap_uint", "ap_fixed", "ap_ufixed"}
"""Names of headers; a namespace may have them as far as the language goes."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "command", "suffix", "write"),
    [("verilog", VERILOG, ".v", write_module), ("cpp", CPP, ".cpp", write_namespace)],
    ids=["verilog", "cpp"],
)
def test_tools_refuse_these_words(
    language: str, command: Sequence[str], suffix: str, write: Callable[[str], str], tmp_path: Path
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    assert not refuses(command, suffix, write("softmax"), tmp_path)
    taken = [word for word in WORDS[language] if not refuses(command, suffix, write(word), tmp_path)]
    assert set(taken) <= (OTHERS if language == "cpp" else set())


CASES: Mapping[str, Sequence[str]] = {
    "rtl": ("module", "xor", "always_ff", "signal", "body"),
    "hls": ("int", "std", "co_await"),
}


def write_core(command: str, name: str, out: Path) -> Result:
    settings = ["--length", "8", "--set", "step=0.06", "--out", str(out)]
    return CliRunner().invoke(main, [command, "deferred-log", *settings, "--name", name])


@pytest.mark.parametrize(("command", "word"), [(command, word) for command, words in CASES.items() for word in words])
def test_a_word_is_refused_with_another_name(command: str, word: str, tmp_path: Path) -> None:
    result = write_core(command, word, tmp_path / "out")
    assert result.exit_code == 2
    assert f"name is '{word}', which is a word of " in result.output
    assert result.output.endswith(f"give another one: --name {word}_core\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("command", "word"), [("rtl", "namespace"), ("hls", "signal"), ("rtl", "module_core")])
def test_words_of_other_languages_are_names(command: str, word: str, tmp_path: Path) -> None:
    result = write_core(command, word, tmp_path / "out")
    assert result.exit_code == 0, result.output
