"""A runtime in a process of its own, which may end or hang without taking the audit with it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import softq
from softq.audit.runtimes import Runtime
from softq.audit.task import Array, Task
from softq.audit.worker import write_message
from softq.errors import InputError, SoftqError
from softq.own_files import check_trusted

_PIECE = 1 << 20


class FailureError(SoftqError):
    """The runtime gave no result.

    Attributes:
        kind: `refused` if it said why, `ended` if its process ended, `hung` if it did not answer in time, `malformed`
            if the result has another shape or type than was asked for.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class RuntimeProcess:
    """Runs tasks of one runtime; a process that has ended is started again for the next task.

    Args:
        runtime: What computes.
        options: The runtime's.
        python: The interpreter of the environment that has it; None for this one.
        timeout: Seconds after which a call counts as hung.
    """

    def __init__(self, runtime: Runtime, options: Mapping[str, str], python: str | None, timeout: float) -> None:
        self._runtime, self._options, self._timeout = runtime, dict(options), timeout
        for code in filter(None, (python, *(value for value in options.values() if ":" in value))):
            check_trusted(code)
        self._python = python or sys.executable
        self._process: subprocess.Popen[bytes] | None = None
        self._task: Task | None = None

    def __enter__(self) -> RuntimeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process, self._task = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def read_version(self) -> Mapping[str, str]:
        """Return the names and versions of what computes.

        Raises:
            InputError: the environment has no such runtime.
        """
        try:
            return self._ask({"do": "version"})[0]["version"]
        except FailureError as error:
            raise InputError(f"cannot use runtime {self._runtime.name} of {self._python}: {error}") from error

    def run(self, task: Task, scores: Array) -> Array:
        """Return the result of a task.

        Raises:
            FailureError: there is none.
        """
        if task != self._task:
            self._task = None
            self._ask({"do": "open", "task": task.to_plain()}, self._runtime.make(task, self._options))
            self._task = task
        given = np.ascontiguousarray(scores, np.dtype(task.dtype))
        head, body = self._ask({"do": "run", "shape": list(given.shape), "dtype": task.dtype}, given.tobytes())
        if tuple(head["shape"]) != task.shape or head["dtype"] != task.result_dtype:
            wanted = f"{task.result_dtype} {list(task.shape)}"
            raise FailureError("malformed", f"a result of {head['dtype']} {head['shape']}; expected {wanted}")
        return np.frombuffer(body, head["dtype"]).reshape(task.shape)

    def _ask(self, head: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        head |= {"module": self._runtime.load.__module__, "options": self._options}
        reader = _Reader(process.stdout.fileno(), time.monotonic() + self._timeout)
        try:
            write_message(process.stdin, head, body)
            answer = json.loads(reader.read_line())
            found = reader.read(answer["bytes"])
        except (BrokenPipeError, EOFError) as error:
            code = process.wait()
            self.close()
            raise FailureError("ended", f"its process ended {_how(code)}") from error
        except TimeoutError as error:
            self.close()
            raise FailureError("hung", f"no answer within {self._timeout:g} s") from error
        if "error" in answer:
            raise FailureError("refused", answer["error"])
        return answer, found

    def _start(self) -> subprocess.Popen[bytes]:
        home = str(Path(softq.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
        try:
            return subprocess.Popen(
                [self._python, "-m", "softq.audit.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},  # no module of the working folder
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"cannot start '{self._python}': {error.strerror or error}") from error


class _Reader:
    """Reads what a process writes until a moment."""

    def __init__(self, descriptor: int, end: float) -> None:
        self._descriptor, self._end, self._held = descriptor, end, bytearray()

    def read_line(self) -> bytes:
        while b"\n" not in self._held:
            self._wait()
        line, _, rest = bytes(self._held).partition(b"\n")
        self._held = bytearray(rest)
        return line

    def read(self, count: int) -> bytes:
        while len(self._held) < count:
            self._wait()
        return bytes(self._held[:count])

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            if not selector.select(max(0.0, self._end - time.monotonic())):
                raise TimeoutError
        piece = os.read(self._descriptor, _PIECE)
        if not piece:
            raise EOFError
        self._held += piece


def _how(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
