"""A slice of the fuzzing that `make fuzz` does for as long as one likes, and what it once found."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from softq.errors import InputError
from tests.amount import amount
from tests.fuzz import driver, running
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.running import run, run_apart, try_case

CORPUS = sorted((Path(__file__).parent / "fuzz" / "corpus").iterdir())


def needs_builds(name: str) -> None:
    if name == "weights" and importlib.util.find_spec("tvm") is None:
        pytest.skip("builds need TVM")


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_what_once_went_wrong_does_not_again(path: Path, tmp_path: Path) -> None:
    assert try_case(READERS[path.name.split("-")[0]], path.read_bytes(), tmp_path) == ""


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_nearly_right_are_read_or_refused(name: str) -> None:
    needs_builds(name)
    wrong = list[str]()
    counts = run([name], 60, seed=7, cases=20 if name in {"onnx", "structure"} else 60, wrong=wrong.append)
    assert not wrong
    assert counts[name] >= 20


@pytest.mark.parametrize("name", READERS)
def test_seeds_are_read_or_refused(name: str, tmp_path: Path) -> None:
    needs_builds(name)
    wrong = [try_case(READERS[name], seed, tmp_path) for seed in READERS[name].seeds()[:6]]
    assert not any(wrong)


def die(data: bytes, folder: Path) -> None:
    if data[0] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    raise InputError("refused")


def take_memory(data: bytes, folder: Path) -> None:
    bytearray(2 * running.MEMORY)


@pytest.mark.parametrize(("read", "what"), [(die, "the process ended with -9"), (take_memory, "MemoryError")])
def test_a_case_that_ends_the_process_or_fills_memory_is_known(
    read: Callable[[bytes, Path], None], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "OUT", tmp_path)
    monkeypatch.setitem(
        READERS, "bad", Reader(read, lambda: [b"7"], lambda data, rng, others: bytes([rng.integers(9)]))
    )
    counts, wrong = run_apart(["bad"], 0.5, seed=1, every=0.1)
    assert counts["bad"] > 1
    assert wrong
    assert all(what in line for line in wrong)
    if read is die:
        assert (tmp_path / wrong[0].split(":")[0]).read_bytes() == b"\7"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", driver.MODELS)
def test_drivers_return_an_error_for_what_is_wrong(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("clang") is None:
        pytest.skip(driver.MISSING)
    needs_builds("weights")
    monkeypatch.setattr(driver, "OUT", tmp_path)
    assert ", 0 went wrong" in driver.fuzz(name, seconds=amount(1, 5), seed=1)
