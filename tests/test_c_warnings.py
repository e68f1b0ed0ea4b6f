"""Generated C compiles without a warning: what kernels never use, or set in one branch alone, is not in their text."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

pytest.importorskip("tvm")

import softq
from benchmarks.third_party.models import MODELS, Model
from benchmarks.third_party.packages import extract
from softq.errors import SoftqError
from tests.test_firmware import COMPILERS, STRICT
from tests.test_random_graphs import draw

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

THIRD_PARTY = (
    *("mtcnn-p", "mtcnn-r", "mtcnn-o", "blaze-face", "light-squeezenet", "light-shufflenet", "iclabel", "swift-f0"),
    *("silero-vad-half", "silero-vad-op18", "silero-vad-sequence", "deepcut", "thai2rom-decoder", "magika", "aecmos"),
    *("features-nemo128", "features-kaldi", "features-whisper80", "features-wespeaker", "dnsmos-p808", "plcmos"),
    *("basic-pitch", "ppocr-v2-cls", "ppocr-v4-det", "dnsmos"),
)


COMMANDS = {"gcc": (("gcc", "-O1", "-c"), ("gcc", "-O2", "-c")), "clang": (("clang", "-fsyntax-only"),)}
"""gcc says of what may be used before it is set by what its optimizations see, clang by the text alone."""


def warnings(model: onnx.ModelProto | Path, out: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> list[str]:
    """Return the warnings of the compilers for a model in C."""
    softq.build(model, out, target="c,name=model", input_shapes=shapes)
    sources = [source.name for source in sorted(out.glob("*.c"))]
    found: list[str] = []
    for command in (command for compiler in COMPILERS for command in COMMANDS[compiler]):
        done = subprocess.run([*command, *STRICT, *sources], cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "error:" in done.stderr, done.stderr
        found += [f"{command[0]} {line}" for line in done.stderr.splitlines() if "error:" in line]
    return found


def convolution(channels: int, results: int, kernel: int, size: int, group: int = 1) -> onnx.ModelProto:
    """Return a model of one convolution with a bias."""
    shape = (results, channels // group, kernel, kernel)
    weights = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(results, np.float32), "b")]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=group)
    values = [helper.make_tensor_value_info("x", 1, [1, channels, size, size])]
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", values, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("size", [(48, 64, 2, 4), (28, 48, 3, 11), (24, 24, 3, 16, 24)], ids=str)
def test_convolutions_have_no_names_that_nothing_uses(size: tuple[int, ...], tmp_path: Path) -> None:
    """Requests of memory ahead of its use have no form in C; what they alone computed is not there, either."""
    assert warnings(convolution(*size), tmp_path) == []
    assert "(void)0" not in (tmp_path / "model_kernels.c").read_text()


@pytest.mark.parametrize("body", ["y = Elu<alpha=1.5>(x)", "e = Celu<alpha=2.0>(x) y = Mul(e, x)"])
def test_what_one_branch_sets_is_read_there_alone(body: str, tmp_path: Path) -> None:
    """The value of a choice is a variable that both branches set."""
    assert warnings(parser.parse_model(f"{HEAD} g (float[6] x) => (float[6] y) {{ {body} }}"), tmp_path) == []


@pytest.mark.parametrize(
    "seed", [pytest.param(7, marks=pytest.mark.slow), 48, pytest.param(107, marks=pytest.mark.slow)]
)
def test_random_graphs_of_which_compilers_warned(seed: int, tmp_path: Path) -> None:
    """A GRU whose steps had conditions that exclude each other; choices within choices."""
    drawn = draw(seed)
    shapes = {name: list(value.shape) for name, value in drawn.feeds.items()}
    assert warnings(drawn.model, tmp_path, shapes) == []


@pytest.mark.slow
def test_random_graphs_compile_without_a_warning(tmp_path: Path) -> None:
    """Of 60 graphs at least 40 have a form in C."""
    built = 0
    for seed in range(1000, 1060):
        drawn = draw(seed)
        shapes = {name: list(value.shape) for name, value in drawn.feeds.items()}
        try:
            assert warnings(drawn.model, tmp_path / str(seed), shapes) == [], seed
        except SoftqError:
            continue
        built += 1
    assert built >= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", THIRD_PARTY)
def test_third_party_models_compile_without_a_warning(name: str, tmp_path: Path) -> None:
    model: Model = next(one for one in MODELS if one.name == name)
    shapes = {value: list(how.shape) for value, how in model.inputs.items()}
    assert warnings(extract(model), tmp_path, shapes) == []
