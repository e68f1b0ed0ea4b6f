"""What softq reads at most: counts that are taken before the work is done, so that no file can hang it or fill memory.

The defaults are far above what models need. `softq limits` prints them; the options `--limit-NAME` of commands change
them, and in Python `limited`, for all that is called inside:

    with softq.limits.limited(nodes=5_000_000):
        sites = softq.inspect("model.onnx")
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace

from softq.errors import UsageError

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_NUMBER = re.compile(r"(\d{1,15})([KMGT]?)", re.ASCII)


def _limit(default: int, about: str) -> int:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Limits:
    """How much of each thing is read; a file that has more is refused, with the name of the limit."""

    nodes: int = _limit(
        500_000, "nodes of a model, those of a function once per call, and once more for each function by itself"
    )
    functions: int = _limit(2_000, "functions of a model")
    opened: int = _limit(
        12_000,
        "nodes of a model below operator set 18 once its functions are opened, and nodes put in place of others",
    )
    softmaxes: int = _limit(1_500, "softmaxes of a model, whatever becomes of them")
    depth: int = _limit(64, "bodies of If, Loop and Scan and calls of functions inside one another")
    rank: int = _limit(64, "axes of a tensor")
    evaluated: int = _limit(
        1 << 29,
        "elements computed to tell functions of scores by their values: 8 million and more for each function",
    )
    memory: int = _limit(
        512 << 20,
        "bytes that ONNX's shape inference, pictures or a tokenizer may take, and any .npz file may unpack to",
    )
    seconds: int = _limit(
        3, "seconds of ONNX's shape inference where it could explode, of each picture, of a tokenizer"
    )

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 60:
                raise UsageError(f"limit {limit.name} is {value!r}; expected a number from 1 to {(1 << 60) - 1}")


_USUAL = Limits()
_current: ContextVar[Limits] = ContextVar("softq.limits", default=_USUAL)


def current() -> Limits:
    """Return the limits that hold here."""
    return _current.get()


def parse_limit(text: str) -> int:
    """Return the number that a text such as `300000` or `4G` means (units of 2^10).

    Raises:
        UsageError: it is none.
    """
    found = _NUMBER.fullmatch(text.strip().upper())
    if found is None:
        raise UsageError(f"limit {text!r} is no number; expected digits, and perhaps K, M, G or T behind them")
    return int(found[1]) << _UNITS[found[2]]


@contextmanager
def limited(**changes: int) -> Generator[Limits]:
    """Let other limits hold inside, by the names of the fields of `Limits`; those not named stay.

    Raises:
        UsageError: there is no such limit, or it is no positive number.
    """
    known = [limit.name for limit in fields(Limits)]
    for name in changes:
        if name not in known:
            raise UsageError(f"there is no limit {name!r}; there are: {', '.join(known)}")
    token = _current.set(replace(current(), **changes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def describe() -> list[tuple[str, int, str]]:
    """Return name, number and meaning of each limit that holds here."""
    return [(limit.name, getattr(current(), limit.name), str(limit.metadata["about"])) for limit in fields(Limits)]
