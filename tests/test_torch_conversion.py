"""softq.torch.convert: the softmaxes of a module, and the same plan for the module and for its ONNX model."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest

import softq
from softq.errors import RefusalError, UsageError
from softq.modelfile import save
from softq.plans import load_plan

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import softq.torch as st  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")


class Mixed(nn.Module):
    """Four kinds of softmax: three attentions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project, self.head = nn.Linear(16, 48), nn.Linear(16, 5)
        self.attend, self.softmax = nn.MultiheadAttention(16, 2, batch_first=True), nn.Softmax(-1)

    def forward(self, x: Any) -> Any:
        parts = self.project(x).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in parts)
        causal = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        y = causal + self.softmax(query @ key.transpose(-1, -2) / 2) @ value
        y = y.transpose(1, 2).flatten(2)
        return torch.softmax(self.head(y + self.attend(y, y, y)[0]), -1)


DYNAMIC = {"x": {0: torch.export.Dim("batch"), 1: torch.export.Dim("n")}}
X = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1)) * 2
OTHER = torch.randn(5, 9, 16, generator=torch.Generator().manual_seed(2)) * 2


@pytest.fixture(scope="module")
def model() -> Any:
    return Mixed().eval()


def test_verdicts_are_those_of_the_exported_model_and_the_rest_stays(model: Any) -> None:
    before = copy.deepcopy(model.state_dict())
    converted = st.convert(model, (X,), dynamic_shapes=DYNAMIC, method="exact")
    assert [site.verdict.action for site in converted.sites] == ["convert"] * 3 + ["keep"]
    assert (
        sum("softmax" in str(node.target) for node in converted.module.graph.nodes if node.op == "call_function") == 1
    )
    for x in (X, OTHER):
        torch.testing.assert_close(converted.module(x), model(x), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("fit", [pytest.param(False, marks=pytest.mark.slow), True], ids=["built in", "fitted"])
def test_one_plan_is_for_the_module_and_for_its_onnx_model(fit: bool, model: Any, tmp_path: Path) -> None:
    batches = [(torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]
    options: dict[str, Any] = {"calibration": batches} if fit else {}
    converted = st.convert(model, (X,), dynamic_shapes=DYNAMIC, bits=3, **options)
    assert all(bool(site.fitted) == fit for site in converted.plan.sites)
    (tmp_path / "plan.json").write_text(converted.plan.to_text())
    exported = torch.onnx.export(model, (X,), dynamic_shapes=DYNAMIC, dynamo=True, verbose=False)
    same = softq.convert(exported.model, plan=load_plan(tmp_path / "plan.json"))
    save(same.model, tmp_path / "converted.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "converted.onnx")
    for x in (X, OTHER):
        (wanted,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        # Codes at a border aside, of which these inputs have none: 1e-6 is far below one code's step.
        np.testing.assert_allclose(converted.module(x).detach().numpy(), np.asarray(wanted), rtol=0, atol=1e-6)
        assert float((converted.module(x) - model(x)).abs().max()) > 1e-4
    if fit:
        assert st.calibrate(model, batches, dynamic_shapes=DYNAMIC, bits=3).to_text() == converted.plan.to_text()


def test_what_was_converted_is_trained() -> None:
    module = st.convert(Mixed().train(), (X,), bits=2, backward="quantized").module
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    wanted, losses = torch.eye(5)[torch.arange(14).reshape(2, 7) % 5], list[float]()
    for _ in range(30):
        loss = (module(X) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


class Called(nn.Module):
    """Tensors in a dictionary, a number, and a dropout between the softmax and the product."""

    def forward(self, x: Any, times: int, d: Any) -> Any:
        p = torch.special.softmax(x @ d["key"].transpose(-1, -2) * times, -1)
        return nn.functional.dropout(p, 0.5, self.training) @ d["value"]


def test_any_call_in_training_is_judged_and_fitted_as_in_evaluation() -> None:
    calls = [(torch.randn(2, 7, 8), 2, {"value": torch.randn(2, 9, 8), "key": torch.randn(2, 9, 8)}) for _ in range(2)]
    model = Called().train()
    trained = st.convert(model, calls[0], calibration=calls, bits=3)
    assert model.training
    assert not torch.equal(trained.module(*calls[0]), trained.module(*calls[0]))
    evaluated = st.convert(model.eval(), calls[0], calibration=calls, bits=3)
    assert [site.verdict.action for site in trained.sites] == ["convert"]
    assert trained.plan.to_text() == evaluated.plan.to_text()
    half = [tuple(torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.bfloat16, call)) for call in calls]
    with pytest.raises(UsageError, match="fit the module in float32"):
        st.convert(model, half[0], calibration=half)


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.softmax(x, -1) @ x if x.sum() > 0 else x


class Written(nn.Module):
    """A softmax that is written out."""

    sites: ClassVar[int] = 1

    def forward(self, x: Any) -> Any:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return (e / e.sum(-1, keepdim=True)) @ x.transpose(-1, -2)


def test_what_cannot_be_traced_or_replaced_is_said(model: Any) -> None:
    with pytest.raises(UsageError, match=r"torch.export cannot trace the module: [^\n]+$"):
        st.convert(Branches(), (X,))
    with pytest.raises(RefusalError, match="is no softmax or attention of torch"):
        st.convert(Written(), (torch.randn(2, 7, 7),))
    with pytest.raises(UsageError, match="a call has 2 tensors; the module takes 1"):
        st.convert(model, (X,), calibration=[(X, X)])
    with pytest.raises(UsageError, match="there is no batch"):
        st.calibrate(model, [])


class Places(nn.Module):
    """A slice of a buffer as long as the input: no more than 16."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.zeros(16, 16))

    def forward(self, x: Any) -> Any:
        x = x + self.places[: x.shape[1]]
        return torch.softmax(x @ x.mT, -1) @ x


class Flat(nn.Module):
    def forward(self, x: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Counts(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.softmax(x[:, : int(x.sum().item())], -1) @ x


@pytest.mark.parametrize(
    ("module", "axes", "message"),
    [
        (
            Places(), {"x": {1: torch.export.Dim("n")}},
            r"cannot trace the module: Constraints violated \(n\): Not all values of n = .* <= 16\. Suggested fixes: "
            r"n = Dim\('n', max=16\)$",
        ),
        (Places(), {"x": {2: torch.export.Dim("w")}}, r"to be a constant \(16\)\..* Suggested fixes: w = 16$"),
        (Flat(), None, r"cannot export the module: only 4D query, key, and value are .* \(.*%scaled_dot_product"),
        (Counts(), None, r"data-dependent expression .* Caused by: \(.*test_torch_conversion.py:\d+ in forward\)$"),
    ],
    ids=["a length", "a width", "no heads", "a number"],
)  # fmt: skip
def test_what_torch_says_is_one_line_with_its_reason(module: Any, axes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        st.convert(module.eval(), (X,), dynamic_shapes=axes)
    assert "\n" not in str(told.value)
    assert "TORCH_LOGS" not in str(told.value)


def test_what_was_converted_is_copied_but_not_pickled_or_converted_again(model: Any) -> None:
    module = st.convert(model, (X,), bits=3).module
    assert torch.equal(copy.deepcopy(module)(X), module(X))
    with pytest.raises(UsageError, match="cannot be pickled, since torch's own cannot; save its state_dict"):
        pickle.dumps(module)
    with pytest.raises(UsageError, match="was converted already"):
        st.convert(module, (X,))


def test_what_was_learned_is_in_the_plan_and_in_the_onnx_model(model: Any, tmp_path: Path) -> None:
    converted = st.convert(
        model,
        (X,),
        dynamic_shapes=DYNAMIC,
        bits=3,
        learn=("r", "first"),
        settings={"shift": 0.25, "r": 2.0, "steps": "growing"},
    )
    before = converted.plan.sites
    assert all(set(site.fitted) == {"r", "first"} for site in before)
    optimizer = torch.optim.SGD([p for n, p in converted.module.named_parameters() if n.startswith("softq")], lr=0.5)
    converted.module(X)[..., 0].sum().backward()
    optimizer.step()
    plan = converted.trained_plan()
    assert all(now.fitted != was.fitted for now, was in zip(plan.sites, before, strict=True))
    (tmp_path / "plan.json").write_text(plan.to_text())
    save(softq.convert(converted.exported, plan=load_plan(tmp_path / "plan.json")).model, tmp_path / "converted.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "converted.onnx")
    (wanted,) = session.run(None, {session.get_inputs()[0].name: OTHER.numpy()})
    np.testing.assert_allclose(converted.module(OTHER).detach().numpy(), np.asarray(wanted), rtol=0, atol=1e-6)


def test_what_cannot_be_learned_is_said(model: Any) -> None:
    with pytest.raises(UsageError, match="bits cannot be learned; r, first, shift, slope can"):
        st.convert(model, (X,), dynamic_shapes=DYNAMIC, learn=("bits",))
    with pytest.raises(UsageError, match="depth cannot be learned"):
        st.convert(model, (X,), dynamic_shapes=DYNAMIC, learn=("depth",))


class Dropping(nn.Module):
    """Whatever knows its mode: dropout by itself and in an attention, and a mean over batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(7), nn.Dropout(0.5)
        self.attend = nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.norm(x))
        return y + self.attend(y, y, y, need_weights=False)[0]


def test_the_mode_of_what_was_traced_in_training_can_be_changed() -> None:
    model = Dropping().train()
    module = st.convert(model, (X,), method="exact").module
    before = module.get_buffer("norm.running_mean").clone()
    assert not torch.equal(module(X), module(X))
    assert not torch.equal(module.get_buffer("norm.running_mean"), before)
    for one in (module, copy.deepcopy(module)):
        model.load_state_dict(one.state_dict(), strict=False)
        evaluated = one.eval()(X)
        assert torch.equal(evaluated, one(X))
        torch.testing.assert_close(evaluated, model.eval()(X), rtol=1e-5, atol=1e-6)
        assert not one.training
        assert not any(child.training for child in one.children())
        assert not torch.equal(one.train()(X), one(X))
    fixed = st.convert(model.eval(), (X,), method="exact").module
    torch.testing.assert_close(fixed.eval()(X), model(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match="convert it after train"):
        fixed.train()
