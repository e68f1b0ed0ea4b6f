"""The process that a runtime lives in: it gets tasks and scores from its standard input, and gives results.

It may be of another environment, which has NumPy and the runtime: nothing here imports more. A message is a line of
JSON and the bytes that it announces. Whatever the runtime prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import IO, Any

import numpy as np


def write_message(stream: IO[bytes], head: dict[str, Any], body: bytes = b"") -> None:
    """Write a message."""
    stream.write(json.dumps(head | {"bytes": len(body)}).encode() + b"\n" + body)
    stream.flush()


def main() -> None:
    """Answer messages until there are no more."""
    inward = sys.stdin.buffer
    outward = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    softmax = None
    while line := inward.readline():
        head = json.loads(line)
        body = inward.read(head["bytes"])
        try:
            if head["do"] == "run":
                scores = np.frombuffer(body, head["dtype"]).reshape(head["shape"]).copy()
                assert softmax is not None, "a task is opened first"
                found = np.ascontiguousarray(softmax(scores))
                answer = {"shape": list(found.shape), "dtype": found.dtype.name}, found.tobytes()
            else:
                runtime = import_module(head["module"]).RUNTIME
                if head["do"] == "open":
                    from softq.audit.task import task_of

                    softmax = None  # What it holds is given back before there is another.
                    softmax = runtime.load(body, task_of(head["task"]), head["options"])
                    answer = {}, b""
                else:
                    answer = {"version": dict(runtime.version()) | {"python": sys.version.split()[0]}}, b""
        except Exception as error:
            answer = {"error": _say(error)}, b""
        write_message(outward, *answer)


def _say(error: Exception) -> str:
    """Return an error in a line: a message of one word says little without the name of its class."""
    text = " ".join(str(error).split())
    return (text if " " in text else f"{type(error).__name__}: {text}")[:600]


if __name__ == "__main__":
    main()
