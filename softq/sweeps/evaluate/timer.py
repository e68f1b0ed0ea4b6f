"""Timing candidates beside the float model: both as their user would run them, in this process, one at a time."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from softq.io_binding import run_batch
from softq.runner import Written
from softq.sweeps.evaluate.evaluator import Subject
from softq.sweeps.evaluate.framework import Opened
from softq.timing import TimeRatio, compare_times

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.plans import Plan


class Timer:
    """Times what plans make of one model on the first batch of the data.

    Sessions of a sweep take the numbers and tables of a plan as inputs; here they are constants, as `convert` writes
    them, since a runtime computes ahead what is constant.

    Args:
        opened: The model.
        model: The same, loaded.
        subject: What it is run on.
        folder: For scratch files.
    """

    def __init__(self, opened: Opened, model: ir.Model, subject: Subject, folder: Path) -> None:
        self._opened, self._model, self._subject, self._folder = opened, model, subject, folder
        self._batch = next(iter(subject.data.batches(subject.batch)))
        self._place = tempfile.TemporaryDirectory(dir=folder)
        self._float = self._write(None, self._place.name)

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.cleanup()

    @property
    def size_bytes(self) -> int | None:
        """What the float model's files take."""
        return self._float.size_bytes

    def measure(self, plan: Plan) -> tuple[TimeRatio, int | None]:
        """Return how long what a plan makes of the model takes beside the float model, and what its files take.

        Raises:
            SoftqError: as in `softq.conversion.convert`.
            InputError: the framework cannot load or run it.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            written = self._write(plan, place)
            return compare_times(self._run(self._float), self._run(written)), written.size_bytes

    def _write(self, plan: Plan | None, place: str) -> Written:
        return self._opened.write(self._model, plan, Path(place))

    def _run(self, written: Written) -> partial[object]:
        return partial(run_batch, written.runner, self._batch.inputs, self._subject.names, self._batch.samples)
