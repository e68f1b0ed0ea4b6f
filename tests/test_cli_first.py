"""What a newcomer meets first: the help, wrong names, and errors for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softq.cli import commands, main
from softq.cli.command import Section
from softq.nearest import nearest, unknown

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
        (("check", "--dta", "x"), "no such option '--dta'. Did you mean '--data'? See softq check --help"),
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
