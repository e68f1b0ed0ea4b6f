"""What a sweep measures, as it stands in its folder: `study.json`, and a line of `outcomes.jsonl` for each setting.

A line is appended when its setting is done, so that a sweep that is interrupted loses the setting at hand and no more.
The same fields as JSON are the interface for whoever reads the folder; `SCHEMA` is their version.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softq.errors import InputError
from softq.files import open_descriptor, parse_json, read_json, read_text
from softq.json_values import to_plain
from softq.methods import OptionValue
from softq.metrics import Evidence, Flips
from softq.targets import Amount, Amounts
from softq.timing import TimeRatio

SCHEMA = 1
STUDY, OUTCOMES = "study.json", "outcomes.jsonl"
REPORTS = ("report.html", "report.json", "report.csv", "report.md", "report.model-explorer.json")
"""What `softq.sweeps.report` writes from them."""


PROFILED = "for "
"""What the name of a setting begins with that is of a profile, and of no method."""


@dataclass(frozen=True)
class Setting:
    """A method with its options, and where it is used.

    Attributes:
        method: Name of the method; "for" and a profile's name where it is what that profile asks for.
        options: Its options by name, as the user gave them (`bits` among them); the others have their defaults.
        site: The one site that gets it; None if every site that takes a method does.
        head: The one head of the site that gets it, the others staying float; None if all do.
    """

    method: str
    options: Mapping[str, OptionValue]
    site: str | None = None
    head: int | None = None

    @property
    def is_profiled(self) -> bool:
        """Whether it is what a profile asks for: there is no method then."""
        return self.method.startswith(PROFILED)

    @property
    def key(self) -> str:
        """One text for equal settings, by which a sweep knows what is done."""
        return json.dumps([self.method, sorted(self.options.items()), self.site, self.head])


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over the samples; the ends are None where no interval means anything.

    A loss that is a share of samples has the `flips` between right and wrong too.
    """

    value: float
    low: float | None = None
    high: float | None = None
    flips: Flips | None = None

    def evidence(self, samples: int) -> Evidence | None:
        """Return what a loss over so many samples shows; None without an interval."""
        if self.high is None or samples < 1 or not math.isfinite(self.value):
            return None
        return Evidence(self.value, self.high, samples, self.flips)


@dataclass(frozen=True)
class SiteErrors:
    """What a setting does to one site, over the rows of a bounded sample with at least one unmasked element.

    Attributes:
        output_error: Norm of the change of P x V over the norm of P x V; None where there is no V.
        row_sums: Quantiles 0, 0.05, 0.5, 0.95 and 1 of the sum of the weights.
        mean_row_sum: Mean of the sum of the weights.
        argmax_flips: Share of the rows whose greatest weight is at another position.
        top5_flips: Share of the rows whose five greatest weights are another set.
        masked: Share of the elements that are masked.
        rows: Rows in the sample.
    """

    output_error: float | None
    row_sums: tuple[float, float, float, float, float]
    mean_row_sum: float
    argmax_flips: float
    top5_flips: float
    masked: float
    rows: int


@dataclass(frozen=True)
class Costed:
    """What a setting takes on the target.

    Attributes:
        amounts: By name; none where the target has no form of the method.
        refused: Why there are none.
    """

    amounts: Amounts
    refused: str = ""


@dataclass(frozen=True)
class Timed:
    """What a target makes of a setting, as it ran.

    Attributes:
        time_ratio: The time of a run over the float model's in onnxruntime; None where the target refuses the model.
        size_bytes: What a user would ship of it takes.
        refused: Why it was refused.
    """

    time_ratio: TimeRatio | None = None
    size_bytes: int | None = None
    refused: str = ""


@dataclass(frozen=True)
class Outcome:
    """What was measured for one setting.

    Attributes:
        setting: The setting.
        metric: The task's metric; NaN, as the loss, where only the errors of sites were measured and `samples` is 0.
        loss: How much worse than the float model, in the metric's unit, paired over the samples; negative is better.
            For perplexity the ratio to the float model's, minus 1.
        samples: Samples that were evaluated.
        seconds: Of the evaluation.
        sites: Errors by site, where they were measured.
        time_ratio: The time of a run over the float model's, where they were timed.
        size_bytes: What the files of the converted model take, weights too, where it was timed and has files.
        cost: What it takes on a target, where that was asked for; for one site if the setting is of one.
        built: What targets make of it, where that was built and timed, by the target as the user gave it.
    """

    setting: Setting
    metric: Estimate
    loss: Estimate
    samples: int
    seconds: float
    sites: Mapping[str, SiteErrors] = field(default_factory=dict[str, SiteErrors])
    time_ratio: TimeRatio | None = None
    size_bytes: int | None = None
    cost: Costed | None = None
    built: Mapping[str, Timed] = field(default_factory=dict[str, Timed])


@dataclass(frozen=True)
class Study:
    """What all settings of a sweep have in common.

    Attributes:
        softq: Version that measured.
        versions: Versions of what computed the values.
        model: The model's name as the user gave it.
        graph: Hash of its graph without weights.
        weights: Fingerprint of its weights.
        data: The data's name as the user gave it.
        data_hash: Hash of the data.
        samples: Number of samples evaluated.
        metric: Name of the metric.
        unit: Its unit.
        direction: `higher` or `lower`: which is better.
        relative: Whether losses are shares of the float value (ratio minus 1) instead of differences.
        reference: The float model's metric.
        seconds: Of the float model's evaluation.
        sites: The sites that take a method, as `softq inspect --json` has them, with `node`, the name of the node.
        command: What reproduces the sweep.
        schema: Version of this form.
        conditions: What else the values depend on, by name: the user's choices as he gave them, and the hash of the
            calibration data. A sweep goes on only under the same ones.
        size_bytes: What the float model's files take, where it was timed and has files.
    """

    softq: str
    versions: Mapping[str, str]
    model: str
    graph: str
    weights: str
    data: str
    data_hash: str
    samples: int
    metric: str
    unit: str
    direction: str
    relative: bool
    reference: Estimate
    seconds: float
    sites: tuple[Mapping[str, Any], ...]
    command: str
    schema: int = SCHEMA
    conditions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    size_bytes: int | None = None


def read(folder: str | os.PathLike[str]) -> tuple[Study, tuple[Outcome, ...]]:
    """Return what stands in a sweep's folder; a last line that was cut off in the middle is left out.

    Raises:
        InputError: the folder holds no sweep, or one of another schema, or a file is damaged; the message says which.
    """
    path = Path(folder)
    try:
        study = read_json(path / STUDY, follow=False)
    except OSError as error:
        raise InputError(f"{path} holds no sweep: {STUDY}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path / STUDY} is not JSON: {error}") from error
    try:
        lines = read_text(path / OUTCOMES, follow=False).split("\n")
    except FileNotFoundError:
        lines = [""]
    except OSError as error:
        raise InputError(f"{path / OUTCOMES} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path / OUTCOMES} is damaged: {error}") from error
    if not isinstance(study, dict) or study.get("schema") != SCHEMA:
        raise InputError(f"{path / STUDY} is no sweep of schema {SCHEMA}")
    outcomes: list[Outcome] = []
    try:
        found: dict[str, Any] = study | {"reference": estimate_of(study["reference"]), "sites": tuple(study["sites"])}
        for line in lines[:-1]:  # what stands behind the last newline was cut off
            outcomes.append(_outcome(parse_json(line)))
        return Study(**found), tuple(outcomes)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{path}: line {len(outcomes) + 1} of {OUTCOMES}, or {STUDY}, is damaged: {error}") from error


def append(folder: str | os.PathLike[str], outcome: Outcome) -> None:
    """Add an outcome to the folder; it is on the disk when this returns."""
    line = json.dumps(to_plain(outcome), allow_nan=False) + "\n"
    descriptor = open_descriptor(Path(folder) / OUTCOMES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def estimate_of(plain: Mapping[str, Any]) -> Estimate:
    """Return an estimate from the plain values that `to_plain` makes of it."""
    low, high = (None if plain[end] is None else float(plain[end]) for end in ("low", "high"))
    flips = plain.get("flips")  # records of earlier versions have none
    return Estimate(float(plain["value"]), low, high, None if flips is None else Flips(**flips))


def _site_errors(plain: Mapping[str, Any]) -> SiteErrors:
    # What is no finite number stands there as text.
    numbers: dict[str, Any] = {key: float(value) if isinstance(value, str) else value for key, value in plain.items()}
    numbers["row_sums"] = tuple(map(float, plain["row_sums"]))
    return SiteErrors(**numbers)


def _outcome(plain: Mapping[str, Any]) -> Outcome:
    sites = {name: _site_errors(errors) for name, errors in plain["sites"].items()}
    return Outcome(
        Setting(**plain["setting"]),
        estimate_of(plain["metric"]),
        estimate_of(plain["loss"]),
        int(plain["samples"]),
        float(plain["seconds"]),
        sites,
        # Records of earlier versions have none of these.
        _ratio(plain.get("time_ratio")),
        plain.get("size_bytes"),
        _costed(plain.get("cost")),
        {
            target: Timed(_ratio(one["time_ratio"]), one["size_bytes"], str(one["refused"]))
            for target, one in plain.get("built", {}).items()
        },
    )


def _ratio(plain: Mapping[str, Any] | None) -> TimeRatio | None:
    return None if plain is None else TimeRatio(**plain)


def _costed(plain: Mapping[str, Any] | None) -> Costed | None:
    if plain is None:
        return None
    amounts = {name: Amount(float(one["value"]), str(one["unit"])) for name, one in plain["amounts"].items()}
    return Costed(amounts, str(plain["refused"]))
