"""Models in C: what a compiler and a linker say of them, what they compute, and what wrong arguments give."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.errors import InputError, RefusalError, UsageError
from softq.modelfile import save
from tests.amount import amount

Array = NDArray[Any]
VIT = Path(__file__).parent.parent / "models" / "mnist_vit"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vision transformer in C, its softmaxes replaced by 2-bit ones."""
    folder = tmp_path_factory.mktemp("firmware")
    calibration = str(VIT / "calibration.npz")
    converted = softq.convert(VIT / "mnist_vit.onnx", method="deferred-log", bits=2, calibration=calibration)
    save(converted.model, folder / "model.onnx")
    softq.build(converted.model, folder / "digits", target="c", input_shapes={"images": [1, 1, 28, 28]})
    return folder / "digits"


def compiled(folder: Path, out: Path, *flags: str, compiler: str = COMPILERS[0] if COMPILERS else "gcc") -> Path:
    """Return a library of the C files of a folder."""
    library = out / f"{compiler}{len(list(out.iterdir()))}.so"
    sources = sorted(map(str, folder.glob("*.c")))
    subprocess.run([compiler, *STRICT, *flags, "-shared", "-fPIC", *sources, "-lm", "-o", str(library)], check=True)
    return library


def run(library: Path, images: Array, name: str = "digits") -> Array:
    """Return the logits of images, one at a time."""
    function = getattr(ctypes.CDLL(str(library)), f"{name}_run")
    results = np.zeros((len(images), 10), np.float32)
    for image, row in zip(np.ascontiguousarray(images), results, strict=True):
        assert function(ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(row.ctypes.data)) == 0
    return results


@pytest.fixture(scope="module")
def optimised(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of these files."""
    return compiled(digits, tmp_path_factory.mktemp("optimised"), "-O2")


def images(count: int) -> Array:
    with np.load(VIT / "data.npz") as data:
        return data["images"][:count]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_gives_the_same_bytes_without_a_warning(
    compiler: str, digits: Path, optimised: Path, tmp_path: Path
) -> None:
    given = images(4)
    wanted = run(optimised, given)
    few = [["-O0"], ["-O3", "-flto"]]
    for flags in amount(few, [*few, ["-O3"], ["-Os", "-fno-strict-aliasing"]]):
        found = run(compiled(digits, tmp_path, *flags, compiler=compiler), given)
        np.testing.assert_array_equal(found, wanted, err_msg=str(flags))


def test_python_runs_the_same_files(digits: Path, optimised: Path) -> None:
    given = images(200)
    with softq.load(digits) as model:
        found = np.concatenate([model({"images": given[i : i + 1]})["logits"] for i in range(len(given))])
        assert [(spec.name, spec.shape) for spec in model.inputs] == [("images", (1, 1, 28, 28))]
        with pytest.raises(InputError, match=r"input 'images' has shape \[2, 1, 28, 28\]; expected"):
            model({"images": given[:2]})
    np.testing.assert_array_equal(found[:3], run(optimised, given[:3]))
    session = onnxruntime.InferenceSession(digits.parent / "model.onnx", providers=["CPUExecutionProvider"])
    wanted = np.asarray(session.run(None, {"images": given})[0])
    # A score at the border of two codes may be rounded to either side.
    assert float(np.quantile(np.abs(found - wanted).max(-1), 0.9)) < 1e-4
    assert np.mean(found.argmax(-1) == wanted.argmax(-1)) >= 0.99


def test_sanitizers_find_nothing(digits: Path, optimised: Path, tmp_path: Path) -> None:
    main = tmp_path / "main.c"
    pixels = ", ".join(map(str, images(1).ravel().tolist()))
    main.write_text(
        f'#include "digits.h"\n#include <stdio.h>\nstatic const uint8_t pixels[DIGITS_IMAGES_LENGTH] = {{{pixels}}};\n'
        "int main(void)\n{\n    float logits[DIGITS_LOGITS_LENGTH];\n    int code = digits_run(pixels, logits);\n"
        '    for (int i = 0; i < DIGITS_LOGITS_LENGTH; ++i) {\n        printf("%a\\n", (double)logits[i]);\n    }\n'
        "    return code;\n}\n"
    )
    sources = [str(main), *map(str, digits.glob("*.c"))]
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    subprocess.run(["gcc", *STRICT, *flags, f"-I{digits}", *sources, "-lm", "-o", "main"], check=True, cwd=tmp_path)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    found = np.array([float.fromhex(line) for line in done.stdout.split()], np.float32)
    np.testing.assert_array_equal(found, run(optimised, images(1))[0])


def test_two_models_link_together_and_a_header_is_cpp(digits: Path, tmp_path: Path) -> None:
    softq.build(small_model(), tmp_path / "other", target="c,name=second")
    main = tmp_path / "main.cpp"
    main.write_text(
        '#include "digits.h"\n#include "second.h"\nint main() { return digits_run(nullptr, nullptr) + '
        "second_run(nullptr, nullptr) == 2 * DIGITS_NULL_POINTER ? 0 : 1; }\n"
    )
    folders = (digits, tmp_path / "other")
    objects: list[str] = []
    for source in [path for folder in folders for path in sorted(folder.glob("*.c"))]:
        objects.append(f"{source.stem}.o")
        subprocess.run(["gcc", *STRICT, "-O1", "-c", str(source), "-o", objects[-1]], check=True, cwd=tmp_path)
    include = [f"-I{folder}" for folder in folders]
    subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", *include, "main.cpp", *objects, "-lm", "-o", "main"],
                   check=True, cwd=tmp_path)  # fmt: skip
    subprocess.run([str(tmp_path / "main")], check=True)
    listed = subprocess.run(["nm", "-g", *objects], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    defined = [line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3]
    assert defined
    assert all(symbol.startswith(("digits_", "second_")) for symbol in defined), defined
    needed = {line.split()[-1] for line in listed.splitlines() if line.split()[:1] == ["U"]} - set(defined)
    assert needed <= {"memset", "memcpy", "memmove", "sqrtf"}, needed


def small_model(length: int | str = 8) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> f (float[2, {length}] x) => (float[2, {length}] y) '
        "{ y = Softmax <axis = -1> (x) }"
    )


def test_wrong_arguments_are_codes(digits: Path, tmp_path: Path) -> None:
    library = ctypes.CDLL(str(compiled(digits, tmp_path, "-O1")))
    facts = json.loads((digits / "manifest.json").read_text())
    arena = facts["memory"]["arena"]
    assert f"#define DIGITS_ARENA_BYTES {arena}" in (digits / "digits.h").read_text()
    memory = np.full(arena + 64, 0xA5, np.uint8)
    start = -memory.ctypes.data % 16
    image, logits = images(1), np.full(10, 7, np.float32)

    def call(given: Array | None, result: Array | None, at: int, size: int) -> int:
        pointers = [ctypes.c_void_p(None if x is None else x.ctypes.data) for x in (given, result)]
        return library.digits_run_in(*pointers, ctypes.c_void_p(memory.ctypes.data + at), ctypes.c_uint32(size))

    assert call(None, logits, start, arena) == 1
    assert call(image, None, start, arena) == 1
    assert call(image, logits, start, arena - 1) == 2
    assert call(image, logits, start + 8, arena) == 3
    assert np.all(logits == 7), "an error writes nothing"
    assert np.all(memory == 0xA5)
    results: list[bytes] = []
    for noise in (0xA5, 0x00, 0xFF):
        memory[:] = noise
        assert call(image, logits, start, arena) == 0
        assert np.all(memory[:start] == noise), "written before the arena"
        assert np.all(memory[start + arena :] == noise), "written behind the arena"
        results.append(logits.tobytes())
    assert len({*results}) == 1, "what lay in the arena is of no meaning"


def test_runs_at_once_each_with_an_arena_of_its_own(digits: Path, tmp_path: Path) -> None:
    facts = json.loads((digits / "manifest.json").read_text())
    library = compiled(digits, tmp_path, "-O2")
    given = images(16)
    wanted = run(library, given)
    function = ctypes.CDLL(str(library)).digits_run_in  # without Python's lock while it runs

    def runs(part: Array) -> Array:
        size = facts["memory"]["arena"]
        memory, results = np.zeros(size + 16, np.uint8), np.zeros((len(part), 10), np.float32)
        arena = ctypes.c_void_p(memory.ctypes.data + -memory.ctypes.data % 16)
        for image, row in zip(np.ascontiguousarray(part), results, strict=True):
            given = (ctypes.c_void_p(array.ctypes.data) for array in (image, row))
            assert function(*given, arena, ctypes.c_uint32(size)) == 0
        return results

    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            found = np.concatenate(list(threads.map(runs, np.split(given, 4))))
            np.testing.assert_array_equal(found, wanted)


def test_open_shapes_and_wrong_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match=r"^'x' has a length that is not known, N; .*--input-shape"):
        softq.build(small_model("N"), tmp_path / "out", target="c")
    for name in ("Upper", "1st", "a b", "x" * 32):
        with pytest.raises(UsageError, match=r"^name is .*; symbols begin with it"):
            softq.build(small_model(), tmp_path / "out", target=f"c,name={name}")
    with pytest.raises(UsageError, match=r"^target cortex-m: kernels of m4 is 'object'; allowed: c$"):
        softq.build(small_model(), tmp_path / "out", target="cortex-m,cpu=m4,kernels=object")
    with pytest.raises(UsageError, match=r"^target cortex-m: kernels of m55 is 'llvm'; allowed: c, object$"):
        softq.build(small_model(), tmp_path / "out", target="cortex-m,cpu=m55,kernels=llvm")
    assert not (tmp_path / "out").exists()


def test_kernels_as_an_object_have_a_form_in_c_beside_them(tmp_path: Path) -> None:
    softq.build(small_model(), tmp_path / "out", target="cortex-m,cpu=m55,name=one")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json", "one.c", "one.h", "one_kernels.h", "one_kernels.o", "one_weights.c", "one_host.c",
    }  # fmt: skip
    given = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    wanted = np.exp(given) / np.exp(given).sum(-1, keepdims=True)
    with softq.load(tmp_path / "out") as model:
        assert np.abs(model({"x": given})["y"].astype(np.float32) - wanted).max() < 1e-6
    object_file = (tmp_path / "out" / "one_kernels.o").read_bytes()
    assert b"one_softq_exact" in object_file
    # A project may take all files in C: the one for other processors is empty there.
    command = ["gcc", *STRICT, "-c", "-o", "host.o", str(tmp_path / "out" / "one_host.c")]
    subprocess.run(command, check=True, cwd=tmp_path)
    listed = subprocess.run(["nm", "host.o"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "_run" not in listed
    subprocess.run([*command, "-DONE_HOST"], check=True, cwd=tmp_path)


def test_a_model_takes_the_place_of_another(tmp_path: Path) -> None:
    softq.build(small_model(), tmp_path / "out", target="c,name=one")
    softq.build(small_model(), tmp_path / "out", target="c,name=two")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json", "two.c", "two.h", "two_kernels.c", "two_kernels.h", "two_weights.c",
    }  # fmt: skip
    (tmp_path / "out" / "mine.c").write_text("")
    with pytest.raises(UsageError, match=r"'mine\.c' in it is not of softq"):
        softq.build(small_model(), tmp_path / "out", target="c,name=one")


def test_an_artifact_that_was_changed_is_not_run(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "digits")
    source = tmp_path / "digits" / "digits.c"
    source.write_text(source.read_text().replace("return DIGITS_OK", "return 0       "))
    with pytest.raises(InputError, match=r"digits\.c: .*"):
        softq.load(tmp_path / "digits")
    with pytest.raises(UsageError, match="threads is 2; a model in C runs on one"):
        softq.load(digits, threads=2)


@pytest.mark.parametrize("spans", [[(100, 0, 3), (50, 1, 2), (70, 3, 5), (10, 4, 4)], []])
def test_no_two_tensors_overlap_while_both_are_needed(spans: Sequence[tuple[int, int, int]]) -> None:
    check_plan(spans)


def test_plans_of_random_tensors() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        count = int(rng.integers(1, 30))
        first = rng.integers(0, 20, count)
        check_plan([(int(size), int(at), int(at + more)) for size, at, more in
                    zip(rng.integers(1, 4000, count), first, rng.integers(0, 8, count), strict=True)])  # fmt: skip


def check_plan(spans: Sequence[tuple[int, int, int]]) -> None:
    from softq.compiler.steps.offset_plan import Span, plan_offsets

    plan = plan_offsets([Span(*span) for span in spans])
    steps = range(max((last for _, _, last in spans), default=-1) + 1)
    least = max(
        (sum(-(-size // 16) * 16 for size, first, last in spans if first <= at <= last) for at in steps), default=0
    )
    assert plan.least == least <= plan.bytes
    for i, (size, first, last) in enumerate(spans):
        assert plan.offsets[i] % 16 == 0
        assert plan.offsets[i] + size <= plan.bytes
        for j, (other, begin, end) in enumerate(spans[:i]):
            if begin <= last and first <= end:
                apart = plan.offsets[i] >= plan.offsets[j] + other or plan.offsets[j] >= plan.offsets[i] + size
                assert apart, (i, j)
