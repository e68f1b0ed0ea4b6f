"""What a shell offers for names: those of methods, metrics, targets, packages and sites.

A list of names is that of the files in a folder, read without importing them: a shell waits while it completes. Only a
file with several entries is imported. The sites of a model are found once, and kept in the cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]] | list[str]"]


class FileName(click.types.StringParamType):
    """A text that a shell completes as the name of a file."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Let the shell offer its files."""
        return [CompletionItem(incomplete, type="file")]


def names(package: str, attribute: str) -> list[str]:
    """Return the names of the entries of an extension folder, and of those that other packages add."""
    from importlib.metadata import entry_points

    found = [point.name for point in entry_points(group=package)]
    for path in _files(package, "[!_]*.py"):
        if re.search(rf"^{attribute}S\b", path.read_text("utf-8"), re.MULTILINE):
            found += [entry.name for entry in getattr(import_module(f"{package}.{path.stem}"), f"{attribute}S")]
        else:
            found.append(path.stem.replace("_", "-"))
    return sorted(found)


def _files(package: str, glob: str) -> list[Path]:
    """Return files of a package, which is not imported."""
    from importlib.util import find_spec  # All commands import this file, and few complete anything.

    spec = find_spec(package)
    assert spec is not None, "it is one of softq's own"
    return [path for folder in spec.submodule_search_locations or () for path in Path(folder).glob(glob)]


def _complete(package: str, attribute: str) -> Complete:
    """Return what completes the last name of a list with commas; a path is a file of the user's own."""

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem[str]] | list[str]:
        if os.sep in begun:
            return [CompletionItem(begun, type="file")]
        before, comma, last = begun.rpartition(",")
        return [f"{before}{comma}{name}" for name in names(package, attribute) if name.startswith(last)]

    return complete


METHODS = _complete("softq.methods", "METHOD")
METRICS = _complete("softq.metrics", "METRIC")
TARGETS = _complete("softq.targets", "TARGET")
PACKAGES = _complete("softq.packages", "PACKAGE")


def profiles(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem[str]] | list[str]:
    """Return the names of device families; a path is a file of the user's own."""
    if os.sep in begun:
        return [CompletionItem(begun, type="file")]
    return sorted(path.stem for path in _files("softq.profiles", "*.toml") if path.stem.startswith(begun))


def sites(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the ids of the softmaxes in the model that stands on the command line."""
    # After an option that still lacks its value, click has not parsed the arguments.
    given = (word for word in (context.params.get("model"), *context.args) if isinstance(word, str))
    model = next(filter(os.path.isfile, given), None)
    names = [] if model is None else [name for name in find_sites(model) if name.startswith(begun)]
    if not os.environ.get("_SOFTQ_COMPLETE", "").startswith("bash"):
        return names  # zsh and fish quote what they insert.
    return [re.sub(r"([^\w@%+=:,./-])", r"\\\1", name) for name in names]


def find_sites(model: str) -> list[str]:
    """Return the ids of the softmaxes in a file that can be typed, from the cache if the file is unchanged."""
    from softq._version import __version__
    from softq.cache import cached
    from softq.errors import SoftqError

    def find() -> bytes:
        from softq.conversion import inspect

        return "\n".join(site.id for site in inspect(model) if site.id.isprintable()).encode()

    status = os.stat(model)
    version = ("sites", __version__, os.path.abspath(model), str(status.st_mtime_ns), str(status.st_size))
    try:
        return cached(version, find).decode().splitlines()
    except SoftqError:
        return []
