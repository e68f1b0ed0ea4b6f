"""Reads files as `tests.fuzz.readers` does, and tells of code that is loaded: `python -m tests.code_watch READER...`.

Every text in a file is replaced in turn by names of code that lies in the working folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from softq.errors import SoftqError
from tests.fuzz.readers import READERS

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = tuple(
    str(Path(place).resolve())
    for place in {
        *sysconfig.get_paths().values(),
        sys.prefix,
        sys.base_prefix,
        str(ROOT / "softq"),
        str(ROOT / "tests"),
    }
)
CODE = (".py", ".pyc", ".pth")
NAMES = ("evil.py", "./evil.py", "evil", "evil:data", "evil.py:data")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.spawn")


class Watch:
    """An audit hook that keeps what loads code from elsewhere, or starts a process.

    Attributes:
        reader: Name of the reader at work, without which nothing is kept.
        seen: What was kept, a line each.
    """

    def __init__(self) -> None:
        self.reader = ""
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.reader and (told := self._judge(event, arguments)):
            self.seen.append(f"{self.reader}: {event}: {told}")

    def _judge(self, event: str, arguments: tuple[object, ...]) -> str:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            return self._elsewhere(str(arguments[0])) if str(arguments[0]).endswith(CODE) else ""
        if event in ("exec", "compile"):
            code = arguments[0] if event == "exec" else arguments[1]
            return self._elsewhere(str(getattr(code, "co_filename", code)))
        if event == "ctypes.dlopen":
            # An artifact is code, whose hashes were right.
            return self._elsewhere(str(arguments[0])) if arguments[0] and self.reader != "weights" else ""
        if event == "subprocess.Popen":
            command = cast("list[object]", arguments[1])
            return "" if command[:4] == [sys.executable, "-P", "-m", "softq.address_space"] else str(command)
        return str(arguments) if event in STARTS or event == "pickle.find_class" else ""

    @staticmethod
    def _elsewhere(name: str) -> str:
        """Return a name of code that belongs to no installed package; that of dataclasses begins with <."""
        if os.sep not in name and ".so" in name:
            return ""  # the system's own
        place = str(Path(name).resolve())
        return "" if name.startswith("<") or any(place.startswith(f"{folder}/") for folder in INSTALLED) else name


def name_code(data: bytes) -> Iterator[bytes]:
    """Yield a file, and the file with each of its texts replaced by names of code."""
    yield data
    lines = data.splitlines(keepends=True) if data.count(b"\n{") else [data]
    try:
        values = [json.loads(line) for line in lines]
    except ValueError:
        text = data.decode("utf-8", "replace")
        for match in re.finditer(r'"([^"\n]*)"', text) if data.isascii() else ():
            for name in NAMES[:1] + NAMES[-1:]:
                yield (text[: match.start(1)] + name + text[match.end(1) :]).encode()
        return
    for number, value in enumerate(values):
        for changed in _replace(value):
            parts = [*values[:number], changed, *values[number + 1 :]]
            yield b"".join(json.dumps(part).encode() + b"\n" for part in parts)


def _replace(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from NAMES
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: changed} for changed in _replace(inner))
            yield {name: inner if name == NAMES[0] else held for name, held in {**value, NAMES[0]: inner}.items()}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in _replace(inner))


def main() -> None:
    """Read all seeds of the readers that are named, and tell what was seen; the exit code is 1 if anything was."""
    watch = Watch()
    cases = {name: [case for seed in READERS[name].seeds()[:8] for case in name_code(seed)] for name in sys.argv[1:]}
    sys.addaudithook(watch)
    with tempfile.TemporaryDirectory() as folder:
        for name, made in cases.items():
            for case in made:
                watch.reader = name
                try:
                    READERS[name].read(case, Path(folder))
                except SoftqError:
                    pass
                finally:
                    watch.reader = ""
            print(f"{name}: {len(made)} files")
    print("\n".join(watch.seen))
    sys.exit(bool(watch.seen))


if __name__ == "__main__":
    main()
