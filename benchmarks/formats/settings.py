"""Which formats of weights are compared, where, and where the results are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softq.methods import OptionValue

RESULTS = Path(__file__).parent.parent / "formats.json"
COMMAND = "python -m benchmarks.formats"

Settings = Mapping[str, OptionValue]


@dataclass(frozen=True)
class Setting:
    """A format of weights.

    Attributes:
        label: What the tables call it.
        bits: Of a stored weight, with its share of a block's scale.
        method: The method.
        settings: Its options.
        fitted: Whether options are fitted: on a model's calibration data, or on rows beside those that are measured.
    """

    label: str
    bits: float
    method: str
    settings: Settings
    fitted: bool = False

    @property
    def key(self) -> tuple[str, float]:
        """What tells it from the others."""
        return self.label, self.bits


def _formats(label: str, bits: float, method: str, settings: Settings, fitted: Settings) -> Iterator[Setting]:
    yield Setting(label, bits, method, settings)
    yield Setting(f"{label}, exact sum", bits, method, {**settings, "sum": "exact"})
    yield Setting(f"{label}, {' and '.join(_NAMES[name] for name in fitted)} fitted", bits, method,
                  {**settings, **fitted}, True)  # fmt: skip
    yield Setting(f"{label}, V too", bits, method, {**settings, "values": "coded"})
    yield Setting(f"{label} of p", bits, method, {**settings, "of": "probabilities"})


_NAMES = {"top": "scale", "sum": "sum"}
_SUM: Settings = {"sum": "head"}
_SCALE_AND_SUM: Settings = {"top": "head", **_SUM}

SETTINGS = (
    *_formats("FP8 E4M3", 8, "fp8", {}, _SCALE_AND_SUM),
    *_formats("FP8 E5M2", 8, "fp8", {"format": "e5m2"}, _SCALE_AND_SUM),
    *_formats("MXFP8 E4M3", 8.25, "mxfp8", {}, _SUM),
    *_formats("MXFP4", 4.25, "mxfp4", {}, _SUM),
    *_formats("NVFP4", 4.5, "nvfp4", {}, _SUM),
    Setting("deferred-log", 8, "deferred-log", {"bits": 8}),
    Setting("deferred-log", 5, "deferred-log", {"bits": 5}),
    Setting("deferred-log", 4, "deferred-log", {"bits": 4}),
    Setting("EXAQ", 4, "exaq", {"bits": 4}),
    Setting("EXAQ, clip fitted", 4, "exaq", {"bits": 4, "clip": "head"}, True),
    Setting("IndexSoftmax", 5, "index-softmax", {"bits": 5}),
    Setting("IndexSoftmax", 4, "index-softmax", {"bits": 4}),
    Setting("uniform", 8, "uniform", {"bits": 8}),
)

_LEFT_OUT = ("E5M2, V too", "E5M2 of p", "FP8 E4M3 of p", "MXFP4 of p", "MXFP8 E4M3, V too")
ON_SMALL = tuple(s for s in SETTINGS if not any(part in s.label for part in _LEFT_OUT))
"""What is measured on the committed models: what differs little on the rows is left out."""

_AT_DEFAULTS = ("FP8 E4M3", "MXFP8 E4M3", "MXFP4", "NVFP4", "deferred-log", "EXAQ", "IndexSoftmax")
_WITH_FITS = (
    *_AT_DEFAULTS, "FP8 E4M3, scale and sum fitted", "MXFP4, sum fitted", "NVFP4, sum fitted", "EXAQ, clip fitted",
)  # fmt: skip


def _labelled(labels: Sequence[str]) -> tuple[Setting, ...]:
    return tuple(setting for setting in SETTINGS if setting.label in labels)


_ON_SMOLLM2 = (
    ("FP8 E4M3", 8), ("NVFP4", 4.5), ("deferred-log", 4), ("MXFP4", 4.25), ("deferred-log", 8), ("EXAQ", 4),
    ("IndexSoftmax", 4), ("MXFP8 E4M3", 8.25), ("NVFP4, exact sum", 4.5), ("NVFP4, sum fitted", 4.5),
)  # fmt: skip


def _of(keys: Sequence[tuple[str, float]]) -> tuple[Setting, ...]:
    return tuple(setting for key in keys for setting in SETTINGS if setting.key == key)


@dataclass(frozen=True)
class Share:
    """How a study is measured: which settings, on how many samples of its evaluation data (None: all)."""

    settings: tuple[Setting, ...]
    samples: int | None = None


SHARES: Mapping[str, Share] = {
    "MNIST ViT": Share(ON_SMALL), "Wikipedia language model": Share(ON_SMALL),
    "all-MiniLM-L6-v2": Share(_labelled(_WITH_FITS), 87),
    "SmolLM2-135M": Share(_of(_ON_SMOLLM2), 4),
}  # fmt: skip
"""By the study's name; the others are not measured here."""


def load() -> dict[str, Any]:
    """Return the results so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(found: Mapping[str, Any]) -> None:
    """Write the results so far."""
    text = json.dumps(found, indent=1)
    # Numbers of fits in a line instead of a line each.
    RESULTS.write_text(re.sub(r"(?<=[\d\[,])\s+(?=[-\d\]])", "", text) + "\n", encoding="utf-8")
