"""ONNX models in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from softq.data import DataSource
from softq.modelfile import ModelLike
from softq.runner import OnnxRunner
from softq.sweeps.evaluate.framework import Framework, ModelSource
from softq.sweeps.evaluate.sessions import OnnxSessions

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class _Opened:
    """An ONNX model; it is loaded when it is used."""

    model: ModelLike
    threads: int | None
    packages: Sequence[str] = ()

    @property
    def conditions(self) -> Mapping[str, object]:
        return {}

    def runner(self) -> OnnxRunner:
        return OnnxRunner.open(self.model, threads=self.threads)

    def sessions(self, model: ir.Model, most: int = 1) -> OnnxSessions:
        return OnnxSessions(model, self.threads, most)


def _open(model: ModelSource, data: Sequence[DataSource], batch: int | None, threads: int | None) -> _Opened:
    return _Opened(cast("ModelLike", model), threads)  # What is none is refused when it is loaded.


FRAMEWORK = Framework("onnx", _open, distributed=True)
