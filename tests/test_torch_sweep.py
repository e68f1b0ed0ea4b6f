"""Sweeps of torch modules: the values of the same sweep of the exported model, and what is refused."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import UsageError
from softq.plans import load_plan
from softq.sweeps import Selection, Sweep, Task, run
from softq.sweeps.plan.search import find_plan
from softq.sweeps.records import OUTCOMES, read
from tests.test_sweep import IMAGES, VIT, plain

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import softq.torch as st  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parent.parent

MODEL = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.project, self.head = nn.Embedding(12, 16), nn.Linear(16, 48), nn.Linear(16, 12)
        self.attend, self.drop = nn.MultiheadAttention(16, 2, batch_first=True), nn.Dropout(0.5)

    def forward(self, ids, scale=None):
        x = self.words(ids)
        query, key, value = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        if scale is not None:
            query = query * scale[:, None, None, None]
        x = x + functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        x = self.drop(x)
        return {"logits": self.head(x + self.attend(x, x, x, need_weights=False)[0]), "half": x.bfloat16()}


class Eager(Words):
    # Traced it is Words; as a module it gives something else.
    def forward(self, ids):
        found = super().forward(ids)
        return found if torch.compiler.is_exporting() else {**found, "logits": found["logits"].flip(-1)}


class Branches(nn.Module):
    def forward(self, ids):
        return torch.softmax(ids.float(), -1) if ids.sum() > 0 else ids


class Fixed(nn.Module):
    def forward(self, ids):
        x = ids.float()[:, :, None]
        return torch.softmax(x @ x.mT, -1) @ x if len(ids) == 2 else x


class Fails(Words):
    def forward(self, ids):
        if not torch.compiler.is_exporting():
            raise ValueError("it is\\nbroken")
        return super().forward(ids)


class Through(nn.Module):
    def forward(self, ids):
        return torch.softmax(ids.float(), -1), ids


class Masked(Words):
    def forward(self, ids, mask, heat):
        x = self.words(ids)
        return torch.softmax(x @ x.mT * heat + mask, -1) @ x


class Written(nn.Module):
    def forward(self, ids):
        e = torch.exp(ids.float()[:, :, None] * ids.float()[:, None])
        return (e / e.sum(-1, keepdim=True)) @ ids.float()[:, :, None]


make, eager, branches, fixed, fails, through, written = Words, Eager, Branches, Fixed, Fails, Through, Written
masked = Masked
ready = Words()


def raises():
    raise ValueError("no weights\\nhere")


def number():
    return 3


def other():
    model = Words()
    model.head.bias.data[0] += 0.5
    return model


def scaled():
    model = Words()
    model.attend.forward = lambda x, *args, **named: (2 * x, None)
    return model


def batches():
    ids = np.random.default_rng(1).integers(0, 12, (13, 8))
    for part in (ids[:1], ids[1:, :7]):
        yield {"ids": part, "scale": np.linspace(0.5, 2, len(part), dtype="f"), "label.next": part}


def shared():
    for length, heat in ((8, 1), (5, 2)):
        ids = np.random.default_rng(length).integers(0, 12, (3, length))
        yield {"ids": ids, "shared.mask": -3 * np.triu(np.ones((length, length), "f"), 1), "heat": np.float32(heat)}


def both():
    return [{**one, "mask": one["shared.mask"]} for one in shared()]


def texts():
    return [{"ids": np.array([["a"], ["b"]])}]


def no_array():
    return [{"scale": np.ones(2, "f")}]
"""
COMMON: Mapping[str, Any] = {"metric": "perplexity", "threads": 1}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of models and data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.py").write_text(MODEL)
    ids = np.random.default_rng(0).integers(0, 12, (13, 8))
    np.savez("data.npz", **{"ids": ids, "label.next": ids})  # pyright: ignore
    for path in (str(tmp_path), str(ROOT)):
        monkeypatch.syspath_prepend(path)
    monkeypatch.delitem(sys.modules, "words", raising=False)
    return tmp_path


def sweep(model: Any, out: str, **more: Any) -> Sweep:
    given: dict[str, Any] = {**COMMON, "framework": "torch", "methods": "exact", **more}
    return run(model, "data.npz", out=out, **given)


def perplexity(logits: Any) -> float:
    """exp of the mean loss of each next word, in float64."""
    with np.load("data.npz") as arrays:
        labels = torch.from_numpy(arrays["label.next"])
    return math.exp(torch.nn.functional.cross_entropy(logits.double()[:, :-1].flatten(0, 1), labels[:, 1:].flatten()))


def test_values_are_those_of_the_exported_model(here: Path) -> None:
    import words  # pyright: ignore[reportMissingImports]

    model = words.make().train()
    given: dict[str, Any] = {
        **COMMON, "methods": "deferred-log,uniform,i-exp,softpick", "bits": "2-4", "allow_substitute": True,
        "calibration": "data.npz", "batch": 4,
    }  # fmt: skip
    found = sweep(model, "torch", **given)
    assert model.training
    assert all(module.training for module in model.modules())
    model.eval()
    with np.load("data.npz") as arrays:
        ids = torch.from_numpy(arrays["ids"])
    axes = {"ids": {0: torch.export.Dim.AUTO}}
    torch.onnx.export(model, (ids[:2],), here / "m.onnx", dynamic_shapes=axes, dynamo=True, verbose=False)
    wanted = run(here / "m.onnx", "data.npz", out="onnx", **given)
    assert [o.setting for o in found.outcomes] == [o.setting for o in wanted.outcomes]
    assert len(found.outcomes) == 8  # i-exp has 4 bits at least, softpick none
    for ours, theirs in zip(found.outcomes, wanted.outcomes, strict=True):
        assert ours.metric.value == pytest.approx(theirs.metric.value, rel=1e-5)
        assert ours.sites == theirs.sites
    assert len({round(o.metric.value, 4) for o in found.outcomes}) == 8
    assert (found.study.graph, found.study.weights) == (wanted.study.graph, wanted.study.weights)
    assert found.study.sites == wanted.study.sites
    # And, computed alone: of the float model and of what softq.torch.convert makes.
    with torch.no_grad():
        assert found.study.reference.value == pytest.approx(perplexity(model(ids)["logits"]), rel=1e-6)
        one = st.convert(model, (ids[:2],), dynamic_shapes=axes, bits=2, calibration=[(ids,)])
        assert found.outcomes[0].metric.value == pytest.approx(perplexity(one.module(ids)["logits"]), rel=1e-6)


def test_arguments_without_samples_are_shared(here: Path) -> None:
    """Of a mask [tokens, tokens] and a number, in data and in the calls of a calibration, as the module takes them."""
    import words  # pyright: ignore[reportMissingImports]

    model, items = words.masked().eval(), list(words.shared())
    calls = [
        (torch.from_numpy(one["ids"]), torch.from_numpy(one["shared.mask"]), torch.tensor(one["heat"])) for one in items
    ]
    auto = torch.export.Dim.AUTO
    shapes = {"ids": {0: auto, 1: auto}, "mask": {0: auto, 1: auto}, "heat": None}
    converted = st.convert(model, calls[0], dynamic_shapes=shapes, bits=2, settings={"r": "auto"}, calibration=calls)
    found = run("words:masked", "words:shared", out="out", methods="deferred-log", bits="2", framework="torch", batch=2,
                options=["deferred-log.r=auto"], calibration="words:shared", metric="max-error")  # fmt: skip
    with torch.no_grad():
        wanted = max(float((model(*call).double() - converted.module(*call)).abs().max()) for call in calls)
    assert wanted > 1e-3
    assert (found.study.samples, found.outcomes[0].metric.value) == (6, pytest.approx(wanted, rel=1e-5))


def test_the_float_model_is_the_module_itself(here: Path) -> None:
    itself, traced = sweep("words.py:eager", "a"), sweep("words.py:make", "b")
    assert itself.outcomes[0].metric.value == traced.outcomes[0].metric.value
    assert abs(itself.study.reference.value - traced.study.reference.value) > 0.1
    assert traced.study.reference.value == pytest.approx(traced.outcomes[0].metric.value, rel=1e-6)


def test_lengths_that_differ_from_part_to_part_and_an_optional_argument(here: Path) -> None:
    found = run("words:ready", "words:batches", out="out", methods="exact", framework="torch", batch=5,
                metric="relative-error", output="_to_copy")  # fmt: skip
    assert found.study.samples == 13
    # Half precision is rounded from sums that differ by roundings: 2^-8 at most.
    assert 0 <= found.outcomes[0].metric.value < 2**-8


COMMAND = ["sweep", "words.py:make", "--framework", "torch", "--data", "data.npz", "--metric", "perplexity",
           "--methods", "uniform", "--bits", "2-4", "--threads", "1"]  # fmt: skip


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_sweep_goes_on_with_the_same_model_only(here: Path) -> None:
    assert invoke(*COMMAND, "--out", "out")[0] == 0
    whole = read("out")
    assert "words.py:make" in (here / "out/report.md").read_text()
    lines = (here / "out" / OUTCOMES).read_text().splitlines(keepends=True)
    (here / "out" / OUTCOMES).write_text(lines[0] + lines[1][:20])
    # In another process: what is hashed must not depend on this one.
    again = subprocess.run(
        [sys.executable, "-m", "softq", *COMMAND, "--out", "out"],
        capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (0, "")
    assert (here / "out" / OUTCOMES).read_text().startswith(lines[0])
    assert plain(read("out")[1]) == plain(whole[1])
    assert read("out")[0] == whole[0]
    for model, what in (("other", "the model's state"), ("scaled", "what was traced of the model")):
        code, told = invoke("sweep", f"words.py:{model}", *COMMAND[2:], "--out", "out")
        assert code == 2
        assert f"holds a sweep for which {what} was" in told


def test_an_onnx_sweep_does_not_go_on_with_torch(here: Path) -> None:
    assert invoke(*COMMAND, "--out", "out")[0] == 0
    text = (here / "out/study.json").read_text()
    (here / "out/study.json").write_text(text.replace('"framework": "torch"', '"framework": "onnx"'))
    assert "for which --framework was onnx; now it is torch" in invoke(*COMMAND, "--out", "out")[1]


def test_studies_of_two_frameworks_stay_two(here: Path) -> None:
    assert invoke(*COMMAND, "--out", "out")[0] == 0
    shutil.copytree("out", "onnx")
    text = (here / "out/study.json").read_text()
    # Records of earlier versions name none.
    for named in ('"framework": "onnx",', ""):
        (here / "onnx/study.json").write_text(text.replace('"framework": "torch",', named))
        code, told = invoke("report", "out", "onnx", "--out", "out")
        assert code == 0
        assert told.startswith("3 settings were measured in all 2 studies")
    # Folders of one framework are one study.
    code, told = invoke("report", "onnx", "onnx", "--out", "out")
    assert code == 0
    assert "studies" not in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["words.py:no"], "model 'words.py:no': file words.py has no function 'no'"),
        (["none.py:make"], "model 'none.py:make': no such file: none.py"),
        (["no_such_words:make"], "model 'no_such_words:make': cannot import no_such_words: No module named"),
        (["words.py"], "model 'words.py' is not of the form package.module:function or file.py:function"),
        (["words.py:raises"], "words.py:raises: raised ValueError: no weights here"),
        (["words.py:number"], "words.py:number: returned an int; expected a torch.nn.Module"),
        (["words.py:branches"], "torch.export cannot trace the module: Could not guard on data-dependent expression"),
        (["words.py:fixed"], "words.py:fixed: it was traced for 2 samples, and can be for one number alone; give --ba"),
        (["words.py:fails"], "words.py:fails: torch fails while running it: it is broken"),
        (["words.py:through"], "words.py:through: its ONNX model calls an input ids_orig"),
        (
            ["words.py:written", "--metric", "relative-error"],
            "no setting can be measured: left out: uniform bits=4: site div is",
        ),
        (["words.py:make", "--data", "words.py:texts"], "array 'ids' is <U1, which torch has not"),
        (["words.py:make", "--data", "words.py:no_array"], "words.py:no_array: no array 'ids': forward of words.py:ma"),
        (
            ["words.py:masked", "--data", "words:both"],
            "words:both: arrays 'mask' and 'shared.mask' are of one parameter;",
        ),
        (["words.py:eager", "--data", "words:batches"], "words:batches: array 'scale' is no parameter: forward of wor"),
        (["words.py:make", "--data", "none.npz"], "none.npz: no such file or folder"),
        (["words.py:make", "--calibration", "words.py:no_array"], "words.py:no_array: no array 'ids'"),
        (["words.py:make", "--output", "logit"], "words.py:make: has no output 'logit'; there are: "),
        (["words.py:make", "--threads", "0"], "threads is 0; allowed is 1 to 1024"),
        (["words.py:make", "--batch", "0"], "batch is 0; it must be at least 1"),
        (["words.py:make", "--workers", "2"], "--workers and --scheduler: a model of the framework torch is measured"),
        (["words.py:make", "--scheduler", "tcp://localhost:1"], "--workers and --scheduler: a model of the framework"),
        (["words.py:make", "--framework", "jax"], "unknown framework 'jax'; there are: onnx, torch"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, here: Path) -> None:
    result = CliRunner().invoke(main, ["sweep", *COMMAND[2:], "--out", "out", *arguments])
    assert result.exit_code == 2
    assert result.output.startswith(f"softq: {message}"), result.output
    assert result.output.count("\n") == 1


def test_what_is_no_module_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match=r"a model of torch is a Module, .* not a OrderedDict$"):
        sweep(torch.nn.Linear(3, 3).state_dict(), "out")


def test_a_module_for_one_number_of_samples_alone(here: Path) -> None:
    with np.load("data.npz") as arrays:
        np.savez("data.npz", **{name: arrays[name][:4] for name in arrays.files})  # pyright: ignore
    found = sweep("words.py:fixed", "out", metric="relative-error", batch=2)
    assert found.study.samples == 4
    assert found.outcomes[0].metric.value < 1e-6


def test_a_plan_of_a_module_converts_the_exported_model(here: Path) -> None:
    task = Task("words.py:make", "data.npz", "perplexity", Selection(), framework="torch", threads=1)
    found = find_plan(task, max_drop="20%", methods="deferred-log", bits="2-4")
    Path("plan.json").write_text(found.plan.to_text())
    import words  # pyright: ignore[reportMissingImports]

    ids = torch.zeros(2, 8, dtype=torch.int64)
    options: dict[str, Any] = {"dynamic_shapes": {"ids": {0: torch.export.Dim.AUTO}}}
    again = st.convert(words.make().eval(), (ids,), plan=load_plan("plan.json"), **options)
    assert not again.warnings
    assert len(again.plan.sites) == 2


def test_the_docs_command_runs(here: Path) -> None:
    page = (ROOT / "docs/pytorch.md").read_text("utf-8")
    (line,) = re.findall(r"^softq sweep .*$", page, re.MULTILINE)
    (text,) = re.findall(r"```python\n# model.py\n(.*?)```", page, re.DOTALL)
    Path("model.py").write_text(text)
    shutil.copy(ROOT / "models/mnist_vit/data.npz", "data.npz")
    code, told = invoke(*shlex.split(line)[1:], "--samples", "16", "--threads", "1")
    assert code == 0, told
    assert "deferred-log bits=2" in told


def vision_transformer() -> Any:
    """The committed transformer with the weights of its ONNX model, where matrices stand transposed, in their order."""
    from models.mnist_vit.train import VisionTransformer

    model = VisionTransformer()
    tensors = {t.name: torch.from_numpy(onnx.numpy_helper.to_array(t).copy()) for t in onnx.load(VIT).graph.initializer}
    left = model.load_state_dict({k: v for k, v in tensors.items() if k in model.state_dict()}, strict=False)
    matrices = [v.T for k, v in tensors.items() if k.startswith("val_") and v.dim() == 2]
    rest = dict(zip(left.missing_keys, matrices, strict=True))
    assert not model.load_state_dict({**model.state_dict(), **rest}).missing_keys
    return model


@pytest.mark.slow
def test_accuracies_of_the_transformer_are_those_of_its_onnx_model(tmp_path: Path) -> None:
    methods = "deferred-log,uniform,log2,i-exp,exact"
    given: dict[str, Any] = {"metric": "top1-accuracy", "methods": methods, "bits": "2-5", "samples": 300, "threads": 1}
    ours = run(vision_transformer(), IMAGES, out=tmp_path / "torch", framework="torch", **given)
    theirs = run(VIT, IMAGES, out=tmp_path / "onnx", **given)
    assert ours.study.reference.value == theirs.study.reference.value
    assert [one.setting for one in ours.outcomes] == [one.setting for one in theirs.outcomes]
    assert len(ours.outcomes) == 15
    for one, other in zip(ours.outcomes, theirs.outcomes, strict=True):
        assert one.metric.value == pytest.approx(other.metric.value, abs=1e-4), one.setting
    assert min(one.metric.value for one in ours.outcomes) < 0.95 * ours.study.reference.value
