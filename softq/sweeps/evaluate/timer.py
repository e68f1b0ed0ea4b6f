"""Timing candidates beside the float model: both as their user would run them, in this process, one at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from softq.errors import RefusalError, UsageError
from softq.io_binding import run_batch
from softq.runner import Written
from softq.sweeps.built import build_and_open
from softq.sweeps.evaluate.evaluator import Subject
from softq.sweeps.evaluate.framework import Opened
from softq.sweeps.records import Timed
from softq.timing import compare_times

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
        targets: Those that candidates are built for and timed on, too; `softq.sweeps.built.check_built` takes them.
        threads: Threads of what was built; all cores if None.

    Raises:
        UsageError: targets are asked for, and the framework's models have no file to build from.
    """

    def __init__(
        self,
        opened: Opened,
        model: ir.Model,
        subject: Subject,
        folder: Path,
        *,
        targets: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self._opened, self._model, self._subject, self._folder = opened, model, subject, folder
        self._targets, self._threads = targets, threads
        self._batch = next(iter(subject.data.batches(subject.batch)))
        self._place = tempfile.TemporaryDirectory(dir=folder)
        self._float = self._write(None, self._place.name)
        if self._targets and self._float.path is None:
            self._place.cleanup()
            raise UsageError("--time-on: targets build ONNX models, and what runs here is none")

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

    def measure(self, plan: Plan) -> tuple[Timed, Mapping[str, Timed]]:
        """Return how long what a plan makes of the model takes beside the float model, and what its files take.

        And the same of what the targets make of that, by the target: each takes turns with the float model for itself.

        Raises:
            SoftqError: as in `softq.conversion.convert` and `softq.building.build`, but for a target's refusals.
            InputError: the framework cannot load or run it.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            written = self._write(plan, place)
            own = self._time(written)
            built = {target: self._time_built(target, written.path, Path(place)) for target in self._targets}
        return own, built

    def _time_built(self, target: str, model: Path | None, place: Path) -> Timed:
        assert model is not None  # Without a file of the float model no target is taken.
        try:
            with build_and_open(target, model, place, self._threads) as written:
                return self._time(written)
        except RefusalError as error:
            return Timed(refused=str(error))

    def _time(self, written: Written) -> Timed:
        return Timed(compare_times(self._run(self._float), self._run(written)), written.size_bytes)

    def _write(self, plan: Plan | None, place: str) -> Written:
        return self._opened.write(self._model, plan, Path(place))

    def _run(self, written: Written) -> partial[object]:
        return partial(run_batch, written.runner, self._batch, self._subject.names, self._subject.batch)
