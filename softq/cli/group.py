"""The group of all commands: every way out of the program has its exit code, and an error is one line."""

from __future__ import annotations

import atexit
import gc
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from softq.address_space import check_address_space
from softq.errors import SoftqError
from softq.visible import lines, visible

_ADDRESS_SPACE = 208 << 20
"""What NumPy, ONNX and their threads take to be loaded, with two cores; below it OpenBLAS ends the process."""

EXIT_GATE, EXIT_BAD, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143


class _Terminated(BaseException):
    """SIGTERM came: what is half done is cleared away, as after Ctrl-C."""


class Group(click.Group):
    """A command group whose errors are one line and exit code 2; `--debug` shows where they come from."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; every way out has its exit code."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        # The system takes all memory back; to look for garbage once more takes half a second behind a build.
        atexit.register(gc.freeze)
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(_Formatter())
        try:
            with _terminable(), _collecting_rarely():
                # An exit that a command asks for comes back as a number.
                code = super().main(*args, standalone_mode=False, **extra)
        except click.Abort:
            click.echo("softq: interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)
        except _Terminated:
            click.echo("softq: terminated", err=True)
            sys.exit(EXIT_TERMINATED)
        except click.ClickException as error:
            _fail(error.format_message())
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and turn what it raises into one line."""
        try:
            if "numpy" not in sys.modules:  # What is loaded has its room.
                check_address_space(_ADDRESS_SPACE, "softq")
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt, _Terminated):
            raise
        except BaseException as error:
            if ctx.params.get("debug"):
                click.echo(lines(traceback.format_exc().splitlines()), err=True, nl=False)
            if isinstance(error, SoftqError):
                _fail(str(error))
            if isinstance(error, SystemExit):
                _fail("a function of yours ended the program; a metric or data function returns or raises")
            if isinstance(error, MemoryError):
                _fail("there is not enough memory, or a limit such as that of ulimit -v leaves too little of it")
            _fail(f"{type(error).__name__}: {error}; --debug (before the command) shows where")


@contextmanager
def _collecting_rarely() -> Generator[None]:
    """Look for garbage less often: graphs are full of circles, and in a large one that is half of the time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
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


def _fail(message: str) -> NoReturn:
    click.echo(visible("softq: " + " ".join(message.split())), err=True)
    sys.exit(EXIT_BAD)
