"""Tries third-party models: inspects, converts, builds and runs each beside onnxruntime.

    python -m benchmarks.third_party [NAME...] [--json FILE]

Downloads the packages with pip into the cache (SOFTQ_CACHE), and writes benchmarks/third_party.json, from which
docs/third-party.md is generated. Every model has a process of its own, with a time limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.cpu.machine import description
from benchmarks.third_party.models import MODELS
from benchmarks.third_party.results import RESULTS, summary

LIMIT = 900
"""Seconds that a model has."""


def attempt(name: str) -> dict[str, object]:
    """Return the record of one model; a process that ends badly is a record too."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "record.json"
        command = [sys.executable, "-m", "benchmarks.third_party.trial", name, str(out)]
        # Seconds of building are those of a first build: no kernel comes from the cache.
        environment = {**os.environ, "SOFTQ_CACHE_SIZE": "0"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)
            last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            ended = "" if done.returncode == 0 else last if done.returncode > 0 else f"signal {-done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"took more than {LIMIT} s"
        record: dict[str, object] = {"name": name, "stage": "download"}
        if out.exists():
            record |= json.loads(out.read_text(encoding="utf-8"))
    return {**record, "crash": ended} if ended else record


def main() -> None:
    """Try what is asked for and write the results."""
    parser = argparse.ArgumentParser(description="Try third-party models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all of them by default")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where the results are kept")
    arguments = parser.parse_args()
    known = [model.name for model in MODELS]
    if unknown := set(arguments.names) - set(known):
        raise SystemExit(f"no model {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    old = json.loads(arguments.json.read_text(encoding="utf-8"))["rows"] if arguments.json.exists() else []
    rows = {row["name"]: row for row in old}
    for name in arguments.names or known:
        rows[name] = attempt(name)
        print(summary(rows[name]), flush=True)
        document = {
            "schema": 1,
            "command": "python -m benchmarks.third_party",
            "machine": description(),
            "rows": [rows[n] for n in known if n in rows],
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
