"""The group of all commands: every way out of the program has its exit code, and an error is one line."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import json
import logging
import os
import pkgutil
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from softq.address_space import check_address_space
from softq.cli.command import Command, Section
from softq.cli.loading import loading_late
from softq.errors import SoftqError
from softq.nearest import nearest
from softq.visible import lines, visible

_ADDRESS_SPACE = 208 << 20
"""What NumPy, ONNX and their threads take to be loaded, with two cores; below it OpenBLAS ends the process."""

EXIT_GATE, EXIT_BAD, EXIT_INTERRUPTED, EXIT_PIPE, EXIT_TERMINATED = 1, 2, 130, 141, 143


class _Terminated(BaseException):
    """SIGTERM came: what is half done is cleared away, as after Ctrl-C."""


class Group(click.Group):
    """A command group whose errors are one line and exit code 2; `--debug` shows where they come from.

    Its commands are the files of a package, each imported when it is asked for.
    """

    def __init__(self, name: str | None = None, *, package: str = "", **given: Any) -> None:
        super().__init__(name, **given)
        self.package = package

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; every way out has its exit code."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        _open_closed_streams()
        given = args[0] if args else extra.get("args")
        as_json = _wants_json(sys.argv[1:] if given is None else given)
        # The system takes all memory back; to look for garbage once more takes half a second behind a build.
        atexit.register(gc.freeze)
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(_Formatter())
        try:
            with _terminable(), _collecting_rarely():
                # An exit that a command asks for comes back as a number.
                code = super().main(*args, standalone_mode=False, **extra)
        except click.Abort:
            _fail("interrupted", as_json, EXIT_INTERRUPTED)
        except _Terminated:
            _fail("terminated", as_json, EXIT_TERMINATED)
        except click.UsageError as error:
            _fail(_tell_usage(error), as_json)
        except click.ClickException as error:
            _fail(error.format_message(), as_json)
        except OSError as error:  # of a help or a version
            _end_output(error)
            _fail(_tell(error), as_json)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: those of the package's files."""
        package = import_module(self.package)
        return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(package.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> Command | None:
        """Return a command, of which alone the file is imported; None if there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        found = getattr(import_module(f"{self.package}.{name}"), name, None)
        if not isinstance(found, Command):
            raise SoftqError(f"{self.package}.{name} exposes no command {name}")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; in its place a model is as good as a question."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            if name.endswith(".onnx") or os.path.isfile(name):
                raise click.ClickException(
                    f"a command is missing; to see the model's softmaxes: softq inspect {shlex.quote(name)}"
                )
            near = ", ".join(nearest(name, known))
            ctx.fail(f"no command is called {name!r}" + (f"; nearest: {near}" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, the first steps first."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        widest = max(len(name) for name, _ in listed)
        for section in Section:
            rows = [
                (name.ljust(widest), command.get_short_help_str(formatter.width))
                for name, command in listed
                if command is not None and command.section is section
            ]
            with formatter.section(section.value):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments; without any, show the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(EXIT_BAD)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and turn what it raises into one line."""
        as_json = _wants_json(ctx.args)
        try:
            if "numpy" not in sys.modules:  # What is loaded has its room.
                check_address_space(_ADDRESS_SPACE, "softq")
            with loading_late():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt, _Terminated):
            raise
        except BaseException as error:
            if ctx.params.get("debug"):
                click.echo(lines(traceback.format_exc().splitlines()), err=True, nl=False)
            _end_output(error)
            _fail(_tell(error), as_json)


@contextlib.contextmanager
def _collecting_rarely() -> Generator[None]:
    """Look for garbage less often: graphs are full of circles, and in a large one that is half of the time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _terminable() -> Generator[None]:
    """Let SIGTERM end what is done as an error does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # A second one ends what does not return to Python.
    raise _Terminated


class _Formatter(logging.Formatter):
    """What libraries warn of, and what a cluster's scheduler says."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _open_closed_streams() -> None:
    """Open what was closed before the start (`softq methods >&-`) on nothing, so that no file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_WRONLY if number else os.O_RDONLY
            with contextlib.suppress(OSError):
                descriptor = os.open(os.devnull, mode)
                if descriptor != number:
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def _end_output(error: BaseException) -> None:
    """End the program where an error says that its output cannot be written; return of any other error."""
    echo = click.echo.__code__
    if not isinstance(error, OSError) or all(at.f_code is not echo for at, _ in traceback.walk_tb(error.__traceback__)):
        return
    # What is left in the buffers goes nowhere, without a second error at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    if error.errno == errno.EPIPE:
        sys.exit(EXIT_PIPE)
    _fail(f"cannot write to standard output: {error.strerror or error}", False)


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _tell(error: BaseException) -> str:
    if isinstance(error, SoftqError):
        return str(error)
    if isinstance(error, SystemExit):
        return "a function of yours ended the program; a metric or data function returns or raises"
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_folder_gone():
        return "the working folder does not exist any more, and so no relative path; change to another folder"
    if isinstance(error, MemoryError):
        return "there is not enough memory, or a limit such as that of ulimit -v leaves too little of it"
    return f"{type(error).__name__}: {error}; --debug (before the command) shows where"


def _tell_usage(error: click.UsageError) -> str:
    """Return what is wrong with the arguments, and the help that says what would be right."""
    told = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        near = ", ".join(error.possibilities or ())
        told = f"no such option {error.option_name!r}" + (f"; nearest: {near}" if near else "")
    return f"{told[:1].lower()}{told[1:]}; see {'softq' if error.ctx is None else error.ctx.command_path} --help"


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON: it may be one that cannot be parsed."""
    given = list(arguments)
    return "--json" in given[: given.index("--")] if "--" in given else "--json" in given


def _fail(message: str, as_json: bool, code: int = EXIT_BAD) -> NoReturn:
    """End with one line on stderr; who asked for JSON gets the error on stdout as that, too."""
    told = visible(" ".join(message.split()))
    # Where nothing can be written the exit code is all that tells.
    with contextlib.suppress(OSError):
        click.echo(f"softq: {told}", err=True)
    if as_json:
        click.echo(json.dumps({"schema": 1, "error": told}, indent=2))
    sys.exit(code)
