"""The command line as a user meets it: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.forms import FORMS
from softq.modelfile import load
from tests.attention import Feed, attention, inputs


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.onnx, data.npz and calibration.npz, as the current one."""
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(), "model.onnx")
    save_arrays("data.npz", inputs(batch=8))
    save_arrays("calibration.npz", inputs(batch=6, keys=9))
    return tmp_path


def save_arrays(path: str, arrays: Feed) -> None:
    np.savez(path, allow_pickle=False, **arrays)


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def fails(result: Result, message: str) -> None:
    """Assert exit code 2 and one line on stderr that holds the message."""
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("softq: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_inspect_shows_the_site(here: Path) -> None:
    result = softq("inspect", "model.onnx")
    assert result.exit_code == 0
    assert "attention" in result.stdout
    assert "1 softmax: 1 to convert" in result.stdout
    found = json.loads(softq("inspect", "model.onnx", "--json").stdout)
    assert found["schema"] == 1
    assert found["sites"][0]["verdict"]["action"] == "convert"


def test_convert_writes_a_model_that_check_accepts(here: Path) -> None:
    assert softq("convert", "model.onnx", "out.onnx", "--bits", "4").exit_code == 0
    onnx.checker.check_model("out.onnx", full_check=True)
    result = softq(
        "check", "model.onnx", "out.onnx", "--data", "data.npz", "--metric", "relative-error", "--limit", "0.5"
    )
    assert result.exit_code == 0, result.output
    assert "passed" in result.stdout


def test_a_broken_gate_is_exit_code_1(here: Path) -> None:
    softq("convert", "model.onnx", "out.onnx", "--bits", "2")
    result = softq(
        "check", "model.onnx", "out.onnx", "--data", "data.npz", "--metric", "relative-error", "--limit", "1e-6"
    )
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_a_gate_as_junit(here: Path) -> None:
    assert softq("convert", "model.onnx", "out.onnx").exit_code == 0
    result = softq(
        "check", "model.onnx", "out.onnx", "--data", "data.npz", "--junit", "gate.xml", "--metric", "max-error",
        "--limit", "0",
    )  # fmt: skip
    assert result.exit_code == 1
    (case,) = ElementTree.parse("gate.xml").getroot().findall("./testsuite/testcase")
    failure = case.find("failure")
    assert failure is not None
    assert "at most 0 is asked for" in str(failure.get("message"))


def test_a_plan_reproduces_the_model_byte_for_byte(here: Path) -> None:
    first = softq(
        "convert", "model.onnx", "a.onnx", "--bits", "2", "--calibration", "calibration.npz", "--save-plan", "p.json"
    )
    assert first.exit_code == 0, first.output
    assert json.loads(Path("p.json").read_text())["sites"][0]["fitted"]["r"] > 0
    assert softq("convert", "model.onnx", "b.onnx", "--plan", "p.json").exit_code == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_the_same_input_gives_the_same_bytes_under_every_hash_seed(here: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "softq",
        "convert",
        "model.onnx",
        "--bits",
        "2",
        "--set",
        "r=head",
        "--calibration",
        "calibration.npz",
    ]
    for seed in ("0", "1", "77"):
        environment = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        subprocess.run([*command[:5], f"{seed}.onnx", *command[5:]], check=True, env=environment, capture_output=True)
    assert Path("0.onnx").read_bytes() == Path("1.onnx").read_bytes() == Path("77.onnx").read_bytes()


def test_dry_run_writes_nothing(here: Path) -> None:
    before = sorted(here.iterdir())
    result = softq("convert", "model.onnx", "out.onnx", "--dry-run", "--save-plan", "p.json")
    assert result.exit_code == 0
    assert "nothing written" in result.stdout
    assert sorted(here.iterdir()) == before


def test_inline_writes_no_function(here: Path) -> None:
    assert softq("convert", "model.onnx", "out.onnx", "--inline").exit_code == 0
    model = onnx.load("out.onnx")
    assert not model.functions
    assert {o.domain for o in model.opset_import} == {""}
    softq("convert", "model.onnx", "functions.onnx")
    one, other = (
        softq("check", "model.onnx", m, "--data", "data.npz", "--json").stdout for m in ("out.onnx", "functions.onnx")
    )
    assert json.loads(one)["metrics"] == json.loads(other)["metrics"]


def test_provenance_is_in_the_model(here: Path) -> None:
    softq("convert", "model.onnx", "out.onnx", "--save-plan", "p.json")
    properties = {p.key: p.value for p in onnx.load("out.onnx").metadata_props}
    assert json.loads(properties["softq.plan"]) == json.loads(Path("p.json").read_text())
    assert properties["softq.version"]


def test_a_model_without_softmax(here: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[N] x) => (float[N] y) { y = Exp(x) }'
    onnx.save(onnx.parser.parse_model(text), "none.onnx")
    assert "no softmax" in softq("inspect", "none.onnx").stdout
    result = softq("convert", "none.onnx", "out.onnx")
    assert result.exit_code == 0
    assert "the model has no softmax" in result.stderr
    assert ir.to_proto(load("out.onnx")) == ir.to_proto(load("none.onnx"))
    fails(softq("convert", "none.onnx", "other.onnx", "--require"), "the model has no softmax")
    assert not Path("other.onnx").exists()


def test_methods_and_targets_are_listed_and_described() -> None:
    listed = softq("methods").stdout
    for name in ("exact", "uniform", "log2", "deferred-log"):
        assert name in listed
        shown = softq("methods", name)
        assert shown.exit_code == 0, shown.output
        assert "program with the default options" in shown.stdout
    facts = json.loads(softq("methods", "deferred-log", "--json").stdout)["methods"][0]
    assert facts["largest_length"] == 262143
    assert "onnx" in softq("targets").stdout
    assert "functions" in softq("targets", "onnx").stdout
    fails(softq("methods", "nope"), "unknown method 'nope'; softq methods lists all ")
    fails(softq("targets", "nope"), "unknown target 'nope'; softq targets lists all ")


def test_forms_are_listed_with_their_verdicts() -> None:
    listed = softq("inspect", "--forms").stdout.splitlines()
    for form in FORMS.entries().values():
        assert any(line.split()[:2] == [form.name, form.verdict] and line.endswith(form.summary) for line in listed)


def test_help_imports_neither_onnx_nor_rich() -> None:
    code = "import sys; from softq.cli import main; main(['--help'], standalone_mode=False);"
    code += "heavy = ('onnx', 'onnx_ir', 'rich', 'onnxruntime', 'numpy');"
    code += "sys.exit(', '.join(m for m in heavy if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_build_loads_sympy_when_it_is_needed(tmp_path: Path) -> None:
    """It takes a quarter of a second, and calculates with named dimensions, which a plain model does not ask for."""
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[M] x) => (float[M] y) { y = Relu (x) }'
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    code = """
import gc, sys
sys.modules["torch"] = None  # TVM imports PyTorch where it is installed, and PyTorch imports sympy.
from softq.cli import main
main(["build", "m.onnx", "built", "--target", "cpu"], standalone_mode=False)
assert gc.isenabled() and not any(type(finder).__module__.startswith("softq") for finder in sys.meta_path)
assert "tvm" in sys.modules and "sympy.core" not in sys.modules
import onnx_ir
assert str(onnx_ir.SymbolicDim("M") + onnx_ir.SymbolicDim("M")) == str(onnx_ir.SymbolicDim("2*M"))
assert "sympy.core" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Bad input: one line, exit code 2, and nothing lost.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "absent.onnx"), "absent.onnx"),
        (("inspect", "data.npz"), "data.npz"),
        (("convert", "truncated.onnx", "out.onnx"), "truncated.onnx"),
        (("convert", "model.onnx", "model.onnx"), "inputs are never written"),
        (("convert", "model.onnx", "absent/out.onnx"), "does not exist"),
        (("convert", "model.onnx", "out.onnx", "--bits", "9"), "bits is 9; allowed is a whole number from 2 to 8"),
        (("convert", "model.onnx", "out.onnx", "--bits", "1"), "bits is 1; allowed is"),
        (("convert", "model.onnx", "out.onnx", "--bits", "four"), "not a valid integer"),
        (("convert", "model.onnx", "out.onnx", "--method", "nope"), "unknown method 'nope'; softq methods lists all "),
        (("convert", "model.onnx", "out.onnx", "--set", "nope=1"), "has no option 'nope'"),
        (("convert", "model.onnx", "out.onnx", "--set", "r"), "expected KEY=VALUE"),
        (("convert", "model.onnx", "out.onnx", "--set", "r=nan"), "r is 'nan'; allowed is"),
        (("convert", "model.onnx", "out.onnx", "--set", "r=site"), "give --calibration DATA"),
        (("convert", "model.onnx", "out.onnx", "--sites", "nothing*"), "nothing*"),
        (("convert", "model.onnx", "out.onnx", "--max-length", "0"), "max_length is 0"),
        (("convert", "model.onnx", "out.onnx", "--max-length", "1000000"), "1000000"),
        (("convert", "model.onnx", "out.onnx", "--calibration", "nan.npz"), "NaN"),
        (("convert", "model.onnx", "out.onnx", "--calibration", "absent.npz"), "absent.npz"),
        (("convert", "model.onnx", "out.onnx", "--plan", "other.json"), "made for another graph"),
        (("convert", "model.onnx", "out.onnx", "--plan", "other.json", "--bits", "4"), "a plan settles bits"),
        (("convert", "model.onnx", "out.onnx", "--plan", "absent.json"), "No such file"),
        (("check", "model.onnx", "model.onnx", "--data", "data.npz", "--metric", "nope"), "unknown metric 'nope'"),
        (("check", "model.onnx", "model.onnx", "--data", "missing.npz"), "missing.npz"),
        (("check", "model.onnx", "model.onnx", "--data", "short.npz"), "v"),
        (("check", "model.onnx", "model.onnx"), "--data"),
        (("nonsense",), "nonsense"),
    ],
)
def test_bad_input(here: Path, arguments: tuple[str, ...], message: str) -> None:
    Path("truncated.onnx").write_bytes(Path("model.onnx").read_bytes()[:-40])
    damaged = inputs(batch=2)
    damaged["scores"][0, 0, 0, 0] = np.nan
    save_arrays("nan.npz", damaged)
    np.savez("short.npz", scores=inputs()["scores"])
    onnx.save(attention(keys="9"), "other.onnx")
    assert softq("convert", "other.onnx", "elsewhere.onnx", "--save-plan", "other.json").exit_code == 0
    before = {path: path.read_bytes() for path in here.iterdir()}
    fails(softq(*arguments), message)
    assert {path: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "model.onnx", "out.onnx", "--save-plan", "model.onnx"),
        ("convert", "model.onnx", "out.onnx", "--save-plan", "out.onnx"),
        ("convert", "model.onnx", "out.onnx", "--calibration", "data.npz", "--save-plan", "data.npz"),
        ("convert", "model.onnx", "data.npz", "--calibration", "data.npz"),
        ("convert", "model.onnx", "out.onnx", "--calibration", ".", "--save-plan", "calibration.npz"),
        ("convert", "model.onnx", "plan.json", "--plan", "plan.json"),
        ("convert", "external.onnx", "out.onnx", "--save-plan", "weights.bin"),
        ("check", "model.onnx", "model.onnx", "--data", "data.npz", "--markdown", "model.onnx"),
        ("check", "model.onnx", "model.onnx", "--data", "data.npz", "--markdown", "data.npz"),
    ],
)
def test_no_output_is_an_input(here: Path, arguments: tuple[str, ...]) -> None:
    assert softq("convert", "model.onnx", "elsewhere.onnx", "--save-plan", "plan.json").exit_code == 0
    model = attention()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(4096, np.float32), "w"))
    onnx.save(model, "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = {path: path.read_bytes() for path in here.iterdir()}
    fails(softq(*arguments), "inputs are never written")
    assert {path: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize("option", ["--save-plan", "--markdown"])
def test_places_are_checked_before_the_work(here: Path, option: str) -> None:
    command = ("convert", "model.onnx", "out.onnx") if option == "--save-plan" else (
        "check", "model.onnx", "model.onnx", "--data", "data.npz")  # fmt: skip
    fails(softq(*command, option, "absent/file"), "does not exist")
    assert not Path("out.onnx").exists()


def test_a_plan_keeps_the_length_that_was_proved(here: Path) -> None:
    softq("convert", "model.onnx", "a.onnx", "--max-length", "200000", "--save-plan", "p.json")
    assert softq("convert", "model.onnx", "b.onnx", "--plan", "p.json").exit_code == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    fails(softq("convert", "model.onnx", "c.onnx", "--plan", "p.json", "--max-length", "5"), "made for 200000")


def test_settings_that_contradict_each_other(here: Path) -> None:
    fails(softq("convert", "model.onnx", "out.onnx", "--bits", "4", "--set", "bits=3"), "contradict")


def test_every_way_out_has_its_exit_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: BaseException) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise error

        return fail

    for error, code, text in (
        (KeyboardInterrupt(), 130, "interrupted"),
        (RecursionError("too deep"), 2, "RecursionError: too deep"),
        (SystemExit(0), 2, "a function of yours ended the program"),
    ):
        monkeypatch.setattr("softq.conversion.inspect", raising(error))
        result = softq("inspect", "model.onnx")
        assert result.exit_code == code
        assert text in result.stderr


def test_debug_shows_the_traceback(here: Path) -> None:
    result = softq("--debug", "inspect", "absent.onnx")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
