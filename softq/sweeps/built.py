"""What targets make of settings, opened so that it can be timed: `--time-on TARGET[,KEY=VALUE...]`."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from softq.building import build, check_tvm, parse_target
from softq.errors import RefusalError, UsageError
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
        # What comes with softq may serve every model.
        if _ready(text, None) is None:
            check_tvm(target)


@contextmanager
def build_and_open(text: str, model: Path, place: Path, threads: int | None) -> Generator[Written]:
    """Build a converted model for a target and give what was built, ready to run; it goes with its files.

    What comes with softq is taken instead where it serves the model (`Target.ready`): that is what users run.

    Args:
        text: The target with its options, one that `check_built` takes.
        model: The model's file.
        place: A folder for the files.
        threads: Threads that it runs with; all cores if None.

    Raises:
        RefusalError: the target has no form of the model, or one that needs TVM, which is not installed.
        SoftqError: as in `softq.building.build`, or what was built does not load.
    """
    target = parse_target(text).target
    opened, ready = target.open, _ready(text, model)
    assert opened is not None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        if ready is None:
            try:
                check_tvm(target)
            except UsageError as error:
                raise RefusalError(f"what comes with softq does not serve it, and {error}") from error
        built = ready or build(model, Path(folder) / "built", target=text).folder
        written = opened(model, built, threads)
        try:
            yield written
        finally:
            if written.close is not None:
                written.close()


def _ready(text: str, model: Path | None) -> Path | None:
    """Return the folder that comes with softq for a target that is named without options, and for a model if given."""
    target = parse_target(text).target
    return None if target.ready is None or "," in text else target.ready(model)
