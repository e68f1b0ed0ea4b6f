"""The way to a cluster: processes of this machine that live as long as the sweep, or one that the user runs."""

from __future__ import annotations

import logging
import ssl
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from softq.errors import InputError, UsageError
from softq.own_files import check_trusted
from softq.sweeps.frameworks import FRAMEWORKS
from softq.sweeps.task import Task, Tls

if TYPE_CHECKING:
    from distributed import Client, Security

_MOST_WORKERS = 256
_REACH = 10.0
"""Seconds in which a scheduler must answer."""


def check_workers(task: Task) -> None:
    """Say whether a task can be distributed as it asks for.

    Raises:
        UsageError: an option makes no sense, dask.distributed is absent, or a model or data cannot be sent.
    """
    if not 1 <= task.workers <= _MOST_WORKERS:
        raise UsageError(f"workers is {task.workers}; allowed is 1 to {_MOST_WORKERS}")
    if task.timeout is not None and not task.timeout > 0:
        raise UsageError(f"timeout is {task.timeout}; it must be above 0")
    if not task.distributed:
        if task.timeout is not None:
            raise UsageError("timeout is for --workers or --scheduler: this process does not watch itself")
        if task.tls is not None:
            raise UsageError("the files of TLS are for --workers or --scheduler: this process talks to no other")
        return
    if task.time:
        raise UsageError("--time: other processes take the cores meanwhile; measure in one process")
    if not FRAMEWORKS.open(task.framework).distributed:
        raise UsageError(
            f"--workers and --scheduler: a model of the framework {task.framework} is measured in one process"
        )
    if task.scheduler is not None:
        check_trusted(task.scheduler)  # Pickles go to it, and come from it.
    if task.tls is not None:
        _check_tls(task.tls, task.scheduler)
    if task.scheduler is not None and task.workers > 1:
        raise UsageError("--workers starts processes on this machine, --scheduler uses those of a cluster: give one")
    try:
        import distributed  # noqa: F401  # pyright: ignore
    except ImportError as error:
        raise UsageError("workers need dask.distributed: pip install 'softq[cluster]'") from error
    for what, given in (("model", task.model), ("data", task.data)):
        if not isinstance(given, (str, PathLike)):
            raise UsageError(f"workers load the {what} themselves: give its path or name, not a {type(given).__name__}")


def _check_tls(tls: Tls, scheduler: str | None) -> None:
    if scheduler is not None and not scheduler.startswith("tls://"):
        raise UsageError(f"the files of TLS are given, but scheduler {scheduler!r} does not begin with tls://")
    try:
        for path in (tls.ca_file, tls.cert, tls.key):
            with open(path, "rb"):
                pass
        ssl.create_default_context(cafile=tls.ca_file).load_cert_chain(tls.cert, tls.key, password=_refuse)
    except OSError as error:  # as is ssl's own
        where = error.filename or f"{tls.ca_file}, {tls.cert}, {tls.key}"
        raise InputError(f"the files of TLS cannot be used: {where}: {error.strerror or error}") from error


def _refuse() -> str:
    raise InputError("the private key of TLS has a passphrase, which nobody could type on a worker")


def _security(tls: Tls | None) -> Security | None:
    """Return what dask takes; without files it asks its own configuration."""
    from distributed.security import Security

    if tls is None:
        return None
    files = {f"tls_{who}_{what}": path for who in ("client", "scheduler", "worker")
             for what, path in (("cert", tls.cert), ("key", tls.key))}  # fmt: skip
    return Security(tls_ca_file=tls.ca_file, require_encryption=True, **files)


@contextmanager
def connect(task: Task, folder: Path) -> Generator[Client | None]:
    """Give a client of the cluster that a task asks for, or None where it asks for none.

    Args:
        task: What is measured.
        folder: Where processes of this machine have their scratch files; the caller removes it.

    Raises:
        UsageError: there is no scheduler at the address.
        InputError: no process can be started.
    """
    if not task.distributed:
        yield None
        return
    import distributed

    with ExitStack() as stack:
        stack.enter_context(_silent())
        security = _security(task.tls)
        try:
            cluster = task.scheduler or stack.enter_context(
                distributed.LocalCluster(
                    n_workers=task.workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,  # pyright: ignore[reportArgumentType]
                    # What a worker holds is bounded by a shard; dask's own limit would pause or kill a large model.
                    memory_limit=0,
                    local_directory=str(folder),
                    silence_logs=logging.CRITICAL,
                    security=security,
                )
            )
            client = stack.enter_context(
                distributed.Client(cluster, timeout=_REACH, set_as_default=False, security=security)
            )
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            if task.scheduler is None:
                raise InputError(
                    f"cannot start {task.workers} processes ({error}); a script needs if __name__ == '__main__'"
                ) from error
            what = "scheduler" if task.tls is None else "scheduler that trusts this certificate"
            raise UsageError(
                f"no {what} answers at {task.scheduler!r}; `dask scheduler` starts one and prints its address"
            ) from error
        yield client


@contextmanager
def _silent() -> Generator[None]:
    """Keep distributed from printing: what matters is said once, by softq."""
    # Its configuration gives some of its loggers levels of their own.
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in ("distributed", *names)}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
