"""What targets make of settings, opened so that it can be timed: `--time-on TARGET[,KEY=VALUE...]`."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from softq.building import build, check_tvm, parse_target
from softq.errors import UsageError
from softq.runner import Written
from softq.targets import TARGETS


def check_built(texts: Sequence[str]) -> None:
    """Refuse targets that cannot be built and timed here, before anything is measured.

    Raises:
        UsageError: a target or an option is unknown, one is not timed, is named twice, or needs TVM and there is none.
    """
    if len(set(texts)) < len(texts):
        raise UsageError(f"--time-on {' '.join(texts)}: one is named twice")
    for text in texts:
        target = parse_target(text).target
        if target.open is None:
            known = ", ".join(name for name, one in TARGETS.entries().items() if one.open is not None)
            raise UsageError(f"what target {target.name} builds is not timed here; that of these is: {known}")
        check_tvm(target)


@contextmanager
def build_and_open(text: str, model: Path, place: Path, threads: int | None) -> Generator[Written]:
    """Build a converted model for a target and give what was built, ready to run; it goes with its files.

    Args:
        text: The target with its options, one that `check_built` takes.
        model: The model's file.
        place: A folder for the files.
        threads: Threads that it runs with; all cores if None.

    Raises:
        RefusalError: the target has no form of the model.
        SoftqError: as in `softq.building.build`, or what was built does not load.
    """
    opened = parse_target(text).target.open
    assert opened is not None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        built = build(model, Path(folder) / "built", target=text).folder
        written = opened(model, built, threads)
        try:
            yield written
        finally:
            if written.close is not None:
                written.close()
