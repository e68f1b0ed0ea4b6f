"""The command `softq completion`."""

from __future__ import annotations

import click

from softq.cli.command import Section, command
from softq.cli.printing import print_plain

SHELLS = ("bash", "zsh", "fish")


@command(Section.LISTS)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and names.

    \b
    bash  eval "$(softq completion bash)", in ~/.bashrc
    zsh   eval "$(softq completion zsh)", in ~/.zshrc
    fish  softq completion fish > ~/.config/fish/completions/softq.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows them"
    script = made(context.find_root().command, {}, "softq", "_SOFTQ_COMPLETE").source()
    # Of a list such as exact,uniform click's script for fish takes the first name alone; that for bash takes away the
    # backslashes by which names out of a model are quoted, and expands stars.
    for old, new in (
        ('string split "," ', 'string split --max 1 "," '), ("read type value", "read -r type value"),
        ("COMPREPLY+=($value)", 'COMPREPLY+=("$value")'), ("local response\n", "local response -\n    set -f\n"),
    ):  # fmt: skip
        script = script.replace(old, new)
    print_plain(script)
