"""The driver as a C program meets it: under strict warnings and sanitizers, and on other processors in emulators."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softq.artifact import load, write
from softq.artifact.machine import Cpu
from softq.artifact.program import Program
from softq.errors import InputError
from tests import handmade
from tests.amount import slow_but
from tests.emulators import emulator
from tests.handmade import HOST, look_up_program, needs_host, rows_program

pytestmark = needs_host

EXAMPLE = Path(__file__).parent.parent / "examples" / "run_artifact.c"
DRIVER = Path(__file__).parent / "artifact_driver.c"

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-pedantic", "-Werror")

AARCH64 = Cpu(
    name="aarch64",
    triple="aarch64-unknown-linux-gnu",
    cpu="cortex-a53",
    features=(),
    zig="aarch64-linux-gnu.2.17",
    vector_bytes=16,
    vectors=32,
    requires=("neon",),
)
ARMV7 = Cpu(
    name="armv7",
    triple="armv7a-unknown-linux-gnueabihf",
    cpu="cortex-a7",
    features=("neon", "vfp4"),
    zig="arm-linux-gnueabihf.2.17",
    vector_bytes=16,
    vectors=16,
    requires=("neon", "vfp4"),
    float_abi="hard",
)
RISCV64 = Cpu(
    name="riscv64",
    triple="riscv64-unknown-linux-gnu",
    cpu="generic-rv64",
    features=(),
    zig="riscv64-linux-gnu",
    vector_bytes=0,
    vectors=32,
    requires=("d",),
    abi="lp64d",
)

EMULATED = {"aarch64": AARCH64, "armv7": ARMV7, "riscv64": RISCV64}


def zig(triple: str) -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc", "-target", triple]


def strict(compiler: str) -> list[list[str]]:
    """Return commands of gcc, or of zig for a triple, for which a warning is an error."""
    if compiler == "gcc":
        # Optimising, it sees more.
        return [["gcc", *STRICT, level] for level in ("-O0", "-O2")]
    return [[*zig(compiler), *STRICT, "-O0"]]


def compile_c(command: Sequence[str], folder: Path, source: Path, out: Path) -> Path:
    files = [str(source), str(folder / "driver.c"), str(folder / "kernels.o")]
    done = subprocess.run(
        [*command, f"-I{folder}", *files, "-lm", "-pthread", "-o", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def run_c(*command: str | Path) -> str:
    # Sizes that no memory holds come back as errors, as they do without a sanitizer.
    lenient = "allocator_may_return_null=1"
    environment = {**os.environ, "ASAN_OPTIONS": lenient, "TSAN_OPTIONS": f"halt_on_error=1 {lenient}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(rows_program(), HOST, tmp_path_factory.mktemp("artifacts") / "rows")


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def empty_program() -> Program:
    return Program((), (), (), (), (), (), {}, handmade.objects())


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("compiler", ["gcc", "x86_64-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf"])
@pytest.mark.parametrize("program", [rows_program, look_up_program, empty_program])
def test_no_warnings(compiler: str, program: Callable[[], Program], tmp_path: Path) -> None:
    requires = {"aarch64-linux-gnu": AARCH64, "arm-linux-gnueabihf": ARMV7}.get(compiler)
    machine = requires or replace(HOST, requires=("avx2", "avx512f", "lzcnt", "avxvnni"))
    made = write_sources(program(), machine, tmp_path)
    if compiler == "gcc":
        needs("gcc")
    for command in strict(compiler):
        done = subprocess.run([*command, "-c", "driver.c", "-o", "driver.o"], cwd=made, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def write_sources(program: Program, machine: Cpu, folder: Path) -> Path:
    from softq.artifact import ctext, driver

    (folder / "driver.c").write_text(driver.driver_source(program, machine, weights_bytes=64, seal=bytes(64)))
    (folder / "softq.h").write_text(ctext.part("softq.h"))
    return folder


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers(rows: Path, sanitizer: str, tmp_path: Path) -> None:
    needs("gcc")
    flags = ["gcc", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    assert "all is well" in run_c(compile_c(flags, rows, DRIVER, tmp_path / "driver"), rows)
    example = compile_c([*flags, *STRICT], rows, EXAMPLE, tmp_path / "example")
    assert "output sums: type 11, shape 9, 36 bytes\n  56\n" in run_c(example, rows, "3")


def test_the_example_reads_a_file_and_reports_errors(rows: Path, tmp_path: Path) -> None:
    needs("gcc")
    example = compile_c(["gcc", "-O2"], rows, EXAMPLE, tmp_path / "example")
    np.arange(32, dtype=np.float32).tofile(tmp_path / "raw")
    assert "output shifted: type 11, shape 2 2 8, 128 bytes\n  0\n  3\n  6\n  9\n" in run_c(
        example, rows, "2", tmp_path / "raw"
    )
    done = subprocess.run([example, rows, "101"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "at most 100 tokens" in done.stderr


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: os.truncate(path, 100), "has 100 bytes; expected 128: it is truncated"),
        (lambda path: os.truncate(path, 129), "has 129 bytes"),
        (lambda path: path.write_bytes(bytes(128)), "holds the weights of another model"),
        (lambda path: path.unlink(), "cannot be opened"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
    ],
)
def test_wrong_weights(rows: Path, tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    copy = Path(shutil.copytree(rows, tmp_path / "copy"))
    change(copy / "weights.bin")
    needs("gcc")
    example = compile_c(["gcc", "-O0", "-fsanitize=address,undefined"], rows, EXAMPLE, tmp_path / "example")
    done = subprocess.run([example, copy], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert message in done.stderr


# An emulator, and C compiled for it.
@pytest.mark.parametrize("name", slow_but(EMULATED, ["armv7"]))
def test_other_processors(name: str, tmp_path: Path) -> None:
    machine, emulated = EMULATED[name], emulator(name)
    folder = write(rows_program(machine), machine, tmp_path / "model")
    command = [*zig(emulated.zig), "-O2", "-static", "-fno-sanitize=all"]
    program = compile_c(command, folder, DRIVER, tmp_path / "program")
    assert "all is well" in run_c(*emulated.command, program, folder, "3")
    with pytest.raises(InputError, match=rf"was built for .*, machine {name} .*; this program runs on x86-64 \(64"):
        load(folder)


@pytest.mark.slow
def test_an_emulated_processor_without_the_feature(tmp_path: Path) -> None:
    emulated = emulator("armv7")
    folder = write(rows_program(ARMV7), ARMV7, tmp_path / "model")
    command = [*zig(emulated.zig), "-O2", "-static", "-fno-sanitize=all"]
    example = compile_c(command, folder, EXAMPLE, tmp_path / "example")
    assert "output sums" in run_c(*emulated.command, "-cpu", "cortex-a7", example, folder)
    command = [*emulated.command, "-cpu", "cortex-a8", example, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "this processor lacks 'vfp4'" in done.stderr


def test_only_the_interface_is_exported(rows: Path) -> None:
    needs("nm")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", rows / "libmodel.so"], check=True, capture_output=True, text=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert {f"softq_{name}" for name in ("open", "clone", "run", "close", "shape", "message")} < names
    assert all(name.startswith("softq_") for name in names)
