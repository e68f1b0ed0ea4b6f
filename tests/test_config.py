"""`--config softq.toml`: what it gives to commands, what goes before it, what is refused, and its schema."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import click
import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.cli.configuration import keys_of

ROOT = Path(__file__).resolve().parent.parent
VIT = ROOT / "models" / "mnist_vit"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.onnx and a short data.npz, as the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(VIT / "mnist_vit.onnx", "model.onnx")
    with np.load(VIT / "data.npz") as arrays:
        np.savez("data.npz", **{name: arrays[name][:128] for name in arrays.files})  # pyright: ignore
    return tmp_path


def documented() -> str:
    """The file that docs/configuration.md shows."""
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def fails(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert result.output.count("\n") == 1


def schema() -> dict[str, object]:
    return json.loads(softq("config", "--schema").output)


def test_the_documented_file_is_a_whole_run(here: Path) -> None:
    Path("softq.toml").write_text(documented())
    jsonschema.validate(tomllib.loads(documented()), schema())
    result = softq("config", "softq.toml", "--run")
    assert result.exit_code == 0, result.output
    assert re.findall(r"^softq (\w+) --config softq\.toml$", result.output, re.MULTILINE) == [
        "sweep", "plan", "convert", "check", "report"
    ]  # fmt: skip
    outcomes = [json.loads(line) for line in Path("swept/outcomes.jsonl").read_text().splitlines()]
    assert [(one["setting"]["method"], one["setting"]["options"]["bits"]) for one in outcomes] == [
        (method, bits) for method in ("deferred-log", "uniform") for bits in (2, 3, 4)
    ]
    report = json.loads(Path("swept/report.json").read_text())
    assert report["plan"] is not None
    # The same commands without the file, to the byte.
    assert softq("convert", "model.onnx", "by_hand.onnx", "--plan", "plan.json").exit_code == 0
    assert Path("by_hand.onnx").read_bytes() == Path("quantized.onnx").read_bytes()
    assert "top1-accuracy" in Path("check.md").read_text()


def test_the_run_ends_with_the_command_that_fails(here: Path) -> None:
    Path("softq.toml").write_text('model = "model.onnx"\n[inspect]\nforms = true\n[convert]\nout = "out.onnx"\n')
    result = softq("config", "softq.toml", "--run")
    assert result.exit_code == 2
    assert "inspect takes a model, or --forms without one" in result.output
    assert not Path("out.onnx").exists()


def test_the_command_line_goes_before_the_table_and_the_table_before_the_top(here: Path) -> None:
    Path("c.toml").write_text(
        'model = "model.onnx"\nout = "top.onnx"\nbits = 2\n[convert]\nbits = 3\nset = {r = 0.75}\n'
    )
    assert softq("convert", "--config", "c.toml").exit_code == 0
    assert softq("convert", "model.onnx", "own.onnx", "--config", "c.toml", "--bits", "4").exit_code == 0
    for name, bits in (("top.onnx", 3), ("own.onnx", 4)):
        assert softq("convert", "model.onnx", "x.onnx", "--bits", str(bits), "--set", "r=0.75").exit_code == 0
        assert Path(name).read_bytes() == Path("x.onnx").read_bytes()


def test_lists_tables_and_flags(here: Path) -> None:
    Path("c.toml").write_text(
        'model = "model.onnx"\ndata = "data.npz"\nmetric = ["top1-accuracy", "kl"]\njson = true\n'
        '[check]\nreference = "model.onnx"\ncandidate = "model.onnx"\nbatch = 16\n'
    )
    result = softq("check", "--config", "c.toml")
    assert [one["name"] for one in json.loads(result.output)["metrics"]] == ["top1-accuracy", "kl"]
    result = softq("check", "--config", "c.toml", "--metric", "cosine")
    assert [one["name"] for one in json.loads(result.output)["metrics"]] == ["cosine"]
    Path("c.toml").write_text(Path("c.toml").read_text() + "json = false\n")
    assert softq("check", "--config", "c.toml").output.startswith("reference  model.onnx\n")
    fails(
        softq("plan", "--config", "c.toml"), "c.toml: metric for softq plan is ['top1-accuracy', 'kl']; expected a text"
    )
    Path("s.toml").write_text(
        'model = "model.onnx"\ndata = "data.npz"\nmetric = "top1-accuracy"\n[sweep]\nout = "s"\nbits = [2, 3]\n'
        'methods = ["deferred-log", "exact"]\n[sweep.set.deferred-log]\nr = 0.5\n'
    )
    assert softq("sweep", "--config", "s.toml", "--samples", "4").exit_code == 0
    settings = [json.loads(line)["setting"] for line in Path("s/outcomes.jsonl").read_text().splitlines()]
    assert [(one["method"], one["options"]) for one in settings] == [
        ("deferred-log", {"bits": 2, "r": 0.5}), ("deferred-log", {"bits": 3, "r": 0.5}), ("exact", {})
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metrics = 3", "c.toml: unknown key 'metrics'; nearest: metric"),
        ("[convert]\nmetod = 'x'", "c.toml: [convert] unknown key 'metod'; nearest: method"),
        ("[convertt]\nbits = 3", "c.toml: unknown key 'convertt'; nearest: convert"),
        ("[convert]\nmax_length = 1", "c.toml: [convert] unknown key 'max_length'; nearest: max-length"),
        ("[convert]\nbits = '3'", "c.toml: [convert] bits is '3'; expected a whole number"),
        ("[convert]\nbits = true", "c.toml: [convert] bits is True; expected a whole number"),
        ("[convert]\nrequire = 1", "c.toml: [convert] require is 1; expected true or false"),
        ("[convert]\nplan = ['a']", "c.toml: [convert] plan is ['a']; expected a text"),
        ("[sweep]\nset = {a = {b = [1]}}", "c.toml: [sweep] set is [1]; expected a text"),
        ("threads = 'two'", "c.toml: threads is 'two'; expected a whole number"),
        ("a = ", "'c.toml' is not TOML: "),
    ],
)
def test_what_is_wrong_is_one_line_before_the_work(here: Path, text: str, message: str) -> None:
    Path("c.toml").write_text(text)
    for command in (("convert", "model.onnx", "out.onnx", "--config", "c.toml"), ("config", "c.toml")):
        fails(softq(*command), message)
    assert not Path("out.onnx").exists()
    fails(softq("config", "none.toml"), "cannot read 'none.toml'")


def test_a_file_without_tables_runs_nothing_and_says_so(here: Path) -> None:
    Path("top.toml").write_text("bits = 3\n")
    assert "no table of a command" in softq("config", "top.toml").output
    fails(softq("config", "top.toml", "--run"), "top.toml: there is no table of a command")


def test_the_schema_says_what_is_refused() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    right = {"model": "m.onnx", "threads": 2, "convert": {"bits": 3, "set": {"r": 1}, "require": True},
             "sweep": {"methods": ["a", "b"], "granularity": "head"}, "plan": {"max-drop": "1%"}}  # fmt: skip
    jsonschema.validate(right, schema())
    for wrong in ({"metrics": 3}, {"convert": {"metod": "x"}}, {"convert": {"bits": "3"}}, {"threads": 1.5},
                  {"sweep": {"granularity": "row"}}, {"convert": {"require": 1}}):  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema())


def test_every_option_of_every_command_is_in_the_schema() -> None:
    properties = schema()["properties"]
    assert isinstance(properties, dict)
    context = click.Context(main)
    seen = 0
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        if not any(parameter.name == "config" for parameter in command.params):
            continue
        for key in keys_of(command):
            assert key in properties, (name, key)
            seen += 1
    assert seen > 100
