"""The cores that are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from softq.codegen.verilog.weighted_plan import ValueSettings
from softq.methods import METHODS
from softq.rtl import MadeCore, MadeWeightedCore, rtl, rtl_with_values

STEP = 0.06
LONGEST = 1024


@dataclass(frozen=True)
class ValueWork:
    """A core with V.

    Attributes:
        name: What tables call it.
        settings: Options of the method.
        values: What the product with V is built for.
        method: The method.
    """

    name: str
    settings: Mapping[str, object]
    values: ValueSettings
    method: str = "deferred-log"

    def make(self) -> MadeWeightedCore:
        """Return the core."""
        return rtl_with_values(
            self.method, self.values, {"step": STEP, **self.settings}, length=LONGEST, reset=False, rows=0
        )


@dataclass(frozen=True)
class Work:
    """A core.

    Attributes:
        name: What tables call it.
        method: The method.
        settings: Its options.
        outputs: What the core gives.
        lanes: Elements of a beat.
        length: Elements of the longest row.
        scores: Type of the scores.
        masked: Whether a bit beside each score says that it takes part.
        reset: Whether there is a reset.
        more: What else `softq.rtl.rtl` is given.
    """

    name: str
    method: str
    settings: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    lanes: int = 1
    length: int = LONGEST
    scores: str = "i8"
    masked: bool = False
    reset: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> MadeCore:
        """Return the core."""
        scale = {"step": STEP} if "step" in METHODS.get(self.method).options.specs() else {}
        return rtl(
            self.method,
            {**scale, **self.settings},
            outputs=self.outputs,
            lanes=self.lanes,
            length=self.length,
            scores=self.scores,
            masked=self.masked,
            reset=self.reset,
            rows=0,
            **self.more,
        )


_DEFERRED = {"bits": 4}
_CODES = ("codes", "normalizer")
_WEIGHTS = ("weights",)
_UINT8 = {"output": "uint8"}


def _with_lanes(work: Work) -> Sequence[Work]:
    return [replace(work, name=f"{work.name}, P = {lanes}", lanes=lanes) for lanes in (2, 4, 8)]


_FIRST = Work("deferred-log", "deferred-log", _DEFERRED, _CODES)
_ITA = Work("ita", "ita", _UINT8, _WEIGHTS)
_INDEX = Work("index-softmax", "index-softmax", _UINT8, _WEIGHTS)
_E2 = Work("e2softmax", "e2softmax")
_WITH_PRODUCTS = (
    Work("shiftmax", "shiftmax", {"output": "int8"}, _WEIGHTS),
    Work("hls4ml", "hls4ml", {"output": "fixed"}, _WEIGHTS),
    Work("tflite-int8", "tflite-int8", {"output": "int8"}, _WEIGHTS),
)

WORKS: Sequence[Work] = (
    _FIRST,
    *_with_lanes(_FIRST),
    _E2,
    _ITA,
    _INDEX,
    *_WITH_PRODUCTS,
    *(replace(work, name=f"{work.name}, serial products", more={"products": "serial"}) for work in _WITH_PRODUCTS),
    Work("deferred-log-octaves", "deferred-log-octaves", _DEFERRED, _CODES),
    Work("edge-moe", "edge-moe"),
    Work("edge-moe, maximum first", "edge-moe", {"maximum": "first"}),
)
"""Cores of rows of up to `LONGEST` elements, int8 scores, no mask and no reset."""

OPTIONS: Sequence[Work] = (
    replace(_FIRST, name="deferred-log, reset", reset=True),
    replace(_FIRST, name="deferred-log, mask", masked=True),
    replace(_FIRST, name="deferred-log, uint8", scores="u8"),
    replace(_FIRST, name="deferred-log, packed codes", more={"packed": True}),
    replace(_FIRST, name="deferred-log, cut", more={"cut": True}),
    replace(_FIRST, name="deferred-log, registers", more={"registers": True}),
    replace(_FIRST, name="deferred-log, registers, 4 heads", more={"registers": True, "heads": 4}),
    replace(_FIRST, name="deferred-log, N up to 256", length=256),
    replace(_FIRST, name="deferred-log, N up to 4096", length=4096),
)
"""One option each beside the first core."""

LANES: Sequence[Work] = tuple(more for work in (_E2, _ITA, _INDEX) for more in _with_lanes(work))
"""Other cores of several lanes."""

OTHERS: Sequence[Work] = tuple(
    Work(name, method, settings)
    for name, method, settings in (
        ("deferred-log of 3 bits", "deferred-log", {"bits": 3}),
        ("deferred-log of 8 bits", "deferred-log", {"bits": 8}),
        ("exaq", "exaq", {}),
        ("i-exp", "i-exp", {}),
        ("limit-exp", "limit-exp", {}),
        ("log-int", "log-int", {}),
        ("softermax", "softermax", {}),
        ("tflite-int16", "tflite-int16", {}),
        ("xnn-qu8", "xnn-qu8", {}),
    )
)
"""Other methods with their default options: weights or codes, and their sum."""

_SHIFTS = {"bits": 4, "r": 1, "steps": "equal"}
_V = ValueSettings(64, lanes=8)

VALUES: Sequence[ValueWork] = (
    ValueWork("V, D = 64, L = 8, shifts", _SHIFTS, _V),
    ValueWork("V, D = 64, L = 8, adders", _DEFERRED, _V),
    ValueWork("V, D = 64, L = 8, multipliers", _DEFERRED, replace(_V, multipliers=True)),
)
"""Codes of 4 bits and their product with V."""
