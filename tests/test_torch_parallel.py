"""Modules of softq.torch under DistributedDataParallel: two processes train as one does on both their batches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import softq.torch as st  # noqa: E402

nn = torch.nn
WORLD = 2


class Model(nn.Module):
    """A softmax with learned numbers and one with fitted ones, and an attention with numbers per head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project, self.head = nn.Linear(8, 24), nn.Linear(8, 3)
        self.attend = st.Attention(method="deferred-log", bits=3, backward="quantized")
        self.fitted = st.Softmax(method="deferred-log", r="head", fitted={"r": (1.5, 2.5)}, steps="equal")
        self.learned = st.Softmax(
            method="consmax", beta="head", gamma="site", fitted={"beta": (2.5, 1.5), "gamma": 100.0},
            learn=("beta", "gamma"),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        query, key, value = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        scores = query @ key.transpose(-1, -2)
        y = self.attend(query, key, value) + self.fitted(scores) @ value + self.learned(scores) @ value
        return self.head(y.transpose(1, 2).flatten(2))


def batch() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 5, 8, generator=generator), torch.randn(6, 5, 3, generator=generator)


def train(model: Any, x: Any, wanted: Any) -> dict[str, Any]:
    """Return the gradients of two steps, and the state behind them."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found: dict[str, Any] = {}
    for step in range(2):
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        inner = getattr(model, "module", model)
        found |= {f"{step}/{name}": p.grad.clone() for name, p in inner.named_parameters()}
        optimizer.step()
    return found | {f"state/{k}": v.clone() for k, v in getattr(model, "module", model).state_dict().items()}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", WORLD)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    model = Model()
    with torch.no_grad():
        if rank:  # what differs at the start is the first process's
            model.learned.get_parameter("beta").add_(1.0)
            for buffer in model.buffers():
                buffer.zero_()
    x, wanted = (part.chunk(WORLD)[rank] for part in batch())
    found = train(nn.parallel.DistributedDataParallel(model), x, wanted)
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), WORLD)
    model = Model()
    before = copy.deepcopy(model)
    wanted = train(model, *batch())
    names = {name for name in wanted if name.startswith("0/")}
    assert {"0/learned.beta", "0/learned.gamma"} < names
    assert all(bool(wanted[name].ne(0).any()) for name in names)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD)]
    for found in ranks:
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    # A copy made before has numbers of its own; the state of what was trained makes it the same.
    x, _ = batch()
    trained = {name.removeprefix("state/"): value for name, value in ranks[1].items() if name.startswith("state/")}
    assert not torch.equal(before(x), model(x))
    # Tables follow from the numbers, and are no part of the state.
    assert [name for name in trained if name.startswith("fitted.")] == ["fitted.r"]
    before.load_state_dict(trained)
    torch.testing.assert_close(before(x), model(x), rtol=1e-5, atol=1e-6)
    assert before.learned.fitted()["beta"] == pytest.approx(model.learned.fitted()["beta"], rel=1e-5)
