"""What a model in C takes before anything is flashed: against counts by hand, and what compilers say."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

import softq
from softq.artifact.firmware import compiling
from softq.artifact.firmware.compilers import compilers, describe
from softq.artifact.firmware.compiling import _deepest, measure_with  # pyright: ignore[reportPrivateUsage]
from softq.artifact.firmware.objects import read_object
from softq.artifact.firmware.sizes import read_sizes
from softq.cli import main
from softq.codegen.c.machines import CORTEX_M
from softq.errors import InputError, SoftqError, UsageError

VIT = Path(__file__).parent.parent / "models" / "mnist_vit"
GCC = "arm-none-eabi-gcc"


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vision transformer for a Cortex-M4."""
    folder = tmp_path_factory.mktemp("sizes") / "digits"
    shapes = {"images": [1, 1, 28, 28]}
    softq.build(VIT / "mnist_vit.onnx", folder, target="cortex-m,cpu=m4", input_shapes=shapes)
    return folder


def layers_of(model: onnx.ModelProto, folder: Path, target: str = "c") -> list[dict[str, Any]]:
    built = softq.build(model, folder, target=target)
    return list(built.manifest["layers"])


def with_weights(text: str, **weights: NDArray[Any]) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def test_multiply_adds_of_a_vision_transformer(digits: Path) -> None:
    # 49 patches of 49 pixels become 64 numbers; a class token stands before them.
    patches = 49 * 49 * 64
    # Queries, keys, values and their result; scores and weighted values of 4 heads of 16; an MLP of 256.
    block = 4 * 50 * 64 * 64 + 2 * 4 * 50 * 50 * 16 + 2 * 50 * 64 * 256
    facts = json.loads((digits / "manifest.json").read_text())
    assert facts["multiply_adds"] == patches + 4 * block + 64 * 10
    attentions = [layer for layer in facts["layers"] if layer["site"] is not None]
    assert [layer["site"] for layer in attentions] == ["softmax", "softmax_1", "softmax_2", "softmax_3"]
    assert {layer["multiply_adds"] for layer in attentions} == {2 * 4 * 50 * 50 * 16}


def test_multiply_adds_of_convolutions_and_products(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = with_weights(
        "f (float[1,4,16,16] x, float[1,4,30] s, double[3,5] a, double[5,7] b, uint8[6,9] c) => "
        "(float[1,8,8,8] y, float[1,4,16,16] z, float[1,6,28] t, float[1,4,34,34] u, double[3,7] e, int32[6,5] i) {"
        " y = Conv<pads=[1,1,1,1], strides=[2,2]>(x, dense)  z = Conv<pads=[1,1,1,1], group=4>(x, single)"
        " t = Conv(s, line)  u = ConvTranspose<strides=[2,2]>(x, wide)  e = MatMul(a, b)"
        " i = MatMulInteger(c, codes) }",
        **{name: rng.normal(size=shape).astype(np.float32) for name, shape in
           {"dense": (8, 4, 3, 3), "single": (4, 1, 3, 3), "line": (6, 4, 3), "wide": (4, 4, 4, 4)}.items()},
        codes=rng.integers(-128, 128, (9, 5), dtype=np.int8),
    )  # fmt: skip
    counts = {
        tuple(layer["shape"]): layer["multiply_adds"]
        for layer in layers_of(model, tmp_path / "m")
        if layer["multiply_adds"]
    }
    assert counts == {
        (1, 8, 8, 8): 8 * 8 * 8 * 4 * 3 * 3,
        (1, 4, 16, 16): 4 * 16 * 16 * 3 * 3,
        (1, 6, 1, 28): 6 * 28 * 4 * 3,
        (1, 64, 16, 16): 16 * 16 * 4 * 4 * 4 * 4,  # Each pixel is multiplied by a kernel for every pair of channels.
        (3, 7): 3 * 5 * 7,
        (6, 5): 6 * 9 * 5,
    }


def test_memory_of_steps_is_that_of_the_plan(digits: Path) -> None:
    facts = json.loads((digits / "manifest.json").read_text())
    memory, layers = facts["memory"], facts["layers"]
    assert memory["arena_least"] == max(layer["arena"] for layer in layers) <= memory["arena"]
    assert [layer["kernel"] for layer in layers] == [step["kernel"] for step in facts["steps"]]
    # No two steps of this model read the same weights.
    assert sum(layer["weights"] for layer in layers) == memory["weights"]
    needs("gcc")
    command = ["gcc", "-c", str(digits / "digits_weights.c"), "-o", str(digits.parent / "weights.o")]
    subprocess.run(command, check=True)
    made = read_object((digits.parent / "weights.o").read_bytes(), "weights.o")
    assert 0 <= made.data - memory["weights"] < 32 * len(made.defined)  # Arrays are aligned.
    assert all(name.startswith("digits_weight_") for name in made.defined)


def test_a_vision_transformer_is_small_and_that_of_onnxruntime(digits: Path) -> None:
    memory = json.loads((digits / "manifest.json").read_text())["memory"]
    # The hidden numbers of an MLP, what it reads and what is added to it: 50 rows of 256 + 64 + 64.
    assert memory["arena"] == memory["arena_least"] == 4 * 50 * (256 + 64 + 64)
    assert memory["code"] is None or memory["code"] <= 32 << 10
    with np.load(VIT / "data.npz") as data:
        images = data["images"][:20]
    session = onnxruntime.InferenceSession(VIT / "mnist_vit.onnx", providers=["CPUExecutionProvider"])
    wanted = np.asarray(session.run(None, {"images": images})[0])
    with softq.load(digits) as model:
        found = np.concatenate([model({"images": image[np.newaxis]})["logits"] for image in images])
    assert float(np.abs(found - wanted).max()) <= 1e-6 * float(np.abs(wanted).max())


def test_flash_and_stack_are_those_of_the_compiler(digits: Path, tmp_path: Path) -> None:
    needs(GCC)
    memory = json.loads((digits / "manifest.json").read_text())["memory"]
    flags = CORTEX_M.machine("m4", "").compiler_flags
    text = 0
    for source in ("digits", "digits_kernels"):
        made = tmp_path / f"{source}.o"
        subprocess.run([GCC, *flags, "-std=c99", "-O2", "-c", str(digits / f"{source}.c"), "-o", str(made)], check=True)
        size = subprocess.run([GCC.replace("gcc", "size"), str(made)], capture_output=True, text=True, check=True)
        text += int(size.stdout.split()[6])
    assert abs(memory["code"] + memory["tables"] - text) <= 64  # Sections of functions are padded.
    assert memory["flash"] == memory["code"] + memory["tables"] + memory["weights"]
    assert memory["compiler"].startswith(f"{GCC} ")
    assert memory["library"] == ["memset"]
    # tests/test_firmware_boards.py paints the stack: it is that much, and what main and the library take.
    assert 200 < memory["stack"] < 1024
    assert memory["calls"][0] == "digits_run"
    assert any("attention" in name for name in memory["calls"])


def test_depth_of_calls_is_the_sum_along_the_deepest(tmp_path: Path) -> None:
    needs(GCC)
    (tmp_path / "m_kernels.h").write_text("void m_shallow(void);\nvoid m_deep(void);\nvoid use(void *);\n")
    (tmp_path / "m_kernels.c").write_text(
        '#include "m_kernels.h"\n'
        "void m_leaf(void)\n{\n    char x[256];\n    use(x);\n}\n"
        "void m_deep(void)\n{\n    char x[64];\n    use(x);\n    m_leaf();\n    use(x);\n}\n"
        "void m_shallow(void)\n{\n    char x[300];\n    use(x);\n}\n"
    )
    (tmp_path / "m.c").write_text(
        '#include "m_kernels.h"\nint m_run(void)\n{\n    m_shallow();\n    m_deep();\n    return 0;\n}\n'
    )
    (command,) = [c for c in compilers({"triple": "thumb", "zig": "", "cpu": ""}, ("-mthumb",)) if c[0] == GCC]
    found = measure_with(tmp_path, "m", [*command, "-fno-inline", "-fno-optimize-sibling-calls"])
    assert found.calls == ("m_run", "m_deep", "m_leaf")
    assert found.stack is not None
    assert 320 <= found.stack < 400
    assert found.library == ("use",)


def test_a_bounded_stack_counts_and_an_unknown_one_does_not() -> None:
    """gcc on x86 calls functions that align their stack `dynamic,bounded`: the number is a bound of all of it."""
    text = ["void m_run(void)\n{\n    m_leaf();\n}\nvoid m_leaf(void)\n{\n}\n"]
    told = "m.c:1:6:m_run\t16\tstatic\nm.c:5:6:m_leaf\t160\t{}\n"
    assert _deepest("m_run", told.format("dynamic,bounded"), text, {}) == (176, ("m_run", "m_leaf"))
    assert _deepest("m_run", told.format("dynamic"), text, {}) == (None, ())


def _memory_of(folder: Path, operator: str) -> dict[object, object]:
    """Build a model of one operator in C, and return what is told of its memory."""
    interface = "f (float[2, 8] x) => (float[2, 8] y)"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {interface} {{ y = {operator} (x) }}')
    softq.build(model, folder, target="c")
    memory = read_sizes(folder)["memory"]
    assert isinstance(memory, dict)
    return cast("dict[object, object]", memory)


def test_no_plan_is_below_an_arena_that_holds_nothing(tmp_path: Path) -> None:
    memory = _memory_of(tmp_path / "small", "Relu")
    assert memory["arena"] == memory["arena_least"] == 16


@pytest.mark.parametrize("cpu", ["m0", "m55"])
def test_the_compiler_of_the_processor_is_the_first(cpu: str) -> None:
    needs(GCC)
    machine = CORTEX_M.machine(cpu, "")
    first = next(compilers(vars(machine), machine.compiler_flags))
    assert first == [GCC, *machine.compiler_flags]


def test_zig_counts_no_tables_for_exceptions(digits: Path) -> None:
    machine = CORTEX_M.machine("m4", "")
    command = list(compilers(vars(machine), machine.compiler_flags))[-1]
    if "-target" not in command:
        pytest.skip("needs zig")
    found = measure_with(digits, "digits", command)
    assert not [name for name in found.library if "unwind" in name]


def test_the_command_prints_what_the_folder_says(digits: Path, tmp_path: Path) -> None:
    code, text = invoke("size", str(digits))
    facts = json.loads((digits / "manifest.json").read_text())
    assert code == 0
    assert f"arena   {facts['memory']['arena']:,} bytes; no plan is below {facts['memory']['arena_least']:,}" in text
    assert f"work    {facts['multiply_adds']:,} multiply-adds" in text
    assert len([line for line in text.splitlines() if line[:1].isdigit()]) == len(facts["steps"])
    code, text = invoke("size", str(digits), "--json")
    assert (code, json.loads(text)["memory"]) == (0, facts["memory"])
    code, text = invoke("size", str(digits), "--cc", "gcc -m64", "--json")
    compiled = json.loads(text)["memory"]
    assert code == 0
    assert compiled["compiler"].startswith("gcc ")
    assert compiled["code"] > 1000
    assert {key: compiled[key] for key in ("arena", "weights")} == {
        key: facts["memory"][key] for key in ("arena", "weights")
    }


def test_what_no_compiler_told_is_not_guessed(tmp_path: Path) -> None:
    memory = _memory_of(tmp_path / "small", "Softmax <axis = -1>")
    assert all(memory[key] is None for key in ("flash", "code", "tables", "stack", "calls", "library", "compiler"))
    code, text = invoke("size", str(tmp_path / "small"))
    assert code == 0
    assert "that of code is not known" in text
    assert "stack" not in text
    with pytest.raises(UsageError, match=r"^there is no compiler here for c; name one by --cc$"):
        read_sizes(tmp_path / "small", compile=True)
    with pytest.raises(UsageError, match=r"^cc is 'nosuchcc -O2'; there is no such program$"):
        read_sizes(tmp_path / "small", cc="nosuchcc -O2")


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is built where no compiler takes it, and its size says what the first one says."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> f (float[2, 8] x) => (float[2, 8] y) { y = Softmax <axis = -1> (x) }'
    )
    for name in ("first", "second"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho 'error: {name} knows no such processor' >&2\nexit 1\n")
        program.chmod(0o755)
    commands = [[str(tmp_path / name)] for name in ("first", "second")]
    monkeypatch.setattr(compiling, "compilers", lambda machine, flags: iter(commands))
    softq.build(model, tmp_path / "small", target="cortex-m,cpu=m4")
    memory = read_sizes(tmp_path / "small")["memory"]
    assert isinstance(memory, dict)
    assert memory["flash"] is None
    with pytest.raises(SoftqError, match="first knows no such processor"):
        read_sizes(tmp_path / "small", compile=True)


def test_other_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> f (float[2, 8] x) => (float[2, 8] y) { y = Softmax <axis = -1> (x) }'
    )
    softq.build(model, tmp_path / "cpu", target="cpu")
    softq.build(model, tmp_path / "old", target="c")
    facts = json.loads((tmp_path / "old" / "manifest.json").read_text())
    del facts["layers"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(facts))
    (tmp_path / "empty").mkdir()
    for folder, message in (
        ("nothing", "no such folder; expected an artifact"),
        ("empty", "has no manifest.json; expected the folder of an artifact"),
        ("cpu", "is a softq artifact for cpu; only of a model in C the size is known"),
        ("old", "has no memory, multiply_adds and layers; build the model again"),
    ):
        code, text = invoke("size", str(tmp_path / folder))
        assert code == 2, folder
        assert message in text
        assert len(text.splitlines()) == 1, text


def test_broken_object_files_are_refused() -> None:
    with pytest.raises(InputError, match=r"^x: is no ELF file of a little-endian processor$"):
        read_object(b"\x7fELF\1\2" + bytes(60), "x")
    with pytest.raises(InputError, match=r"^x: is a broken ELF file$"):
        read_object(b"\x7fELF\1\1" + bytes(10), "x")


@pytest.mark.parametrize(
    ("line", "version"), [("cc (Debian 12.2.0-14) 12.2.1", " 12.2.1"), ("version 14.0.6", " 14.0.6"), ("none", "")]
)
def test_a_compiler_is_named_with_its_version(line: str, version: str, tmp_path: Path) -> None:
    program = tmp_path / "cc"
    program.write_text(f"#!/bin/sh\necho '{line}'\necho 'Copyright 9.9'\n")
    program.chmod(0o755)
    assert describe([str(program)]) == f"cc{version}"
