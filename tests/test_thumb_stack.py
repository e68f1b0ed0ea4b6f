"""The stack of functions in an object file, read off their instructions: what gcc says of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from softq.artifact.firmware.thumb_stack import read_stacks

GCC = "arm-none-eabi-gcc"
SIZES = (1, 3, 17, 100, 127, 128, 129, 255, 300, 500, 1021, 1024, 1500, 4000, 65536)
CASES = [
    ("-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16", "-O2"),
    ("-mcpu=cortex-m55 -mfloat-abi=hard -mfpu=auto", "-O2"),
    ("-mcpu=cortex-m55 -mfloat-abi=hard -mfpu=auto", "-O0"),
]


def source() -> str:
    """Return functions with frames of many sizes, registers of floats, and calls of one another."""
    lines = ["void use(void *x);", "float one(float x);"]
    for size in SIZES:
        lines.append(f"void frame_{size}(void) {{ int x[{size}]; use(x); }}")
        calls = "".join(f"a{i} = one(a{i});" for i in range(size % 14))
        given = ", ".join(f"float a{i}" for i in range(size % 14)) or "void"
        total = " + ".join(f"a{i}" for i in range(size % 14)) or "0"
        lines.append(f"float floats_{size}({given}) {{ {calls} return {total}; }}")
        lines.append(f"void caller_{size}(void) {{ char x[{size}]; use(x); frame_{size}(); use(x); }}")
    lines.append("int leaf(int x) { return x + 1; }")
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(shutil.which(GCC) is None, reason=f"needs {GCC}")
@pytest.mark.parametrize(("flags", "opt"), CASES)
def test_frames_are_those_of_the_compiler(flags: str, opt: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(source())
    command = [GCC, "-mthumb", *flags.split(), opt, "-fno-inline", "-fstack-usage", "-ffunction-sections", "-c", "x.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    wanted: dict[str, int] = {}
    for line in (tmp_path / "x.su").read_text().splitlines():
        place, size, how = line.split("\t")
        assert how == "static"
        wanted[place.rpartition(":")[2]] = int(size)
    found = read_stacks((tmp_path / "x.o").read_bytes())
    assert len(wanted) == 3 * len(SIZES) + 1
    assert {name: stack.bytes for name, stack in found.items()} == wanted
    for size in SIZES:
        assert found[f"caller_{size}"].calls == (f"frame_{size}",)
        assert found[f"frame_{size}"].calls == ()


@pytest.mark.skipif(shutil.which(GCC) is None, reason=f"needs {GCC}")
def test_what_no_constant_says_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(
        "void use(void *x);\nvoid great(void) { int x[65536]; use(x); }\nvoid small(void) { int x[5]; use(x); }\n"
        "void open(int n) { int x[n]; use(x); }\n"
    )
    for cpu, known in (("m3", {"great", "small"}), ("m55", {"great", "small"})):
        command = [GCC, "-mthumb", f"-mcpu=cortex-{cpu}", "-mfloat-abi=soft", "-O2", "-c", "x.c"]
        subprocess.run(command, check=True, cwd=tmp_path)
        found = read_stacks((tmp_path / "x.o").read_bytes())
        assert {name for name, stack in found.items() if stack.bytes is not None} == known


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(GCC) is None, reason=f"needs {GCC}")
def test_kernels_of_an_object_have_their_stack_in_the_manifest(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    import softq

    model = Path(__file__).parent.parent / "models" / "mnist_vit" / "mnist_vit.onnx"
    softq.build(model, tmp_path / "digits", target="cortex-m,cpu=m55", input_shapes={"images": [1, 1, 28, 28]})
    memory = json.loads((tmp_path / "digits" / "manifest.json").read_text())["memory"]
    stacks = read_stacks((tmp_path / "digits" / "digits_kernels.o").read_bytes())
    assert memory["calls"][-1] in stacks
    deepest = max(stack.bytes for stack in stacks.values() if stack.bytes is not None)
    assert deepest <= memory["stack"] <= deepest + 200
