"""What the system does to a command: too little memory, interrupts, folders of others."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import softq
from softq.cli import main
from softq.errors import UsageError
from tests.attention import run
from tests.hostile import text

VIT = Path(__file__).parent.parent / "models/mnist_vit/mnist_vit.onnx"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and signals are Linux's")

WITH_LITTLE_MEMORY = """
import resource, sys
import psutil
import softq.conversion, softq.modelfile
from softq.cli import main
most = psutil.Process().memory_info().vms + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
main(sys.argv[2:])
"""


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_too_little_memory_is_one_line(command: str, tmp_path: Path) -> None:
    model, path = text("q = Identity(x)"), tmp_path / "m.onnx"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(8 << 20, np.float32), "weight"))
    onnx.save(model, path)
    out = [tmp_path / "out.onnx"] * (command == "convert")
    done = run_python(WITH_LITTLE_MEMORY, 16 << 20, command, path, *out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "softq: there is not enough memory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_building_asks_for_address_space_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (600 << 20, resource.RLIM_INFINITY))
    with pytest.raises(UsageError, match=r"1024 MiB of address space; this process may have 600"):
        softq.build(text("q = Identity(x)"), tmp_path / "out", target="cpu")
    assert list(tmp_path.iterdir()) == []


def test_every_command_asks_for_address_space_before_libraries_do() -> None:
    begin = "import resource; resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20))"
    done = run_python(f"{begin}; from softq.cli import main; main(['inspect', 'm.onnx'])")
    said = "softq: softq needs 208 MiB of address space; this process may have 160 (ulimit -v)\n"
    assert (done.returncode, done.stderr) == (2, said)


def interrupt(*given: object, **more: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (["inspect", "m.onnx"], "softq.graph.facts.infer_shapes"),
        (["convert", "m.onnx", "out.onnx", "--save-plan", "plan.json"], "os.fsync"),
        (["sweep", "m.onnx", "--data", "d.npz", "--metric", "cosine", "--methods", "log2", "--bits", "3", "--out", "s"],
         "softq.sweeps.evaluate.evaluator.run_batch"),
        (["build", "m.onnx", "built", "--target", "cpu"], "softq.artifact.writing.hash_files"),
    ],
    ids=["inspect", "convert", "sweep", "build"],
)  # fmt: skip
def test_ctrl_c_leaves_nothing_half_written(
    command: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command[0] == "build":
        pytest.importorskip("tvm")
    monkeypatch.chdir(tmp_path)
    onnx.save(text("q = Identity(x)"), "m.onnx")
    np.savez("d.npz", x=np.ones((2, 4, 8, 8), np.float32), c=np.ones((2, 4, 8, 8), bool))
    monkeypatch.setattr(where, interrupt)
    # A shell starts what is in its background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    result = CliRunner().invoke(main, command)
    signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.stderr) == (130, "\nsoftq: interrupted\n")
    left = {path.name for path in tmp_path.iterdir()} - {"m.onnx", "d.npz"}
    assert left == set()  # Nothing was measured yet: a sweep leaves no empty folder.


def rename(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a model whose own values and nodes have given names, as long as there are any."""
    made, left = onnx.ModelProto.FromString(model.SerializeToString()), iter(names)
    known = {name: next(left, name) for node in made.graph.node for name in node.output if name != "y"}
    for node in made.graph.node:
        node.name = known.get(node.output[0], node.name)
        node.input[:] = [known.get(name, name) for name in node.input]
        node.output[:] = [known.get(name, name) for name in node.output]
    return made


@pytest.mark.parametrize("inline", [False, True], ids=["functions", "inline"])
def test_names_that_softq_gives_may_be_taken(inline: bool) -> None:
    """Values, nodes and initializers of the model are called as what is put in behind them."""
    body = " ".join(f"a{i} = Mul(x, {'x' if i == 0 else f'a{i - 1}'})" for i in range(60)) + " q = Mul(a59, x)"
    model = text(body)
    plain = softq.convert(model, inline=inline).model
    own = {name for node in model.graph.node for name in (node.name, *node.output)} | {"x", "c", "y"}
    added = [name for node in plain.graph.node for name in (node.name, *node.output) if name and name not in own]
    added += [tensor.name for tensor in plain.graph.initializer if tensor.name not in own]
    assert added
    taken = rename(model, dict.fromkeys(added))
    converted = softq.convert(taken, inline=inline).model
    onnx.checker.check_model(converted)
    feed = {
        "x": np.random.default_rng(0).normal(size=(2, 4, 8, 8)).astype(np.float32) / 4,
        "c": np.ones((2, 4, 8, 8), bool),
    }
    assert np.array_equal(run(converted, feed), run(plain, feed))


AS_NOBODY = """
import os, sys
import softq.building, softq.conversion, softq.modelfile
from softq.cli import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
main(sys.argv[1:])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_folder_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        os.chmod(name, 0o755)
        onnx.save(text("q = Identity(x)"), f"{name}/m.onnx")
        for command in (
            ["convert", f"{name}/m.onnx", f"{name}/o.onnx"],
            ["build", f"{name}/m.onnx", f"{name}/b", "--target", "cpu"],
        ):
            done = run_python(AS_NOBODY, *command)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert "not writable" in done.stderr or "Permission denied" in done.stderr
        assert os.listdir(name) == ["m.onnx"]


def run_softq(*arguments: str, redirect: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell, its streams redirected."""
    line = f"{shlex.join([sys.executable, '-m', 'softq', *arguments])} {redirect}"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_take_nothing(tmp_path: Path, streams: str) -> None:
    """Nothing is written into a file that has the number of a closed stream."""
    for arguments in (
        ["methods"],
        ["inspect", str(VIT)],
        ["convert", str(VIT), str(tmp_path / "out.onnx")],
        ["--help"],
    ):
        done = run_softq(*arguments, redirect=streams)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    assert onnx.load(tmp_path / "out.onnx").graph.node
    done = run_softq("inspect", "none.onnx", redirect=">&-")
    assert (done.returncode, done.stderr) == (2, "softq: cannot read 'none.onnx': No such file or directory\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["methods"], ["methods", "--json"], ["--help"], ["--version"], ["inspect", "none.onnx", "--json"]]
)
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    done = run_softq(*arguments, redirect=">/dev/full")
    told = "softq: cannot write to standard output: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, told)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_an_error_that_cannot_be_written_keeps_its_exit_code() -> None:
    done = run_softq("methods", "nosuch", "--json", redirect="2>/dev/full")
    assert (done.returncode, "nosuch" in json.loads(done.stdout)["error"]) == (2, True)


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    words = [sys.executable, "-m", "softq", "methods"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    line = shlex.join([sys.executable, "-m", "softq", "convert", str(VIT), "out.onnx"])
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        ["sh", "-c", f"rmdir {shlex.quote(str(folder))}; {line}"],
        capture_output=True, text=True, env=env, cwd=folder, check=False,
    )  # fmt: skip
    told = "softq: the working folder does not exist any more, and so no relative path; change to another folder\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize("name", ["click", "softq.cli.group"])
def test_ctrl_c_while_the_program_is_loaded_is_one_line(name: str) -> None:
    program = f"""
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from softq.entry import main
main()
"""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (130, "softq: interrupted\n")
