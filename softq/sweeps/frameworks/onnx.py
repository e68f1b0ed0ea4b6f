"""ONNX models in onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from softq.conversion import convert
from softq.data import DataSource
from softq.modelfile import ModelLike, as_model, save
from softq.modelfile.writing import files_size
from softq.runner import OnnxRunner, Written
from softq.sweeps.evaluate.framework import Framework, ModelSource
from softq.sweeps.evaluate.sessions import OnnxSessions

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.plans import Plan


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

    def write(self, model: ir.Model, plan: Plan | None, folder: Path) -> Written:
        path = folder / "model.onnx"
        if plan is not None:
            save(convert(as_model(model), plan=plan).model, path)
        elif isinstance(self.model, (str, os.PathLike)):
            path = Path(self.model)
        else:
            save(as_model(model), path)
        return Written(OnnxRunner.open(path, threads=self.threads, spin=False), files_size(path), path)


def _open(model: ModelSource, data: Sequence[DataSource], batch: int | None, threads: int | None) -> _Opened:
    return _Opened(cast("ModelLike", model), threads)  # What is none is refused when it is loaded.


FRAMEWORK = Framework("onnx", _open, distributed=True)
