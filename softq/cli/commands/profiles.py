"""The command `softq profiles`."""

from __future__ import annotations

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.printing import print_json, print_text


@command(Section.LISTS)
@click.argument("profile", required=False, shell_complete=completing.profiles)
@options.JSON
def profiles(profile: str | None, as_json: bool) -> None:
    """List the device families that --for knows, or the rules of one.

    PROFILE is a name, or a .toml file of your own (docs/profiles.md).
    """
    from softq.profiles import load_profile, profile_names
    from softq.profiles.text import SCHEMA, describe_profile, profile_to_text, profiles_to_text

    if profile is not None:
        chosen = load_profile(profile)
        if as_json:
            print_json({"schema": SCHEMA, **describe_profile(chosen)})
        else:
            print_text(profile_to_text(chosen))
        return
    found = [load_profile(name) for name in profile_names()]
    if as_json:
        print_json({"schema": SCHEMA, "profiles": [{"name": one.name, "summary": one.summary} for one in found]})
    else:
        print_text(profiles_to_text(found))
