"""Models and row kernels in C on microcontrollers that qemu emulates, against the interpreter and this computer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

import softq
from benchmarks.mcu.boards import BOARDS, missing, run
from benchmarks.mcu.kernels import WORKS, measure
from softq.codegen.c.machines import FAMILIES, Family

VIT = Path(__file__).parent.parent / "models" / "mnist_vit"
QUICK = ("m4",)
UNKNOWN = "m85"
"""gcc has it from version 13 on."""


def boards() -> list[object]:
    """Return cases for `parametrize`: all boards, most of them slow."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BOARDS]


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
    [
        (family, cpu, fpu)
        for family in FAMILIES
        for cpu, core in family.cores.items()
        for fpu in ("none", *core.floats)
        if cpu != UNKNOWN
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_processor_compiles_the_kernels_and_asks_for_little(
    family: Family, cpu: str, fpu: str, tmp_path: Path
) -> None:
    compiler = next(board.compiler for board in BOARDS.values() if board.cpu.name == family.name)
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"needs {compiler[0]}")
    machine = family.machine(cpu, fpu)
    target = f"{family.name},cpu={cpu},fpu={fpu},name=digits"
    softq.build(VIT / "mnist_vit.onnx", tmp_path / "out", target=target, input_shapes={"images": [1, 1, 28, 28]})
    flags = [*machine.compiler_flags, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    command = [*compiler, *flags, "-c", "digits_kernels.c", "-o", "kernels.o"]
    subprocess.run(command, check=True, cwd=tmp_path / "out")
    listed = subprocess.run([compiler[0].replace("gcc", "nm"), "-u", str(tmp_path / "out" / "kernels.o")],
                            capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    needed = {name for name in listed if name != "U"}
    # What the compiler's own library has where the processor has no unit for floats or divides nothing.
    own = {name for name in needed if name.startswith("__")}
    assert needed - own <= {"memset", "memcpy", "sqrtf"}
    assert not own or fpu == "none"


@pytest.mark.parametrize("board", boards(), indirect=True)
def test_rows_are_those_of_the_interpreter(board: str, tmp_path: Path) -> None:
    for work in WORKS:
        cost = measure(work, BOARDS[board], tmp_path)
        assert 1 < cost.instructions < 1e4
        assert 50 < cost.bytes < 2e4


@pytest.mark.parametrize("board", boards(), indirect=True)
def test_a_vision_transformer_is_that_of_this_computer(board: str, tmp_path: Path) -> None:
    cpu = BOARDS[board].cpu
    target = f"{cpu.name},cpu={board},name=digits"
    softq.build(VIT / "mnist_vit.onnx", tmp_path / "digits", target=target, input_shapes={"images": [1, 1, 28, 28]})
    with np.load(VIT / "data.npz") as data:
        image = data["images"][:1]
    with softq.load(tmp_path / "digits") as model:
        wanted = model({"images": image})["logits"].ravel()
    pixels = ", ".join(map(str, image.ravel().tolist()))
    (tmp_path / "main.c").write_text(
        '#include "digits.h"\n#include <string.h>\nvoid print_number(uint32_t value);\nuint32_t stack_used(void);\n'
        f"static const uint8_t pixels[DIGITS_IMAGES_LENGTH] = {{{pixels}}};\n"
        "int measured(void)\n{\n    float logits[DIGITS_LOGITS_LENGTH];\n    uint32_t bits;\n"
        "    const int code = digits_run(pixels, logits);\n    for (int i = 0; i < DIGITS_LOGITS_LENGTH; ++i) {\n"
        "        memcpy(&bits, &logits[i], sizeof bits);\n        print_number(bits);\n    }\n"
        "    print_number(stack_used());\n    return code;\n}\n"
    )
    sources = [tmp_path / "main.c", *sorted((tmp_path / "digits").glob("*.c"))]
    *bits, stack = (int(line, 16) for line in run(BOARDS[board], tmp_path, sources, [tmp_path / "digits"]))
    found = np.array(bits, np.uint32).view(np.float32)
    # Of this computer's functions of math.h only those are used that are exact.
    np.testing.assert_array_equal(found, wanted)
    assert stack < 2048
