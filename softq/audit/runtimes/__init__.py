"""The runtimes whose softmax `softq audit` looks at, one per file, each exposing one `RUNTIME`.

To add one, write `softq/audit/runtimes/my_runtime.py` with `RUNTIME = Runtime(name="my-runtime", ...)`; the name is the
file's, with hyphens. Nothing else is to be done. What `load` and `version` need is imported inside of them: they run in
a process of their own.
"""

from __future__ import annotations

from softq.audit.runtimes._contract import Options, Runtime, Softmax
from softq.registry import Folder

RUNTIMES = Folder(
    package="softq.audit.runtimes", attribute="RUNTIME", kind=Runtime, group="softq.runtimes", noun="runtime"
)

__all__ = ["RUNTIMES", "Options", "Runtime", "Softmax"]
