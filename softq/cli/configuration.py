"""`--config FILE`: what a command line leaves out is taken from a TOML file.

The keys are the options' own names, and those of the arguments; nothing lists them a second time. At the top stand
those that several commands share, in a table of a command's name those of that command, which go before. The command
line goes before both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

import click

from softq.cli.spelling import OldOption
from softq.errors import InputError, UsageError
from softq.files import read_toml
from softq.nearest import unknown

Table = Mapping[str, object]

_TRUSTED = "softq.trusted"

_JOINED = ("LIST", "NAMES", "RANGE")
"""Words of the help for texts that are lists with commas: a list serves, too."""


def takes_config(command: click.Command) -> click.Command:
    """Add `--config` and `--trust` to a command."""
    command.params += [
        click.Option(
            ["--config"], metavar="FILE", is_eager=True, expose_value=False, callback=_take,
            help="Take what is not given here from a TOML file (docs/configuration.md).",
        ),
        click.Option(
            ["--trust"], is_flag=True, expose_value=False, callback=_trust, help="Run code that --config names, too."
        ),
    ]  # fmt: skip
    return command


def _trust(context: click.Context, parameter: click.Parameter, trusted: bool) -> None:
    context.meta[_TRUSTED] = trusted or context.meta.get(_TRUSTED, False)


def _take(context: click.Context, parameter: click.Parameter, file: str | None) -> None:
    if file is None or context.resilient_parsing:
        return
    commands = commands_of(context)
    name = next(name for name, command in commands.items() if command is context.command)
    values = context.default_map = values_of(name, read(file, commands), file, commands)
    from softq.own_files import distrust

    texts = (item for value in values.values() for item in (value if isinstance(value, list) else [value]))
    context.call_on_close(distrust(file, map(str, texts), lambda: context.meta[_TRUSTED]))


def commands_of(context: click.Context) -> dict[str, click.Command]:
    """Return the commands that take `--config`, by name."""
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    found = {name: root.command.get_command(root, name) for name in root.command.list_commands(root)}
    return {name: one for name, one in found.items() if one is not None and any(p.name == "config" for p in one.params)}


def keys_of(command: click.Command) -> dict[str, click.Parameter]:
    """Return what a command can be given, by the name that it has in a file."""
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        names = [name for name in parameter.opts if name.startswith("--")] or [str(parameter.name)]
        key = max(names, key=len).lstrip("-").replace("_", "-")
        if key not in ("config", "help", "trust"):
            found[key] = parameter
    return found


def read(file: str | os.PathLike[str], commands: Mapping[str, click.Command]) -> Table:
    """Return what a file says, after looking at each key and each value.

    Raises:
        InputError: it cannot be read, or is no TOML.
        UsageError: a key is unknown: the message names the nearest; or a value is of another type than its option's.
    """
    try:
        said: Table = read_toml(file)
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(file)!r}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{os.fspath(file)!r} is not TOML: {error}") from error
    shared = {key for command in commands.values() for key in keys_of(command)}
    for key, value in said.items():
        if is_section(key, value, commands):
            keys = keys_of(commands[key])
            for inner, given in _table(value).items():
                if inner not in keys:
                    raise UsageError(f"{os.fspath(file)}: [{key}] {_unknown(inner, keys)}")
                _plain(keys[inner], f"{os.fspath(file)}: [{key}] {inner}", given)
        elif key not in shared:
            raise UsageError(f"{os.fspath(file)}: {_unknown(key, {*shared, *commands})}")
        else:
            _check_shared(key, value, os.fspath(file), commands)
    return said


def _check_shared(key: str, value: object, file: str, commands: Mapping[str, click.Command]) -> None:
    """Refuse a value that no command takes; one that only some take is for those."""
    errors: list[UsageError] = []
    takers = [keys[key] for keys in map(keys_of, commands.values()) if key in keys]
    for parameter in takers:
        try:
            _plain(parameter, f"{file}: {key}", value)
        except UsageError as error:
            errors.append(error)
    if len(errors) == len(takers):
        raise errors[0]


def values_of(name: str, said: Table, file: str, commands: Mapping[str, click.Command]) -> dict[str, object]:
    """Return what a file says to a command, by the names of its parameters.

    Raises:
        UsageError: a value at the top is of another type than the command's option.
    """
    own = said.get(name)
    both = {**{key: v for key, v in said.items() if not is_section(key, v, commands)}, **_table(own)}
    keys = keys_of(commands[name])
    found: dict[str, object] = {}
    for key, value in both.items():
        if key in keys:
            plain = _plain(keys[key], f"{file}: {key} for softq {name}", value)
            if plain is not None:
                found[str(keys[key].name)] = plain
    return found


def is_section(key: str, value: object, commands: Mapping[str, click.Command]) -> bool:
    """Say whether what stands at the top of a file is the table of a command."""
    return key in commands and isinstance(value, dict)


def _table(value: object) -> Table:
    return cast("Table", value) if isinstance(value, dict) else {}


def _unknown(key: str, known: Mapping[str, object] | set[str]) -> str:
    return unknown("key", key, sorted(known), "softq config --schema")


def _plain(parameter: click.Parameter, where: str, value: object) -> object:
    """Return a value as click takes it from a command line; None for a flag that stays away.

    Raises:
        UsageError: it is of another type than the parameter's.
    """
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is {value!r}; expected true or false")
        # A flag such as --no-reset has the value False.
        return parameter.flag_value is not False if value else None
    if parameter.multiple or parameter.nargs == -1:
        if isinstance(value, dict):
            return [f"{key}={text}" for key, text in _pairs(cast("Table", value), where)]
        several = cast("list[object]", value) if isinstance(value, list) else [value]
        return [_scalar(parameter, where, one) for one in several]
    if isinstance(value, list) and parameter.metavar in _JOINED:
        return ",".join(_text(where, one) for one in cast("list[object]", value))
    return _scalar(parameter, where, value)


def _pairs(table: Table, where: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", text) for inner, text in _pairs(cast("Table", value), where))
        else:
            yield key, _text(where, value)


def _scalar(parameter: click.Parameter, where: str, value: object) -> object:
    kind = parameter.type
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(kind, click.types.IntParamType):
        if number and isinstance(value, int):
            return value
        raise UsageError(f"{where} is {value!r}; expected a whole number")
    if isinstance(kind, click.types.FloatParamType):
        if number:
            return value
        raise UsageError(f"{where} is {value!r}; expected a number")
    return _text(where, value)


def _text(where: str, value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise UsageError(f"{where} is {value!r}; expected a text")


def schema(commands: Mapping[str, click.Command]) -> dict[str, object]:
    """Return the JSON schema of a file."""
    shared: dict[str, list[dict[str, Any]]] = {}
    sections: dict[str, object] = {}
    for name, command in commands.items():
        keys = {key: _describe(parameter) for key, parameter in keys_of(command).items()}
        summary = (command.help or "").split("\n")[0]
        sections[name] = {"type": "object", "description": summary, "properties": keys, "additionalProperties": False}
        for key, one in keys.items():
            said = shared.setdefault(key, [])
            if one not in said:
                said.append(one)
    top: dict[str, object] = {key: said[0] if len(said) == 1 else {"anyOf": said} for key, said in shared.items()}
    for name, section in sections.items():
        top[name] = {"anyOf": [section, top[name]]} if name in top else section
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "softq.toml: options of softq's commands, shared ones at the top, others in a table for each command",
        "type": "object",
        "properties": top,
        "additionalProperties": False,
    }


def _describe(parameter: click.Parameter) -> dict[str, Any]:
    told: dict[str, Any] = {"deprecated": True} if isinstance(parameter, OldOption) else {}
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.help:
        told["description"] = parameter.help
    text: dict[str, Any] = {"type": ["string", "number"]}
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return told | {"type": "boolean"}
    if parameter.multiple or parameter.nargs == -1:
        return told | {"anyOf": [text, {"type": "array", "items": text}, {"type": "object"}]}
    if isinstance(kind, click.types.IntParamType):
        return told | {"type": "integer"}
    if isinstance(kind, click.types.FloatParamType):
        return told | {"type": "number"}
    if isinstance(kind, click.Choice):
        return told | {"enum": list(kind.choices)}
    if parameter.metavar in _JOINED:
        return told | {"anyOf": [text, {"type": "array", "items": text}]}
    return told | text
