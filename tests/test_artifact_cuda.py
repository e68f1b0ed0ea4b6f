"""The driver in C of a model for a GPU; a stand-in for NVIDIA's driver runs its kernels and counts what it gives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq
from softq.artifact import ctext, elf, toolchain, write
from softq.artifact.abi import FUNCTIONS
from softq.artifact.device import driver
from softq.artifact.program import Program
from softq.errors import UsageError
from tests import standin
from tests.handmade import HOST, look_up_program, needs_host, rows_program
from tests.standin import GPU, on_device
from tests.test_artifact_c import AARCH64, DRIVER, EXAMPLE, STRICT, empty_program, needs, strict, zig

pytestmark = needs_host

Array = NDArray[np.generic]
ROOT = Path(__file__).parent.parent
NO_DRIVER = "needs an NVIDIA GPU; this computer has no driver for one (libcuda.so.1)"


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in."""
    folder = tmp_path_factory.mktemp("libcuda")
    (folder / "libcuda.so.1").write_bytes(standin.driver())
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(rows_program(), tmp_path_factory.mktemp("device") / "rows")


@pytest.fixture(scope="module")
def look_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(look_up_program(), tmp_path_factory.mktemp("device") / "look_up")


def written(program: Program, folder: Path, **changes: Any) -> Path:
    device = replace(on_device(program), **changes)
    return write(device.program, GPU, folder, target="cuda,arch=sm_90", device=device)


def ended(*command: str | Path, libcuda: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    lenient = "allocator_may_return_null=1"
    found = {**os.environ, "ASAN_OPTIONS": lenient, "TSAN_OPTIONS": f"halt_on_error=1 {lenient}", **variables}
    found.pop("LD_LIBRARY_PATH", None)
    if libcuda is not None:
        found["LD_LIBRARY_PATH"] = str(libcuda)
    return subprocess.run(command, capture_output=True, text=True, env=found, timeout=300)


Session = Callable[..., None]


@pytest.fixture(scope="module")
def session(libcuda: Path) -> Iterator[Session]:
    """Runs a part of tests/cuda_session.py with the stand-in."""
    log = libcuda / "log"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cuda_session", str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"LD_LIBRARY_PATH": str(libcuda), "PYTHONPATH": str(ROOT)}, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        said, asked = process.stdout, process.stdin

        def run(name: str, *paths: Path) -> None:
            print(json.dumps([name, *map(str, paths)]), file=asked, flush=True)
            assert said.readline() == "0\n", log.read_text()

        yield run
        asked.close()


def compiled(command: Sequence[str], folder: Path, source: Path, out: Path) -> Path:
    files = [str(source), str(folder / "driver.c")]
    done = subprocess.run(
        [*command, f"-I{folder}", *files, "-ldl", "-pthread", "-o", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("name", ["rows", "look_up"])
def test_models_made_by_hand(name: str, session: Session, request: pytest.FixtureRequest) -> None:
    session(name, request.getfixturevalue(name))


def test_starts_of_kernels(session: Session, tmp_path: Path) -> None:
    short = written(standin.started_program("started_short"), tmp_path / "short")
    session("started", written(standin.started_program(), tmp_path / "all"), short)


def test_shared_memory_of_launches(session: Session, tmp_path: Path) -> None:
    session("shared", written(standin.started_program("started_shared"), tmp_path / "shared"))


def test_too_little_memory_of_the_gpu(session: Session, rows: Path) -> None:
    session("memory", rows)


def test_every_call_of_the_driver_may_fail(session: Session, look_up: Path) -> None:
    session("failures", look_up)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers(sanitizer: str, libcuda: Path, rows: Path, tmp_path: Path) -> None:
    needs("gcc")
    flags = ["gcc", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    done = ended(compiled(flags, rows, DRIVER, tmp_path / "driver"), rows, libcuda=libcuda)
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr
    example = compiled([*flags, *STRICT], rows, EXAMPLE, tmp_path / "example")
    done = ended(example, rows, "3", libcuda=libcuda)
    assert done.returncode == 0, done.stderr
    assert "output sums: type 11, shape 9, 36 bytes\n  56\n" in done.stdout


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("compiler", ["gcc", "x86_64-linux-gnu", "aarch64-linux-gnu"])
@pytest.mark.parametrize("program", [rows_program, look_up_program, empty_program])
def test_no_warnings(compiler: str, program: Callable[[], Program], tmp_path: Path) -> None:
    if compiler == "gcc":
        needs("gcc")
    device = on_device(program())
    for module, code in device.code.items():
        (tmp_path / f"{module}.{device.form}").write_bytes(code)
    (tmp_path / "driver.c").write_text(driver.driver_source(device, GPU, weights_bytes=64, seal=bytes(64)))
    (tmp_path / "softq.h").write_text(ctext.part("softq.h"))
    for command in strict(compiler):
        done = subprocess.run(
            [*command, "-c", "driver.c", "-o", "driver.o"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_declarations_are_those_of_cuda(tmp_path: Path) -> None:
    nvcc = pytest.importorskip("softq.artifact.device.nvcc", exc_type=ImportError).find()
    headers = [] if nvcc is None else [Path(nvcc).resolve().parent.parent / "include", Path("/usr/local/cuda/include")]
    include = next((folder for folder in headers if (folder / "cuda.h").is_file()), None)
    if include is None:
        pytest.skip("needs cuda.h: pip install 'softq[cuda]'")
    needs("gcc")
    lines = [
        "#include <stdint.h>", "#include <cuda.h>", "typedef CUdeviceptr sq_address;", ctext.part("prelude.c"),
        ctext.part("cuda/driver.c"),
        "#define SAME(name, parameters) typedef unsigned own_##name parameters;"
        " _Static_assert(__builtin_types_compatible_p(__typeof__(name), own_##name), #name);",
        "SQ_DRIVER(SAME)",
        "_Static_assert(SQ_OUT_OF_MEMORY == CUDA_ERROR_OUT_OF_MEMORY, \"\");",
        "_Static_assert(SQ_NON_BLOCKING == CU_STREAM_NON_BLOCKING, \"\");",
        "_Static_assert(SQ_DEVICE_SHARED == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, \"\");",
        "_Static_assert(SQ_FUNCTION_SHARED == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, \"\");",
    ]  # fmt: skip
    (tmp_path / "same.c").write_text("\n".join(lines))
    (tmp_path / "softq.h").write_text(ctext.part("softq.h"))
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", f"-I{include}", "-fsyntax-only", "same.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_gpu_is_one_line(libcuda: Path, rows: Path, tmp_path: Path) -> None:
    needs("gcc")
    example = compiled(["gcc", "-O0"], rows, EXAMPLE, tmp_path / "example")
    empty = "run_artifact: needs an NVIDIA GPU; this computer has its driver, but no GPU that the driver sees\n"
    if shutil.which("nvidia-smi") is None:
        done = ended(example, rows)
        assert (done.returncode, done.stderr) == (2, f"run_artifact: {NO_DRIVER}\n")
    done = ended(example, rows, libcuda=libcuda, STANDIN_EMPTY="1")
    assert (done.returncode, done.stderr) == (2, empty)


def test_code_that_is_none_or_of_another_gpu(libcuda: Path, tmp_path: Path) -> None:
    needs("gcc")
    for code, message in (
        ({}, "has no code for a GPU, only its text: where it was built there was no compiler of CUDA"),
        ({"kernels": b"other", "graph": b"other"}, "was built for sm_90; this GPU is Stand-in: the GPU's driver fails "
         "in cuModuleLoadData: no kernel image (209)\n"),
    ):  # fmt: skip
        folder = written(rows_program(), tmp_path / "rows", code=code)
        example = compiled(["gcc", "-O0"], folder, EXAMPLE, tmp_path / "example")
        done = ended(example, folder, libcuda=libcuda)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"run_artifact: {message}")


def test_only_the_interface_is_exported(rows: Path) -> None:
    needs("nm")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", rows / "libmodel.so"], check=True, capture_output=True, text=True
    )
    assert {line.split()[-1] for line in listing.stdout.splitlines()} == {f"softq_{name}" for name in FUNCTIONS}
    needed = subprocess.run(["nm", "-D", "-u", rows / "libmodel.so"], check=True, capture_output=True, text=True)
    assert not [line for line in needed.stdout.splitlines() if line.split()[-1].startswith("cu")]


@pytest.mark.slow  # A library of C for that processor.
def test_a_library_for_another_processor(libcuda: Path, tmp_path: Path) -> None:
    folder = written(rows_program(), tmp_path / "rows", host=AARCH64)
    with open(folder / "libmodel.so", "rb") as file:
        assert elf.processor(file.read(elf.HEADER_BYTES), "library") == "AArch64 (64 bits)"
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["library"] == {"processor": "aarch64-linux-gnu.2.17", "missing": None}
    # Python has no need of it.
    done = ended(sys.executable, "-c", f"import softq; print(softq.load({str(folder)!r}))", PYTHONPATH=str(ROOT),
                 libcuda=libcuda)  # fmt: skip
    assert "<softq.Artifact" in done.stdout, done.stderr


@pytest.mark.slow
def test_another_processor_without_a_gpu(tmp_path: Path) -> None:
    needs("qemu-aarch64")
    folder = written(rows_program(), tmp_path / "rows", host=AARCH64)
    # Linked without shared libraries, a program needs no system of its own, and finds no driver.
    command = [*zig("aarch64-linux-musl"), "-O2", "-static", "-fno-sanitize=all"]
    example = compiled(command, folder, EXAMPLE, tmp_path / "example")
    done = ended("qemu-aarch64", example, folder)
    assert (done.returncode, done.stderr) == (2, f"run_artifact: {NO_DRIVER}\n")
    done = ended("qemu-aarch64", example, tmp_path)
    assert done.returncode == 2
    assert "weights.bin' cannot be opened" in done.stderr


@pytest.mark.parametrize("option", ["host=arm", "host=x86"])
def test_processors_without_a_library_are_refused(option: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"host is '\w+'; expected x86_64 or aarch64"):
        softq.build(parser.parse_model(ATTENTION), tmp_path / "built", target=f"cuda,{option}")


def test_without_a_c_compiler_there_is_the_text_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none(*_: object) -> list[str]:
        raise UsageError("there is no C compiler")

    monkeypatch.setattr("softq.artifact.writing.compiler", none)
    device = on_device(rows_program())
    folder = write(device.program, GPU, tmp_path / "rows", device=device)
    names = {path.name for path in folder.iterdir()}
    assert {"driver.c", "softq.h"} < names
    assert "libmodel.so" not in names
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["library"] == {"processor": HOST.zig, "missing": "there is no C compiler"}
    with pytest.raises(UsageError, match="no C compiler"):
        write(device.program, GPU, tmp_path / "named", device=device, cc="some-cc")
    monkeypatch.undo()
    assert toolchain.compiler(HOST)
    device = replace(device, host=None)
    folder = write(device.program, GPU, tmp_path / "rows", device=device)
    assert "no C library for this" in json.loads((folder / "manifest.json").read_text())["library"]["missing"]


ATTENTION = """
    <ir_version: 8, opset_import: ["": 18]>
    g (int64[b,n] ids, float[b,h,n,16] q, float[b,h,m,16] k, float[b,h,m,8] v, bool[b,1,n,m] keep)
    => (float[b,h,n,8] y, float[b,n,4] z) <float[6,4] table = {
        0,1,2,3, 4,5,6,7, 8,9,10,11, 12,13,14,15, 16,17,18,19, 20,21,22,23}> {
        t = Transpose <perm: ints = [0, 1, 3, 2]> (k)
        s = MatMul (q, t)
        low = Constant <value: tensor = float {-inf}> ()
        x = Where (keep, s, low)
        p = Softmax (x)
        y = MatMul (p, v)
        z = Gather (table, ids)
    }"""


def attention_feeds() -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    found: list[dict[str, Array]] = []
    for b, h, n, m in ((1, 2, 5, 7), (2, 3, 70, 64), (1, 1, 3, 130), (2, 1, 64, 1), (2, 1, 0, 9)):
        given: dict[str, Array] = {"ids": rng.integers(-6, 6, (b, n))}
        for name, length, width in (("q", n, 16), ("k", m, 16), ("v", m, 8)):
            given[name] = rng.normal(size=(b, h, length, width)).astype(np.float32)
        given["keep"] = rng.random((b, 1, n, m)) < 0.8
        given["keep"][..., 0] = True
        found.append(given)
    return found


def image_feeds() -> list[dict[str, Array]]:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, 28, 28)).astype(np.uint8)
    return [{"images": pixels}, {"images": pixels[:1]}]


def vit() -> onnx.ModelProto:
    return softq.convert(onnx.load(ROOT / "models" / "mnist_vit" / "mnist_vit.onnx"), bits=4).model


def attention(method: str) -> onnx.ModelProto:
    return softq.convert(parser.parse_model(ATTENTION), method=method).model


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("make", "feeds", "tolerance"), [
    (lambda: attention("exact"), attention_feeds, 1e-4),
    (lambda: attention("deferred-log"), attention_feeds, 1e-4),
    # A score at the boundary of a code may fall on either side: sums are in another order.
    (vit, image_feeds, 2e-2),
], ids=["exact", "deferred-log", "vision-transformer"])  # fmt: skip
def test_whole_models(
    make: Callable[[], onnx.ModelProto], feeds: Callable[[], Sequence[Mapping[str, Array]]], tolerance: float,
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """From C and from Python the same bits at every size; onnxruntime's within a tolerance."""
    pytest.importorskip("tvm")
    import onnxruntime

    from softq.artifact.device import compiling
    from softq.codegen.gpu import program
    from softq.codegen.gpu.dialect import dialects
    from softq.codegen.gpu.dialect.dialects import OPENCL
    from tests.opencl import device

    # What tells CUDA from others is imported before it is replaced.
    assert program

    device()
    monkeypatch.setattr(dialects, "CUDA", OPENCL)
    monkeypatch.setattr(compiling, "compiler", lambda: "none")
    monkeypatch.setattr(compiling, "machine_code", lambda text, *_, **__: text.encode())
    model, given = make(), feeds()
    built = softq.build(model, tmp_path / "built", target="cuda,arch=sm_90").folder
    arrays = {f"{turn}.{name}": x for turn, one in enumerate(given) for name, x in one.items()}
    np.savez(tmp_path / "feeds.npz", **arrays)  # pyright: ignore[reportArgumentType]
    session("compare", built, tmp_path / "feeds.npz", tmp_path / "results.npz")
    results = np.load(tmp_path / "results.npz")
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for turn, one in enumerate(given):
        if not all(array.size for array in one.values()):
            # onnxruntime's product makes a wrong shape of no rows.
            assert all(results[f"{turn}.{output.name}"].size == 0 for output in runtime.get_outputs())
            continue
        for output, wanted in zip(runtime.get_outputs(), runtime.run(None, dict(one)), strict=True):
            theirs = np.asarray(wanted, np.float64)
            found = results[f"{turn}.{output.name}"].astype(np.float64)
            assert found.shape == theirs.shape
            assert np.max(np.abs(found - theirs)) <= tolerance * np.max(np.abs(theirs))
