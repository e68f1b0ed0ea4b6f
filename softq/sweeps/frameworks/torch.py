"""PyTorch modules, with softq's own in the place of their softmaxes and attentions."""

from __future__ import annotations

from collections.abc import Sequence

from softq.data import DataSource
from softq.errors import UsageError
from softq.sweeps.evaluate.framework import Framework, ModelSource, Opened


def _open(model: ModelSource, data: Sequence[DataSource], batch: int | None, threads: int | None) -> Opened:
    try:
        from softq.torch.measuring import open_module
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("models of the framework torch need PyTorch: pip install 'softq[torch]'") from error
    return open_module(model, data, batch=batch, threads=threads)


FRAMEWORK = Framework("torch", _open)
