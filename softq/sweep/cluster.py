"""Settings spread over the processes of one machine with dask.distributed: the values of a serial sweep, to the bit.

Each process runs the float model for itself, once, and its value must be that of the first process: what it measures
then does not depend on where.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softq.errors import InputError, ProofError, RefusalError, UsageError
from softq.sweep.bench import Bench
from softq.sweep.planner import Planner, plan_for
from softq.sweep.records import Estimate, Setting

if TYPE_CHECKING:
    from softq.sweep.bench import Measurement
    from softq.sweep.task import Task

_MOST_WORKERS = 256

_kept: dict[str, tuple[Planner, Bench]] = {}
"""What this process measures with, by the folder of its sweep."""


def check_workers(task: Task, workers: int) -> None:
    """Say whether settings can be spread over so many processes.

    Raises:
        UsageError: the number makes no sense, dask.distributed is absent, or a model or data cannot be sent.
    """
    if not 1 <= workers <= _MOST_WORKERS:
        raise UsageError(f"workers is {workers}; allowed is 1 to {_MOST_WORKERS}")
    if workers == 1:
        return
    try:
        import distributed  # noqa: F401  # pyright: ignore
    except ImportError as error:
        raise UsageError("workers need dask.distributed: pip install 'softq[cluster]'") from error
    from os import PathLike

    for what, given in (("model", task.model), ("data", task.data), ("calibration", task.calibration or "")):
        if not isinstance(given, (str, PathLike)):
            raise UsageError(f"workers load the {what} themselves: give its path or name, not a {type(given).__name__}")


def measured(
    task: Task, settings: Sequence[Setting], workers: int, folder: Path, reference: Estimate
) -> Iterator[tuple[Setting, Measurement | RefusalError | ProofError]]:
    """Yield each setting with what it measured, or why it cannot be measured, as they are done.

    Args:
        task: What is measured.
        settings: The settings.
        workers: Number of processes, each with the threads that the task says.
        folder: Where the processes can leave the float model's outputs; the caller removes it.
        reference: The float model's value, which each process must find too.

    Raises:
        InputError: as in a serial sweep, or a process finds another value of the float model, or dies again and again.
    """
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=min(workers, len(settings)),
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,  # pyright: ignore[reportArgumentType]
            local_directory=str(folder),
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        sent: dict[Any, Setting] = {
            client.submit(_measure, task, one, str(folder), reference, key=one.key, pure=False): one for one in settings
        }
        for future in distributed.as_completed(list(sent)):
            try:
                yield sent[future], future.result()
            except (RefusalError, ProofError) as error:
                yield sent[future], error
            except distributed.KilledWorker as error:
                raise InputError(f"a process that measured {sent[future].key} died again and again") from error


def _measure(task: Task, setting: Setting, folder: str, reference: Estimate) -> Measurement:
    if folder not in _kept:
        runner = task.runner()
        place = Path(tempfile.mkdtemp(dir=folder))
        bench = Bench(runner, task.subject(runner), place, threads=task.threads)
        # As texts, because a NaN is not equal to itself.
        if repr(bench.reference) != repr(reference):
            raise InputError(f"a worker finds {bench.reference.value} for the float model, not {reference.value}")
        _kept[folder] = (Planner(task.model, task.selection, task.calibration), bench)
    planner, bench = _kept[folder]
    return bench.measure(planner.converted(plan_for(planner, setting)))
