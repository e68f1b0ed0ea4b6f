"""Training on of `models.finetune`: a stopped run ends as one that was not; a teacher takes the labels' place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("onnxscript")

from models import finetune  # noqa: E402
from models._common import BuildError  # noqa: E402
from models._training import Task  # noqa: E402

nn, functional = torch.nn, torch.nn.functional
CLASSES = 5


class Tiny(nn.Module):
    """An attention over what is given, and classes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.mix = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return logits [batch, seq, CLASSES] of [batch, seq, 4]."""
        p = torch.softmax(self.mix(x) @ x.transpose(1, 2), -1)
        return self.out(self.drop(p @ x))


def tiny(stop_at: int | None = None, **changed: Any) -> Task:
    """Return a training of 8 steps; drawing the batch of step `stop_at` raises KeyboardInterrupt."""

    def draws() -> Callable[[Any], tuple[Any, Any]]:
        drawn = 0

        def draw(generator: Any) -> tuple[Any, Any]:
            nonlocal drawn
            if drawn == stop_at:
                raise KeyboardInterrupt
            drawn += 1
            x = torch.randn(2, 6, 4, generator=generator)
            return x, torch.randint(CLASSES, (2, 6), generator=generator)

        return draw

    settings: dict[str, Any] = {
        "name": "tiny", "module": Tiny, "example": torch.zeros(2, 6, 4), "axes": {}, "draw": draws,
        "loss": lambda logits, labels: functional.cross_entropy(logits.flatten(0, 1), labels.flatten()),
        "figure": None, "steps": 8, "rate": 1e-2, "half": False, "decay": 0.1, "folder": Path(), "compiled": False,
    }  # fmt: skip
    return Task(**settings | changed)


def weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("stop_at", [1, 3, 7])
def test_a_stopped_run_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:  # fmt: skip
    monkeypatch.setattr(finetune, "_KEEP_EVERY", 0.0)
    whole = Tiny().train()
    finetune.train(tiny(), whole, 5, tmp_path / "whole.pt")
    state = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        finetune.train(tiny(stop_at), Tiny().train(), 5, state)
    # Another process has another state of the random numbers, and a module that was not trained.
    torch.manual_seed(99)
    again = Tiny(seed=7).train()
    finetune.train(tiny(), again, 5, state)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(again)[name]), name
    assert not torch.equal(whole.out.weight, Tiny().out.weight)


def test_a_loss_that_is_not_finite_is_no_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "_KEEP_EVERY", 0.0)
    losses = iter([1.0] * 7)
    task = tiny(loss=lambda logits, labels: logits.sum() * next(losses, float("nan")))
    for _ in range(2):
        with pytest.raises(BuildError, match=r"^tiny: the loss is nan at step 8$"):
            finetune.train(task, Tiny().train(), 5, tmp_path / "state.pt")


def test_a_finished_training_is_taken_as_it_is(tmp_path: Path) -> None:
    model = Tiny().train()
    finetune.train(tiny(), model, 5, tmp_path / "state.pt")
    other = Tiny(seed=7).train()
    finetune.train(tiny(stop_at=0), other, 5, tmp_path / "state.pt")
    for name, value in weights(model).items():
        assert torch.equal(value, weights(other)[name]), name


def test_a_teacher_takes_the_place_of_labels(tmp_path: Path) -> None:
    teacher, student = Tiny(seed=3).eval(), Tiny().train()
    given = torch.randn(4, 6, 4, generator=torch.Generator().manual_seed(1))

    def divergence() -> float:
        with torch.no_grad():
            mine, theirs = student.eval()(given).log_softmax(-1), teacher(given).log_softmax(-1)
        return float((theirs.exp() * (theirs - mine)).sum(-1).mean())

    before = divergence()
    finetune.train(tiny(steps=150), student.train(), 5, tmp_path / "state.pt", teacher)
    assert divergence() < before / 4
    labels = Tiny().train()
    finetune.train(tiny(steps=150), labels, 5, tmp_path / "labels.pt")
    student.load_state_dict(labels.state_dict())
    assert divergence() > before / 4


def test_only_the_named_parameters_are_trained(tmp_path: Path) -> None:
    model = Tiny().train()
    before = weights(model)
    finetune.train(tiny(part="mix"), model, 5, tmp_path / "state.pt")
    after = weights(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"mix.weight", "mix.bias"}
