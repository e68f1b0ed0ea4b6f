"""`softq build` and what comes of it: the same task metric, kernels where the softmaxes were, edge targets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import softq
from softq.cli import main
from tests.emulators import EDGE, emulator

pytest.importorskip("tvm")

ROOT = Path(__file__).parent.parent
MODELS = ROOT / "models"
"""Targets by the name of the emulator."""


def converted(name: str, method: str, folder: Path) -> Path:
    out = folder / f"{name}.{method}.onnx"
    if not out.exists():
        assert command("convert", MODELS / name / f"{name}.onnx", out, "--method", method, "--all") == 0
    return out


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(str(ended.value.code))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("method", ["exact", "deferred-log"])
@pytest.mark.parametrize(("name", "metric"), [("mnist_vit", "top1-accuracy"), ("wikipedia_lm", "perplexity")])
def test_the_artifact_has_the_metric_of_the_model(
    name: str, metric: str, method: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = converted(name, method, folder)
    out = folder / f"{name}-{method}"
    assert command("build", model, out, "--target", "cpu") == 0
    capsys.readouterr()
    data = MODELS / name / "data.npz"
    assert command("run", out, "--data", data, "--reference", model, "--metric", metric, "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["metrics"]
    assert result["candidate"] == pytest.approx(result["reference"], rel=1e-4)


def test_the_manifest_names_the_kernel_of_every_site(folder: Path) -> None:
    model = converted("mnist_vit", "deferred-log", folder)
    built = softq.build(model, folder / "looked-into", target="cpu")
    sites = softq.inspect(MODELS / "mnist_vit" / "mnist_vit.onnx")
    method = softq.METHODS.get("deferred-log")
    form = method.resolve(method.configure({"bits": 4}), False).structure
    assert built.manifest["sites"] == {site.id: [f"softq_attention_deferred_log_{form}"] for site in sites}
    # Nothing else in the program computes a softmax: no exponential is left, and the logits' path holds none.
    assert not [step["kernel"] for step in built.manifest["steps"] if re.search("softmax|exp(?!and)", step["kernel"])]


def test_one_kernel_serves_every_softmax_of_a_length(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
    agraph (float[2, 3, 50] x, float[2, 3, 40] y) => (float[2, 3, 50] a, float[2, 3, 50] b, float[2, 3, 40] c) {
        a = Softmax(x)
        b = Softmax(a)
        c = Softmax(y)
    }""")
    built = softq.build(model, tmp_path / "built", target="cpu")
    kernels = [step["kernel"] for step in built.manifest["steps"] if "exact" in step["kernel"]]
    assert len(kernels) == 3
    assert len(set(kernels)) == 2


def test_breaking_the_kernel_breaks_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from softq.artifact.machine import Cpu
    from softq.codegen.cpu import kernels
    from softq.codegen.cpu.rows import RowKernel
    from softq.rowprog import Program

    whole, method = kernels.row_kernel, softq.METHODS.get("deferred-log")
    other = method.program(method.configure({"bits": 2, "r": 0.5}))

    def broken(
        program: Program, machine: Cpu, *, symbol: str, max_length: int, outputs: Sequence[str] | None
    ) -> RowKernel:
        return whole(other, machine, symbol=symbol, max_length=max_length, outputs=outputs)

    model = converted("mnist_vit", "exact", folder)
    images = np.load(MODELS / "mnist_vit" / "data.npz")["images"][:32]
    right = softq.load(softq.build(model, folder / "right", target="cpu").folder)({"images": images})["logits"]
    monkeypatch.setattr(kernels, "row_kernel", broken)
    wrong = softq.load(softq.build(model, folder / "wrong", target="cpu").folder)({"images": images})["logits"]
    assert np.abs(wrong.astype(np.float64) - right.astype(np.float64)).max() > 0.01


def test_an_index_outside_its_axis_ends_the_run(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (int64[n] at) => (float[n, 3] y) <float[4, 3] w = {0,1,2,3,4,5,6,7,8,9,10,11}> { y = Gather(w, at) }"""
    artifact = softq.load(softq.build(parser.parse_model(text), tmp_path / "a", target="cpu").folder)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(artifact({"at": np.array([3, -4, 0])})["y"], rows[[3, 0, 0]])
    for wrong in ([4], [-5], [0, 2**40]):
        with pytest.raises(softq.InputError, match="an index is outside its axis"):
            artifact({"at": np.array(wrong)})
    np.testing.assert_array_equal(artifact({"at": np.array([-1])})["y"], rows[[3]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "nope"), "unknown target 'nope'"),
        (("--target", "onnx"), "there is nothing to build"),
        (("--target", "cpu,speed=1"), "has no option 'speed'; its options are: mcpu, features"),
        (("--target", "cpu,mcpu"), "is no option; expected NAME,KEY=VALUE"),
        (("--target", "cpu,mcpu=pentium9"), "LLVM knows no processor 'pentium9'"),
        ((), "missing option '--target'"),
    ],
)
def test_wrong_targets_are_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("build", MODELS / "mnist_vit" / "mnist_vit.onnx", tmp_path / "a", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_without_tvm_build_says_what_installs_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['tvm'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'tvm' else find(name, *rest)\n"
        f"from softq.cli import main; main(['build', {str(MODELS / 'mnist_vit' / 'mnist_vit.onnx')!r}, "
        f"{str(tmp_path / 'a')!r}, '--target', 'cpu'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "softq: building for cpu needs TVM; install it with: pip install 'softq[tvm]'\n"


def test_an_operator_that_tvm_lacks_is_named(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "other" : 1]>
        g (float[n, 3] x) => (float[n, 3] y) { y = other.Softmax(x) }"""
    with pytest.raises(softq.RefusalError, match=r"other::Softmax \(first at 'y'\)"):
        softq.build(parser.parse_model(text), tmp_path / "a", target="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "deferred-log"])
@pytest.mark.parametrize("processor", EDGE)
@pytest.mark.parametrize("name", ["mnist_vit", "wikipedia_lm"])
def test_edge_targets_have_the_metric_of_the_model(name: str, processor: str, method: str, folder: Path) -> None:
    emulated = emulator(processor)
    model = converted(name, method, folder)
    out = softq.build(model, folder / f"{name}-{method}-{processor}", target=EDGE[processor]).folder
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    data = np.load(MODELS / name / "data.npz")[given.name][: 64 if name == "mnist_vit" else 1]
    dims = [n for n, d in zip(data.shape, given.shape, strict=True) if isinstance(d, str)]
    expected = np.asarray(session.run(None, {given.name: data})[0])
    found = np.frombuffer(emulated.run(out, np.ascontiguousarray(data).tobytes(), dims), np.float32).reshape(
        expected.shape
    )
    if name == "mnist_vit":
        np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
    else:
        assert _perplexity(found, data) == pytest.approx(_perplexity(expected, data), rel=1e-4)


def _perplexity(logits: np.ndarray, tokens: np.ndarray) -> float:
    logits = logits[:, :-1].astype(np.float64)
    total = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    picked = np.take_along_axis(logits, tokens[:, 1:, None].astype(np.int64), -1)[..., 0]
    return float(np.exp((total - picked).mean()))
