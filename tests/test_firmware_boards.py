"""Models and row kernels in C on microcontrollers that qemu emulates, against the interpreter and this computer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq
from benchmarks.mcu.accuracy import measure as accuracy
from benchmarks.mcu.boards import BOARDS, OF_MODELS, missing, run
from benchmarks.mcu.kernels import WORKS, Work, execute, measure, rows_of
from benchmarks.mcu.models import WORKS as MODELS
from benchmarks.mcu.models import digits
from benchmarks.mcu.models import measure as measure_model
from benchmarks.mcu.running import model_objects
from softq.artifact.firmware.compilers import compilers, write_headers
from softq.codegen.c.machines import FAMILIES, Family
from softq.rowprog import DType

VIT = Path(__file__).parent.parent / "models" / "mnist_vit"
FLOAT, INT8, VOICE = MODELS
QUICK = ("m4",)
UNKNOWN = "m85"
"""gcc has it from version 13 on; zig's compiler takes its place."""


def boards(among: Iterable[str] = OF_MODELS) -> list[object]:
    """Return cases for `parametrize`: boards, most of them slow."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in among]


@pytest.fixture
def board(request: pytest.FixtureRequest) -> str:
    """The name of a board whose programs run here."""
    absent = missing(BOARDS[request.param])
    if absent:
        pytest.skip(f"needs {absent}")
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "cpu", "fpu"),
    [(family, cpu, fpu) for family in FAMILIES for cpu, core in family.cores.items() for fpu in ("none", *core.floats)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_processor_compiles_the_kernels_and_asks_for_little(
    family: Family, cpu: str, fpu: str, tmp_path: Path
) -> None:
    compiler = next(board.compiler for board in BOARDS.values() if board.cpu.name == family.name)
    tools = compiler[0].removesuffix("gcc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"needs {compiler[0]}")
    machine = family.machine(cpu, fpu)
    command = [*compiler, *machine.compiler_flags]
    if cpu == UNKNOWN:
        *_, command = compilers(asdict(machine), machine.compiler_flags)
        assert Path(command[0]).name == "zig"
        command += write_headers(command, tmp_path / "headers")
    target = f"{family.name},cpu={cpu},fpu={fpu},kernels=c,name=digits"
    softq.build(VIT / "mnist_vit.onnx", tmp_path / "out", target=target, input_shapes={"images": [1, 1, 28, 28]})
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    subprocess.run([*command, *flags, "-c", "digits_kernels.c", "-o", "kernels.o"], check=True, cwd=tmp_path / "out")
    listed = subprocess.run([f"{tools}nm", "-u", str(tmp_path / "out" / "kernels.o")],
                            capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    needed = {name for name in listed if name != "U"} - {"__aeabi_memcpy", "__aeabi_memcpy4", "__aeabi_memclr4"}
    # What the compiler's own library has where the processor has no unit for floats or divides nothing.
    own = {name for name in needed if name.startswith("__")}
    # zig's compiler takes functions of math.h for the project's own.
    of_math = {"sqrtf", "fmaf", "fmaxf"} if cpu == UNKNOWN else {"sqrtf"} if fpu == "none" else set()
    assert needed - own <= {"memset", "memcpy", *of_math}
    assert not own or fpu == "none"


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m55 mve"], indirect=True)
@pytest.mark.parametrize("length", [1, 3, 15, 16, 17, 33])
def test_rows_of_any_length_are_those_of_the_interpreter(board: str, length: int, tmp_path: Path) -> None:
    for work in WORKS:
        scores = rows_of(work.scores)[:, :length]
        _, found, wanted = execute(work, BOARDS[board], tmp_path, np.ascontiguousarray(scores))
        for got, expected in zip(found, wanted, strict=True):
            close = 2e-6 if work.scores is DType.F32 else 0
            np.testing.assert_allclose(got, expected, rtol=close, atol=0, err_msg=work.name)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m55", "m55 mve"], indirect=True)
def test_vectors_of_floats_have_no_subnormal_numbers(board: str, tmp_path: Path) -> None:
    work = Work("relu", "relu", {}, DType.F32, ("weights",))
    scores = np.linspace(-1e-38, 3e-38, 38, dtype=np.float32).reshape(2, 19)
    _, (found,), (wanted,) = execute(work, BOARDS[board], tmp_path, scores)
    is_subnormal = (wanted > 0) & (wanted < np.finfo(np.float32).smallest_normal)
    assert is_subnormal.sum() > 8
    if not BOARDS[board].cpu.in_c:
        wanted = np.where(is_subnormal, 0, wanted)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["m55", "m85"])
def test_objects_have_no_symbols_of_others(cpu: str, tmp_path: Path) -> None:
    if shutil.which("arm-none-eabi-nm") is None:
        pytest.skip("needs arm-none-eabi-nm")
    target = f"cortex-m,cpu={cpu},name=digits"
    softq.build(VIT / "mnist_vit.onnx", tmp_path / "out", target=target, input_shapes={"images": [1, 1, 28, 28]})
    listed = subprocess.run(["arm-none-eabi-nm", "-g", str(tmp_path / "out" / "digits_kernels.o")],
                            capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
    needed = {line.split()[-1] for line in listed if line.split()[0] == "U"}
    defined = {line.split()[-1] for line in listed if line.split()[0] != "U"}
    assert len(defined) > 5
    assert all(symbol.startswith("digits_") for symbol in defined)
    # Of the calls that a compiler's library has, those that compute on floats would mean a wrong convention for them.
    assert needed <= {"__aeabi_memcpy4", "__aeabi_memclr4", "__aeabi_memset4", "__aeabi_uldivmod"}
    sections = subprocess.run(["arm-none-eabi-objdump", "-h", str(tmp_path / "out" / "digits_kernels.o")],
                              capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert ".debug" not in sections
    assert ".ARM.exidx" not in sections


@pytest.mark.parametrize("board", boards(BOARDS), indirect=True)
def test_rows_are_those_of_the_interpreter(board: str, tmp_path: Path) -> None:
    for work in WORKS:
        cost = measure(work, BOARDS[board], tmp_path)
        assert 1 < cost.instructions < 1e4
        assert 50 < cost.code < 2e4


@pytest.mark.parametrize("board", boards(), indirect=True)
def test_a_vision_transformer_is_that_of_this_computer_and_of_onnxruntime(board: str, tmp_path: Path) -> None:
    # Of this computer's functions of math.h only those are used that are exact: the bits are the same.
    found = measure_model(FLOAT, BOARDS[board], tmp_path, count=1)
    assert found.stack < 2048
    assert found.arena < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("board", boards(), indirect=True)
def test_an_int8_vision_transformer_is_that_of_this_computer_to_the_bit(board: str, tmp_path: Path) -> None:
    found = measure_model(INT8, BOARDS[board], tmp_path, count=20)
    with np.load(VIT / "data.npz") as data:
        labels = data["label.digit"][:20]
    assert len({found.outputs[i]["logits"].tobytes() for i in range(20)}) == 20
    assert np.mean([outputs["logits"].argmax() for outputs in found.outputs] == labels) >= 0.9
    assert found.stack < 2048


@pytest.mark.slow
def test_an_int8_vision_transformer_in_c_knows_as_many_digits_as_in_onnxruntime(tmp_path: Path) -> None:
    found = accuracy(tmp_path)
    assert found.in_onnxruntime > 0.97
    assert abs(found.in_c - found.in_onnxruntime) <= 0.003
    assert found.alike >= 0.99


PROGRAM = """#include "board.h"
#include "digits.h"
#include "second.h"
#include <string.h>

static const uint8_t pixels[DIGITS_IMAGES_LENGTH] = {%(pixels)s};
static const float x[SECOND_X_LENGTH] = {0.5f, -1.0f, 2.0f, 0.25f, 8.0f, 0.0f, -3.0f, 1.0f,
                                         1.0f, 1.0f, 1.0f, 1.0f, -9.0f, 2.5f, 0.0f, 0.0f};
static union {
    uint8_t bytes[DIGITS_ARENA_BYTES + 16];
    uint64_t aligned[2];
} memory __attribute__((aligned(16)));
static float logits[DIGITS_LOGITS_LENGTH], first[DIGITS_LOGITS_LENGTH];
static float y[SECOND_Y_LENGTH];

int main(void)
{
    uint8_t *const m = memory.bytes;

    print_number((uint32_t)digits_run_in(NULL, logits, m, DIGITS_ARENA_BYTES));
    print_number((uint32_t)digits_run_in(pixels, NULL, m, DIGITS_ARENA_BYTES));
    print_number((uint32_t)digits_run_in(pixels, logits, NULL, DIGITS_ARENA_BYTES));
    print_number((uint32_t)digits_run_in(pixels, logits, m, DIGITS_ARENA_BYTES - 1));
    print_number((uint32_t)digits_run_in(pixels, logits, m + 8, DIGITS_ARENA_BYTES));
    print_bytes(logits, sizeof logits);
    print_number((uint32_t)digits_run(pixels, first));
    for (int i = 0; i < %(runs)d; ++i) {
        memset(memory.bytes, 37 * i, sizeof memory);
        if (digits_run_in(pixels, logits, m, DIGITS_ARENA_BYTES) != DIGITS_OK || memcmp(first, logits, sizeof first)) {
            return 1;
        }
    }
    print_number((uint32_t)second_run(x, y));
    print_bytes(first, sizeof first);
    print_bytes(y, sizeof y);
    return 0;
}
"""


@pytest.mark.slow  # tests/test_firmware.py has the same on this computer.
@pytest.mark.parametrize("runs", [3, 100])
@pytest.mark.parametrize("board", ["m4"], indirect=True)
def test_two_models_run_again_and_again_and_refuse_wrong_arguments(board: str, runs: int, tmp_path: Path) -> None:
    target = BOARDS[board].target
    shapes = {"images": [1, 1, 28, 28]}
    softq.build(VIT / "mnist_vit.onnx", tmp_path / "digits", target=f"{target},name=digits", input_shapes=shapes)
    small = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> f (float[2, 8] x) => (float[2, 8] y) { y = Softmax <axis = -1> (x) }'
    )
    softq.build(small, tmp_path / "second", target=f"{target},name=second")
    image = digits(1)[0]["images"]
    pixels = ", ".join(map(str, image.ravel().tolist()))
    (tmp_path / "main.c").write_text(PROGRAM % {"pixels": pixels, "runs": runs})
    objects: list[Path] = []
    for name in ("digits", "second"):
        (tmp_path / f"{name}_objects").mkdir()
        objects += model_objects(BOARDS[board], tmp_path / name, tmp_path / f"{name}_objects")
    include = [tmp_path / "digits", tmp_path / "second"]
    words = np.array([int(line, 16) for line in run(BOARDS[board], tmp_path, [tmp_path / "main.c", *objects], include)])
    null, small_arena, misaligned = 1, 2, 3
    assert words[:5].tolist() == [null, null, null, small_arena, misaligned]
    assert not words[5:15].any(), "an error writes nothing"
    assert words[15] == words[16] == 0
    results = words[17:].astype(np.uint32).view(np.float32)
    session = onnxruntime.InferenceSession(VIT / "mnist_vit.onnx", providers=["CPUExecutionProvider"])
    wanted = np.asarray(session.run(None, {"images": image})[0]).ravel()
    np.testing.assert_allclose(results[:10], wanted, rtol=1e-6, atol=1e-6)
    x = np.array([[0.5, -1, 2, 0.25, 8, 0, -3, 1], [1, 1, 1, 1, -9, 2.5, 0, 0]])
    powers = np.exp(x)
    np.testing.assert_allclose(results[10:].reshape(2, 8), powers / powers.sum(-1, keepdims=True), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m4", "m55"], indirect=True)
def test_a_model_of_voice_activity_is_that_of_onnxruntime(board: str, tmp_path: Path) -> None:
    found = measure_model(VOICE, BOARDS[board], tmp_path, count=4)
    assert len({outputs["hn"].tobytes() for outputs in found.outputs}) == 4
    assert found.stack < 2048
