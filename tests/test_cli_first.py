"""What a newcomer meets first: the help, wrong names, and errors for programs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

from softq.cli import commands, main, printing
from softq.cli.command import Section
from softq.errors import UsageError
from softq.nearest import nearest, unknown
from softq.sweeps.folder import open_folder
from softq.sweeps.settings import expand
from softq.wording import by_reason, counted

VIT = str(Path(__file__).resolve().parent.parent / "models" / "mnist_vit" / "mnist_vit.onnx")


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_softq_alone_prints_its_help() -> None:
    alone, asked = softq(), softq("--help")
    assert (alone.exit_code, asked.exit_code) == (2, 0)
    assert (alone.stdout, alone.stderr) == ("", asked.stdout)
    places = [asked.stdout.index(f"\n{section}:\n") for section in Section]
    assert places == sorted(places)


def test_each_command_is_a_file_with_a_summary_that_fits() -> None:
    files = {path.stem for path in Path(commands.__path__[0]).glob("*.py")} - {"__init__"}
    listed = [line.split(maxsplit=1) for line in softq("--help").stdout.splitlines() if line.startswith("  ")]
    for file in files:
        (summary,) = [rest for name, *rest in listed if name == file.replace("_", "-")]
        assert summary[0].endswith("."), file
        assert not summary[0].endswith("..."), file
        assert softq(file.replace("_", "-"), "--help").exit_code == 0


def test_help_of_a_command_imports_no_other_and_none_of_the_library() -> None:
    code = "import sys; from softq.cli import main; main(['convert', '--help'], standalone_mode=False);"
    code += "print(*[m for m in sys.modules if m.startswith('softq.cli.commands.')], file=sys.stderr);"
    code += "heavy = ('onnx', 'onnx_ir', 'rich', 'onnxruntime', 'numpy', 'softq.methods');"
    code += "sys.exit(', '.join(m for m in heavy if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()) == (0, ["softq.cli.commands.convert"])


@pytest.mark.parametrize(
    ("command", "idle"),
    [
        (("methods",), ("onnx", "onnx_ir", "sympy", "onnxruntime")),
        (("metrics",), ("onnx_ir", "sympy", "onnxruntime", "softq.methods")),
        (("inspect", VIT), ("sympy.core", "onnxruntime", "tvm", "softq.metrics", "softq.targets")),
    ],
)
def test_commands_load_what_they_need(command: tuple[str, ...], idle: tuple[str, ...]) -> None:
    code = "import sys; from softq.cli import main; main(sys.argv[1].split('|'), standalone_mode=False);"
    code += f"sys.exit(', '.join(m for m in {idle!r} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code, "|".join(command)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_methods_are_proved_when_a_length_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    monkeypatch.setattr("softq.specification.kernels.largest_length", lambda program: lengths.append(1) or 1)
    assert "longest row" not in softq("methods").stdout
    assert not lengths
    assert "longest row" in softq("methods", "--length", "64").stdout
    assert lengths


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("model.onnx",), "a command is missing; to see the model's softmaxes: softq inspect model.onnx"),
        (("my model.onnx",), "a command is missing; to see the model's softmaxes: softq inspect 'my model.onnx'"),
        ((VIT,), f"a command is missing; to see the model's softmaxes: softq inspect {VIT}"),
        (("chek",), "no command is called 'chek'; nearest: check; see softq --help"),
        (("zzzz",), "no command is called 'zzzz'; see softq --help"),
        (("convert",), "missing argument 'MODEL'; see softq convert --help"),
        (("check", "--dta", "x"), "no such option '--dta'; nearest: --data; see softq check --help"),
        (("methods", "unifrm"), "unknown method 'unifrm'; nearest: uniform; softq methods lists all "),
        (("methods", "deferred_log"), "unknown method 'deferred_log'; nearest: deferred-log, deferred-log-online, "),
        (("targets", "cortex-m4"), "unknown target 'cortex-m4'; nearest: cortex-m; softq targets lists all "),
        (
            ("check", VIT, VIT, "--data", "x.npz", "--metric", "top1"),
            "unknown metric 'top1'; nearest: top1-accuracy, top1-agreement; softq metrics lists all ",
        ),
    ],
)
def test_a_wrong_name_gets_the_nearest(arguments: tuple[str, ...], line: str) -> None:
    result = softq(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"softq: {line}")
    assert result.stderr.count("\n") == 1


def test_nearest_names() -> None:
    known = ["exact", "exact-online", "uniform", "log2", "deferred-log"]
    assert nearest("Exact_Online", known) == ["exact-online", "exact"]
    assert nearest("log", known) == ["log2", "deferred-log"]
    assert nearest("zebra", known) == []
    assert unknown("method", "uniforme", known) == f"unknown method 'uniforme'; there are: {', '.join(known)}"
    assert unknown("method", "x", []) == "unknown method 'x'; there are none"


@pytest.mark.parametrize(
    "arguments",
    [("inspect", "absent.onnx"), ("check", "absent.onnx"), ("methods", "nope"), ("nonsense",), ("inspect", "--nope")],
)
def test_errors_as_json(arguments: tuple[str, ...]) -> None:
    result = softq(*arguments, "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert result.stderr == f"softq: {told.pop('error')}\n"
    assert told == {"schema": 1}
    # It is a value here, not the option.
    assert softq("methods", "--", "--json").stdout == ""


def test_a_part_of_an_id_is_enough_where_it_is_unique() -> None:
    assert softq("explain", VIT, "x_3").stdout == softq("explain", VIT, "softmax_3").stdout
    assert (
        "3 softmaxes match 'max_'; there are: softmax_1, softmax_2, softmax_3" in softq("explain", VIT, "max_").stderr
    )
    assert "no softmax matches 'sofmax1'; nearest: softmax_1" in softq("explain", VIT, "sofmax1").stderr


def test_convert_tells_options_once(tmp_path: Path) -> None:
    out = str(tmp_path / "out.onnx")
    told = softq("convert", VIT, out, "--bits", "3").stdout.splitlines()
    assert told[0].startswith("deferred-log bits=3 ")
    assert told[1:5] == ["  softmax", "  softmax_1", "  softmax_2", "  softmax_3"]
    assert told[5:] == [f"converted 4 of 4 softmaxes; wrote {out}"]


def test_nothing_converted_is_said_at_the_end(tmp_path: Path) -> None:
    model, out = str(tmp_path / "head.onnx"), str(tmp_path / "out.onnx")
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[N, 8] x) => (float[N, 8] y) { y = Softmax (x) }'
    onnx.save(onnx.parser.parse_model(text), model)
    result = softq("convert", model, out)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        f"nothing converted: 1 softmax found; wrote {out}, which computes what the model does"
        " (--require makes this an error)"
    )
    refused = softq("convert", model, str(tmp_path / "other.onnx"), "--require")
    assert refused.exit_code == 2
    assert "the only softmax is not to be converted; y: " in refused.stderr


def test_widths_that_are_left_out_are_one_line_a_method(tmp_path: Path) -> None:
    settings, notes = expand("log2,minifloat", "2-12", (), calibrated=False)
    assert len(settings) == 5 + 7
    assert [note.split(": ")[1] for note in notes] == ["log2 with 7 to 12 bits", "minifloat with 9 to 12 bits"]


def test_verdicts_have_colours_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "site  verdict  reason\na     convert  convert it\nb     refuse   no\n"
    plain = f"{table}\nFAILED: x\n  convert  y\nverdict     keep: z\n"
    for is_terminal, no_colour, painted in ((False, "", False), (True, "1", False), (True, "", True)):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda answer=is_terminal: answer)
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setenv("TERM", "xterm")
        printing.print_text(plain)
        told = stream.getvalue()
        assert re.sub(r"\x1b\[\d+m", "", told) == plain
        words = re.findall(r"\x1b\[3(\d)m\x1b\[1m(\w+)\x1b\[0m", told)
        assert words == ([("2", "convert"), ("1", "refuse"), ("1", "FAILED"), ("3", "keep")] if painted else [])


def test_a_lock_stays_neither_in_a_finished_folder_nor_in_the_way(tmp_path: Path) -> None:
    """Its owner removes it while it is locked: who opened it before that has to make another."""
    folder = tmp_path / "study"
    folder.mkdir()
    with open_folder(folder, force=False) as path:
        (lock,) = path.iterdir()
        with pytest.raises(UsageError, match="another softq is measuring"), open_folder(folder, force=False):
            pass
        assert lock.exists()
    assert list(folder.iterdir()) == []
    real = os.open

    def open_then_lose(path: Path, *rest: int) -> int:
        """Another process finishes between our opening and our lock."""
        descriptor = real(path, *rest)
        monkey.undo()
        os.unlink(path)
        return descriptor

    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr("softq.sweeps.folder.os.open", open_then_lose)
        with open_folder(folder, force=False) as path:
            (lock,) = path.iterdir()
            with pytest.raises(UsageError, match="another softq is measuring"), open_folder(folder, force=False):
                pass


def test_sites_with_the_same_reason_are_one_line() -> None:
    assert list(by_reason({"a": "x", "b": "y", "c": "x"})) == [("2 sites (a, c)", "x"), ("site b", "y")]
    many = {f"s{i}": "x" for i in range(32)}
    assert list(by_reason(many)) == [("32 sites (s0, s1, s2 and 29 more)", "x")]
    assert [counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
