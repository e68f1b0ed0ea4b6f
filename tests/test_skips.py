"""`--fail-on-skip` counts a skip as a failure, in a test and of a whole file, but for the reasons in tests/skips.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutants import ROOT

IN_A_TEST = """
import pytest

def test_it():
    pytest.skip({reason!r})

@pytest.mark.skipif(True, reason={reason!r})
def test_by_a_mark():
    assert False

@pytest.mark.xfail(reason="known")
def test_that_fails_as_expected():
    assert False

def test_that_passes():
    pass
"""
OF_A_FILE = "import pytest\npytest.skip({reason!r}, allow_module_level=True)\n"
ALLOWED, OTHER = "qemu-riscv64 is older than version 8 (Debian 12: ...)", "iverilog is not installed"


def run(folder: Path, *options: str) -> tuple[int, str, str]:
    """Run the tests of a folder with the hooks of these tests; return the exit code, the last line and all lines."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
    ]
    command += [f"--rootdir={folder}", "--continue-on-collection-errors", *options, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()[-1].strip("= ").partition(" in ")[0], done.stdout


def test_only_reasons_of_the_list_leave_something_out(tmp_path: Path) -> None:
    for name, reason in (("allowed", ALLOWED), ("other", OTHER)):
        (tmp_path / f"test_{name}.py").write_text(IN_A_TEST.format(reason=reason))
        (tmp_path / f"test_{name}_file.py").write_text(OF_A_FILE.format(reason=reason))
    code, counts, _ = run(tmp_path)
    assert (code, counts) == (0, "2 passed, 6 skipped, 2 xfailed")
    for workers in ((), ("-n", "2")):
        code, counts, text = run(tmp_path, "--fail-on-skip", *workers)
        # Of the two that are failures one is skipped by a mark, before it begins; the file is an error, too.
        assert (code, counts) == (1, "1 failed, 2 passed, 3 skipped, 2 xfailed, 2 errors")
        assert text.count(f"skipped, which --fail-on-skip does not allow (tests/skips.py): {OTHER}") >= 3
