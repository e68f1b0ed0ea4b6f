"""Every reader of a file that may come from anybody loads no code and starts no process; there is a case for each."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import softq
from tests.fuzz.readers import READERS

PACKAGE = Path(softq.__file__).parent

OPENS = {
    "open", "open_regular", "open_descriptor", "read_text", "read_json", "read_toml", "parse_json", "read_bytes",
    "memmap", "fromfile", "fdopen",
}  # fmt: skip
LIBRARIES = {"json", "np", "tomllib", "pickle", "Image", "onnx", "os"}
"""Modules whose `load`, `loads` and `open` parse files."""

OWN = "parts of softq, or what it has just written"
CALLERS = "what the caller gives as a key, or has passed to a library of his own"
ELSEWHERE = "tests of its own: test_data.py and others"
MODULES = {
    "address_space.py": OWN,
    "artifact/ctext.py": OWN,
    "artifact/device/loading.py": "launches",
    "artifact/device/nvcc.py": OWN,
    "artifact/device/steps.py": "launches",
    "artifact/elf.py": "weights",
    "artifact/firmware/compiling.py": OWN,
    "artifact/library.py": "weights",
    "artifact/loading.py": "manifest",
    "artifact/manifest.py": "manifest",
    "artifact/signing.py": CALLERS,
    "artifact/writing.py": OWN,
    "audit/auditing.py": "steps",
    "audit/cases.py": OWN,
    "audit/process.py": OWN,
    "audit/worker.py": OWN,
    "building.py": OWN,
    "cache.py": OWN,
    "cli/completing.py": OWN,
    "cli/configuration.py": "config",
    "cli/group.py": OWN,
    "codegen/cpu/object_code.py": OWN,
    "codegen/gpu/dialect/dialects.py": OWN,
    "data/_files.py": "npz",
    "graph/signatures.py": OWN,
    "integrations/finn.py": CALLERS,
    "integrations/olive.py": CALLERS,
    "metrics/base/meter.py": OWN,
    "modelfile/hashing.py": "onnx",
    "modelfile/reading.py": "onnx",
    "modelfile/staging.py": "onnx",
    "plans.py": "plan",
    "profiles/loading.py": "profile",
    "provenance.py": "carried",
    "rtl/arguments.py": OWN,
    "rtl/description.py": "core",
    "rtl/writing.py": "core",
    "samples/images.py": ELSEWHERE,
    "samples/texts.py": ELSEWHERE,
    "sweeps/distributed/connection.py": CALLERS,
    "sweeps/distributed/worker.py": OWN,
    "sweeps/folder.py": "outcomes",
    "sweeps/plan/record.py": "record",
    "sweeps/records.py": "study",
    "sweeps/report/html.py": OWN,
    "sweeps/settings.py": CALLERS,
    "torch/curves.py": OWN,
    "torch/huggingface.py": CALLERS,
}
"""Files of softq that open or parse files, each with its reader in `tests.fuzz.readers`, or with why it has none."""


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node.func, ast.Attribute) and node.func.attr != "open":
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            yield "open" if owner in LIBRARIES and node.func.attr in ("load", "loads") else node.func.attr
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            yield "open" if node.func.value.id in LIBRARIES else ""


def test_every_module_that_opens_a_file_has_a_reader() -> None:
    """A new one is put into `MODULES`, and if its file may come from anybody, into `tests.fuzz.readers`."""
    opening = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if not OPENS.isdisjoint(calls(ast.parse(path.read_text("utf-8"))))
    }
    assert opening - {"files.py"} == set(MODULES)
    assert set(MODULES.values()) - {OWN, CALLERS, ELSEWHERE} <= set(READERS)


def watch(*readers: str, folder: Path, before: str = "pass") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}; sys.argv[1:] = {readers!r}; from tests.code_watch import main; main()"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    for name in ("evil", "onnx", "tomllib", "softq_evil"):
        (folder / f"{name}.py").write_text('open("RAN", "a")\ndef data(): return []\n')
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("builds", [False, True], ids=["", "weights"])
def test_readers_load_no_code(builds: bool, tmp_path: Path) -> None:
    if builds:
        pytest.importorskip("tvm")
    names = [name for name in READERS if (name == "weights") == builds]
    done = watch(*names, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines() if line] == names
    assert not (tmp_path / "RAN").exists()


def test_code_that_is_loaded_is_seen(tmp_path: Path) -> None:
    """A registry that runs any name that ends in .py, as it once did."""
    broken = "lambda self, name: Folder.open(self, name) if name.endswith('.py') else known(self, name)"
    before = f"from softq.registry import Folder; known = Folder.get; Folder.get = {broken}"
    done = watch("plan", folder=tmp_path, before=before)
    assert done.returncode == 1
    assert "plan: exec: " in done.stdout
    assert "evil.py" in done.stdout
    assert (tmp_path / "RAN").exists()
