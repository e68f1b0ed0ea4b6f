"""One name for one thing in all commands, and the names that options had."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.cli.spelling import OldOption

LONG = Path("models/mnist_vit/mnist_vit.onnx").resolve()

SEVERAL_MEANINGS = {
    "--bits": "one method has a width, a sweep a range of them",
    "--set": "a sweep has several methods",
    "--cost": "a plan saves one cost, a sweep tells all",
    "--out": "a file or a folder",
    "--method": "one that a model gets, or files of those that it has",
}


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def shown_options() -> dict[str, dict[tuple[str, str | None], list[str]]]:
    """Return for each name that is shown the types and words it has, and the commands."""
    context = click.Context(main)
    found: dict[str, dict[tuple[str, str | None], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                for spelled in option.opts:
                    found[spelled][option.type.name.removesuffix(" range"), option.metavar].append(name)
    return found


def test_a_name_is_one_thing_in_all_commands() -> None:
    several = {
        name: dict(kinds) for name, kinds in shown_options().items() if len(kinds) > 1 and name not in SEVERAL_MEANINGS
    }
    assert several == {}


@pytest.mark.parametrize("command", ["rtl", "hls", "vectors"])
def test_the_type_of_scores_has_one_name(command: str, tmp_path: Path) -> None:
    given = ["deferred-log", "--set", "step=0.06", "--bits", "4", "--length", "8", "--rows", "1", "--json"]
    new = softq(command, *given, "--dtype", "int8", "--out", str(tmp_path / "new"))
    old = softq(command, *given, "--scores", "int8", "--out", str(tmp_path / "old"))
    assert new.exit_code == old.exit_code == 0, new.output + old.output
    assert json.loads(new.stdout) == json.loads(old.stdout)
    assert old.stderr == "softq: --scores is deprecated, and goes with a later release; write --dtype\n"
    assert new.stderr == ""
    both = softq(command, *given, "--scores", "int8", "--dtype", "int8", "--out", str(tmp_path / "both"))
    assert both.exit_code == 2
    assert "--dtype and --scores are the same" in both.stderr


def test_old_names_are_not_shown() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        old = [option.opts[0] for option in command.params if isinstance(option, OldOption)]
        text = softq(name, "--help").stdout
        assert not [spelled for spelled in old if f"{spelled} " in text]


def test_a_file_of_options_may_have_the_old_name(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[vectors]\nname = "exact"\nlength = [4]\nscores = "float32"\n')
    done = softq("vectors", "--config", str(file), "--out", str(tmp_path / "x"))
    assert done.exit_code == 0, done.output
    assert "--scores is deprecated" in done.stderr
    schema = json.loads(softq("config", "--schema").stdout)["properties"]["vectors"]["properties"]
    assert schema["scores"]["deprecated"]
    assert "deprecated" not in schema["dtype"]


def test_the_place_of_a_result_is_the_last_argument_or_out(tmp_path: Path) -> None:
    assert softq("convert", str(LONG), str(tmp_path / "a.onnx")).exit_code == 0
    assert softq("convert", str(LONG), "--out", str(tmp_path / "b.onnx")).exit_code == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert softq("data", str(LONG), "--random", "--count", "2", "--out", str(tmp_path / "d.npz")).exit_code == 0
    both = softq("convert", str(LONG), str(tmp_path / "c.onnx"), "--out", str(tmp_path / "d.onnx"))
    assert both.exit_code == 2
    assert "one of them is enough" in both.stderr
    for command in ("convert", "data", "build", "vectors"):
        neither = softq(command, str(LONG), *(["--target", "cpu"] if command == "build" else []))
        assert neither.exit_code == 2
        assert "missing argument 'OUT" in neither.stderr
    file = tmp_path / "c.toml"
    file.write_text(f'[convert]\nmodel = "{LONG}"\nout = "{tmp_path / "e.onnx"}"\n')
    assert softq("convert", "--config", str(file)).exit_code == 0
    assert (tmp_path / "e.onnx").exists()
    assert softq("convert", str(LONG), str(tmp_path / "f.onnx"), "--config", str(file)).exit_code == 0
    assert (tmp_path / "f.onnx").exists()
