"""Artifacts from hand-made programs: what they compute, and every way in which a folder or an input can be wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from softq import compare
from softq.artifact import Artifact, check_folder, load, manifest, toolchain, write
from softq.artifact.machine import Cpu
from softq.artifact.program import Op, Program, Step, Tensor
from softq.cli import main
from softq.errors import InputError, SoftqError, UsageError
from softq.runner import Runner
from tests import handmade
from tests.handmade import HOST, TABLE, Array, look_up_program, needs_host, rows_expected, rows_inputs, rows_program

pytestmark = needs_host


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        rows_program(), HOST, tmp_path_factory.mktemp("artifacts") / "rows", target="cpu", model={"graph": "1"}
    )


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(look_up_program(), HOST, tmp_path_factory.mktemp("artifacts") / "table")


@pytest.fixture
def copy(rows: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(rows, tmp_path / "copy"))


def assert_rows(model: Artifact, batch: int, length: int) -> None:
    given = rows_inputs(batch, length)
    found = model(given)
    for name, expected in rows_expected(**given).items():
        # Sums of 8 float32 of about 10, in another order.
        np.testing.assert_allclose(np.asarray(found[name], np.float32), expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_for_several_shapes_in_turn(rows: Path, threads: int) -> None:
    with load(rows, threads) as model:
        # The third and the last are large enough for several threads.
        for batch, length in ((1, 1), (3, 7), (400, 100), (0, 5), (4, 0), (2, 100), (1, 3), (3000, 20), (3000, 20)):
            assert_rows(model, batch, length)


def test_is_a_runner_and_says_what_it_is(rows: Path) -> None:
    with load(rows) as model:
        assert isinstance(model, Runner)
        assert [str(spec) for spec in model.inputs] == ["float32[batch, seq, 8]", "float32[batch, seq]"]
        assert [spec.name for spec in model.outputs] == ["shifted", "sums", "same", "flat y", "again"]
        assert model.outputs[1].shape == (None,)
        assert model.sites == {'encoder/softmax */ "one"': ("add",), "encoder/two": ("row_sum",)}
        assert model.manifest["model"] == {"graph": "1"}
        assert model.manifest["arena"] == [64, "((batch * seq) * 8) * 4"]
        assert "x float32[batch, seq, 8]" in repr(model)
        assert list(model(rows_inputs(1, 2), ["sums"])) == ["sums"]
    assert "closed" in repr(model)


def test_moved_and_opened_twice(copy: Path, tmp_path: Path) -> None:
    with load(copy) as first:
        moved = copy.rename(tmp_path / "elsewhere")
        with load(moved) as second:
            assert_rows(second, 2, 3)
            assert_rows(first, 2, 3)
            shutil.rmtree(moved)
            # Contexts that are opened now share the mapping of the first one.
            in_threads(8, lambda number: assert_rows(first, 1 + number, 3))


def test_a_newer_artifact_in_its_place_leaves_the_loaded_one_alone(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with load(write(rows_program(), HOST, out)) as old:
        write(look_up_program(), HOST, out)
        with load(out) as new:
            np.testing.assert_array_equal(new({"ids": np.array([3, 1])})["rows"], TABLE[[3, 1]])
            assert_rows(old, 5, 6)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_newer_artifact_may_take_its_place_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, read, times = write(rows_program(), HOST, tmp_path / "model"), manifest.read, list[int]()

    def replaced(folder: Path, kind: str | None = manifest.KIND) -> dict[str, object]:
        facts = read(folder, kind)
        if not times:
            times.append(1)
            write(look_up_program(), HOST, out)
        return facts

    monkeypatch.setattr(manifest, "read", replaced)
    with load(out) as model:
        np.testing.assert_array_equal(model({"ids": np.array([3, 1])})["rows"], TABLE[[3, 1]])


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("threads", [1, 3])
def test_calls_from_eight_threads(rows: Path, threads: int) -> None:
    with load(rows, threads) as model:

        def work(number: int) -> None:
            for turn in range(20):
                assert_rows(model, 1 + (number * 7 + turn * 131) % 400, 1 + (number + turn) % 9)

        in_threads(8, work)


def test_closing_while_calls_run(rows: Path) -> None:
    model, given = load(rows, 2), rows_inputs(2000, 100)

    def work(number: int) -> None:
        with pytest.raises(SoftqError, match="closed"):
            again()

    def again() -> None:
        while True:
            model(given)

    closer = threading.Timer(0.05, model.close)
    closer.start()
    in_threads(4, work)
    closer.join()
    model.close()
    with pytest.raises(SoftqError, match="closed"):
        model(rows_inputs(1, 1))


def test_a_forked_process_computes_and_ends(rows: Path) -> None:
    script = (
        "import os, sys\nfrom softq.artifact import load\nfrom tests.handmade import *\n"
        "model = load(sys.argv[1], 3)\ngiven = rows_inputs(400, 90)\nmodel(given)\nchild = os.fork()\n"
        "good = np.allclose(model(given)['sums'], rows_expected(**given)['sums'], atol=1e-4)\nmodel.close()\n"
        "if child == 0: os._exit(0 if good else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not good)\n"
    )
    subprocess.run([sys.executable, "-c", script, rows], check=True, timeout=60, cwd=Path(__file__).parent.parent)


def wrong(**changes: Array) -> dict[str, Array]:
    return {**rows_inputs(2, 3), **changes}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (wrong(x=np.zeros((2, 3, 8))), "'x' is float64; expected float32"),
        (wrong(x=np.zeros((2, 3, 8), ">f4")), "'x' is >f4; expected float32"),
        (wrong(x=np.zeros((2, 24), np.float32)), r"'x' has shape \[2, 24\]; expected float32\[batch, seq, 8\]"),
        (wrong(x=np.zeros((2, 3, 9), np.float32)), "'x' has 9 elements along axis 2; expected 8"),
        (wrong(y=np.zeros((2, 4), np.float32)), "'y' has 4 elements along axis 1; expected 3, which is 'seq' of"),
        (wrong(z=np.zeros(1)), "has no input 'z'"),
        ({"x": rows_inputs(1, 1)["x"]}, "input 'y' is missing"),
        (rows_inputs(1, 101), "at most 100 tokens: it is 101, allowed is 0 to 100"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_named(rows: Path, inputs: dict[str, Array], message: str) -> None:
    with load(rows) as model:
        with pytest.raises(InputError, match=message):
            model(inputs)
        assert_rows(model, 1, 2)


def test_other_wrong_arguments(rows: Path, table: Path) -> None:
    with load(rows) as model, pytest.raises(UsageError, match="has no output 'nothing'"):
        model(rows_inputs(1, 1), ["nothing"])
    with load(rows) as model, pytest.raises(InputError, match="'x' is a list"):
        model({**rows_inputs(1, 1), "x": [1.0]})  # pyright: ignore[reportArgumentType]
    for threads in (0, -1, 100_000, True):
        with pytest.raises(UsageError, match="threads is"):
            load(rows, threads)
    with load(table) as model:
        with pytest.raises(InputError, match="an id is not in the table of 10 rows"):
            model({"ids": np.array([1, 10])})
        np.testing.assert_array_equal(model({"ids": np.array([1, 9])})["rows"], TABLE[[1, 9]])


def test_views_and_misaligned_arrays(rows: Path) -> None:
    given = rows_inputs(2, 6)
    wide = np.zeros((2, 6, 16), np.float32)
    wide[..., ::2] = given["x"]
    raw = np.zeros(given["y"].nbytes + 1, np.uint8)[1:].view(np.float32).reshape(given["y"].shape)
    raw[...] = given["y"]
    with load(rows) as model:
        found = model({"x": wide[..., ::2], "y": raw})
        np.testing.assert_allclose(np.asarray(found["sums"], np.float32), rows_expected(**given)["sums"], rtol=1e-5)


def edit(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def truncate(path: Path, size: int) -> None:
    os.truncate(path, size)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: truncate(f / "weights.bin", 64), "has 64 bytes; the manifest says 128"),
        (lambda f: truncate(f / "libmodel.so", 100), "libmodel.so: has 100 bytes"),
        (lambda f: (f / "weights.bin").write_bytes(b"x" * 128), "weights.bin: was changed"),
        (lambda f: (f / "weights.bin").unlink(), "weights.bin is missing"),
        (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
        (lambda f: (f / "manifest.json").write_bytes(b"\xff{"), "not JSON"),
        (lambda f: (f / "manifest.json").write_text("[" * 100_000), "not JSON"),
        (lambda f: (f / "manifest.json").write_text("[]"), "no JSON object"),
        (lambda f: edit(f, lambda m: m.update(schema=2)), "schema is 2; this softq reads 1"),
        (lambda f: edit(f, lambda m: m.update(kind="other")), "kind is 'other'"),
        (
            lambda f: edit(f, lambda m: m.update(kind="softq operators")),
            "kind is .softq operators.; .*; softq.onnxruntime.register loads it",
        ),
        (lambda f: edit(f, lambda m: m.pop("files")), "files is no JSON object"),
        (lambda f: edit(f, lambda m: m.update(inputs=[])), "the manifest's inputs are not those of libmodel.so"),
        (lambda f: edit(f, lambda m: m.update(outputs=[{"name": 1}])), "shape in outputs is no list"),
    ],
)  # fmt: skip
def test_damaged_folders(copy: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(copy)
    with pytest.raises(InputError, match=message):
        load(copy)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load(tmp_path / "nothing")


def test_a_processor_that_lacks_a_feature(tmp_path: Path) -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    # AMD dropped the first two, Intel never had them.
    lacking = next(name for name in ("xop", "fma4", "avx512f") if name not in flags)
    out = write(rows_program(), replace(HOST, requires=("sse3", lacking)), tmp_path / "model")
    with pytest.raises(InputError, match=f"this processor lacks '{lacking}'"):
        load(out)
    with load(write(rows_program(), replace(HOST, requires=("sse3",)), tmp_path / "plain")) as model:
        assert_rows(model, 1, 1)
    with pytest.raises(SoftqError, match="cannot ask a processor for 'magic'"):
        write(rows_program(), replace(HOST, requires=("magic",)), tmp_path / "never")


def test_hostile_sizes_are_errors(tmp_path: Path) -> None:
    """Inputs of no bytes that stand for more elements than there is memory, or than int64 can count."""
    tensors = (
        Tensor("a", "int8", ("n", 0), "input", 0),
        Tensor("b", "int8", ("m", 0), "input", 1),
        Tensor("big", "float32", ("n", "m"), "arena", 0),
        Tensor("out", "float32", ("n",), "output", 0),
    )
    step = Step("row_sum", (2, 3), ("m",), "n", 1)
    program = Program((0, 1), (3,), tensors, (Op("mul", Op("mul", "n", "m"), 4),), (step,), (), {}, handmade.objects())
    with load(write(program, HOST, tmp_path / "model")) as model:

        def call(n: int, m: int) -> object:
            return model({"a": np.zeros((n, 0), np.int8), "b": np.zeros((m, 0), np.int8)}, [])

        with pytest.raises(InputError, match=r"overflows.*: n = 2305843009213693952, m = 23058"):
            call(2**61, 2**61)
        with pytest.raises(SoftqError, match="no memory"):
            call(2**40, 2**20)
        call(0, 2**61)


def test_programs_that_contradict_themselves(tmp_path: Path) -> None:
    good = rows_program()
    bad = {
        "no name in C": replace(good, steps=(replace(good.steps[0], kernel="a b"),)),
        "different numbers of arguments": replace(good, steps=(good.steps[0], replace(good.steps[0], scalars=()))),
        "dimension 'other'": replace(good, slots=(64, "other")),
        "more than 64 bits": replace(good, slots=(64, 2**64)),
        "a tensor at offset 0 has 32 bytes": replace(good, weights={}),
        "misaligned": replace(good, weights={**good.weights, 8: TABLE}),
        "fails with exit code": replace(good, steps=(replace(good.steps[0], kernel="nowhere"),)),
    }
    for message, program in bad.items():
        with pytest.raises(SoftqError, match=message):
            write(program, HOST, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("kill -9 $$", "was ended by SIGKILL, as it is where memory runs out"),
        ("kill -11 $$", "was ended by SIGSEGV$"),
        ("echo 'warning'; echo 'error: no room' >&2; exit 3", "fails with exit code 3: error: no room"),
        ("exit 1", "fails with exit code 1: it says nothing"),
    ],
)
def test_a_compiler_that_fails(does: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SoftqError, match=message):
        toolchain.run(["sh", "-c", does], tmp_path)


def test_an_empty_program(tmp_path: Path) -> None:
    program = Program((), (), (), (), (), (), {}, handmade.objects())
    with load(write(program, HOST, tmp_path / "model")) as model:
        assert model({}) == {}


def test_what_is_replaced(copy: Path, tmp_path: Path) -> None:
    write(look_up_program(), HOST, copy)
    before = (copy / "manifest.json").read_bytes()
    broken = replace(rows_program(), objects=(b"nothing",))
    with pytest.raises(SoftqError):
        write(broken, HOST, copy)
    assert (copy / "manifest.json").read_bytes() == before
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"'notes.txt' in it is not of softq"):
        write(rows_program(), HOST, copy)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    (tmp_path / "link").symlink_to(copy)
    for name, message in (("file", "is a file"), ("full", "other things"), ("link", "is a link")):
        with pytest.raises(UsageError, match=message):
            check_folder(tmp_path / name)
    with pytest.raises(InputError, match="does not exist"):
        check_folder(tmp_path / "no" / "where")


def test_leftovers_of_a_crash_go(tmp_path: Path) -> None:
    (tmp_path / ".model.0123abcd.softq-tmp").mkdir()
    write(look_up_program(), HOST, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_same_program_gives_the_same_bytes(rows: Path, tmp_path: Path) -> None:
    again = write(rows_program(), HOST, tmp_path / "again", target="cpu", model={"graph": "1"})
    for path in rows.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_compilers(tmp_path: Path) -> None:
    if shutil.which("gcc") is not None:
        with load(write(rows_program(), HOST, tmp_path / "gcc", cc="gcc")) as model:
            assert_rows(model, 2, 2)
    with pytest.raises(UsageError, match="there is no such program"):
        write(rows_program(), HOST, tmp_path / "model", cc="no-such-cc")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = rows_program()
    monkeypatch.setattr("softq.artifact.toolchain.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install ziglang"):
        write(
            program,
            Cpu(
                name="far",
                triple="riscv64-unknown-linux-gnu",
                cpu="x",
                features=(),
                zig="riscv64-linux-gnu",
                vector_bytes=0,
                vectors=0,
            ),
            tmp_path / "m",
        )


# The command line


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    labels = np.random.default_rng(0).integers(0, 8, (6, 5))
    np.savez(path, allow_pickle=False, **rows_inputs(6, 5), **{"label.t": labels})
    return path


def softq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def test_run_against_labels(rows: Path, data: Path) -> None:
    result = softq(rows, "--data", data, "--metric", "top1-accuracy", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    shifted = rows_expected(**rows_inputs(6, 5))["shifted"]
    labels = np.load(data)["label.t"]
    assert found["reference"] == "labels"
    assert found["candidate"] == str(rows)
    assert found["metrics"][0]["reference"] is None
    assert found["metrics"][0]["candidate"] == pytest.approx((shifted.argmax(-1) == labels).mean())
    # Without a name, those of the usual metrics that score one model.
    assert [m["name"] for m in json.loads(softq(rows, "--data", data, "--json").stdout)["metrics"]] == ["perplexity"]


def test_run_against_a_model(rows: Path, data: Path, tmp_path: Path) -> None:
    arguments = (rows, "--data", data, "--reference", rows, "--output", "sums", "--threads", "2")
    assert softq(*arguments).exit_code == 2  # 30 sums are not 6 samples
    markdown = tmp_path / "report.md"
    result = softq(*arguments[:-4], "--metric", "max-error", "--limit", "0", "--markdown", markdown)
    assert result.exit_code == 0, result.output
    assert "passed" in result.stdout
    assert "max-error" in markdown.read_text()


def test_run_times_it_beside_a_model_with_as_many_threads(
    rows: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "compare_times", partial(compare.compare_times, seconds=0.0))
    given: list[dict[str, Any]] = []
    check = compare.check

    def look(reference: Artifact, candidate: Artifact, data: str, **options: Any) -> object:
        given.append(options)
        return check(reference, candidate, data, **options)

    monkeypatch.setattr(compare, "check", look)
    result = softq(rows, "--data", data, "--reference", rows, "--threads", "2", "--time", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["time_ratio"]["turns"] == 7
    assert [options["threads"] for options in given] == [2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--metric", "top1-accuracy", "--limit", "0.99"), 1, "FAILED"),
        (("--metric", "kl"), 2, "compares two models; without a reference there is only one"),
        (("--max-drop", "1%"), 2, "needs --reference"),
        (("--time",), 2, "softq: --time needs --reference; the two take turns"),
        (("--markdown", "{rows}/manifest.json"), 2, "inputs are never written"),
        (("--labels", "nothing"), 2, "labels 'nothing' are not in"),
    ],
)
def test_run_says_what_is_wrong(rows: Path, data: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = softq(rows, "--data", data, *(a.format(rows=rows) for a in arguments))
    assert result.exit_code == code, result.output
    assert message in result.output


def test_running_imports_no_compiler(rows: Path, data: Path) -> None:
    script = (
        "import sys\nfrom softq.cli import main\nmain(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'tvm', 'torch', 'softq.artifact.toolchain', 'onnxruntime'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, "run", rows, "--data", data], check=True, capture_output=True)
