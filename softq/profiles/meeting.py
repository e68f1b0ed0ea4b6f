"""`convert --for`: a model as a profile's rules ask for it, as far as they can be met."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass

from softq._version import __version__
from softq.data import DataSource
from softq.errors import RefusalError
from softq.input_shapes import InputShapes, fix_input_shapes
from softq.modelfile import as_model
from softq.plans import VERSION_KEY
from softq.profiles.judging import Judgement, try_out
from softq.profiles.ranges import assume, measured_on
from softq.profiles.schema import Profile
from softq.profiles.writing import mark, write
from softq.progress import Progress

PROFILE_KEY = "softq.profile"
"""Key under which the profile's name stands in the metadata of a model that was converted for it."""

NEEDS_DATA = "codes of queries, keys, values or scores have ranges that data show: give --calibration DATA"
"""Why a site stays as it was without data."""

M = TypeVar("M", bound="onnx.ModelProto | ir.Model")


@dataclass(frozen=True)
class ProfileConversion(Generic[M]):
    """What `convert_for` returns.

    Attributes:
        model: The converted model: a `ModelProto` for a `ModelProto`, an `ir.Model` for a path or an `ir.Model`.
        sites: What the profile said of each softmax of the original model; those that are taken after a conversion
            are converted, the others are as they were.
        calibrated: Whether there were data: without, those that need them are as they were, too.
    """

    model: M
    sites: tuple[Judgement, ...]
    calibrated: bool = False

    @property
    def converted(self) -> tuple[Judgement, ...]:
        """The sites that were converted."""
        return tuple(site for site in self.sites if site.taken == "after convert" and self._has_ranges(site))

    @property
    def waiting(self) -> tuple[Judgement, ...]:
        """The sites that calibration data would convert."""
        return tuple(site for site in self.sites if site.taken == "after convert" and not self._has_ranges(site))

    def _has_ranges(self, site: Judgement) -> bool:
        return self.calibrated or not site.needs_data


def convert_for(
    model: str | os.PathLike[str] | M,
    profile: Profile,
    *,
    calibration: DataSource | None = None,
    batch: int | None = None,
    require: bool = False,
    input_shapes: InputShapes | None = None,
    progress: Progress | None = None,
) -> ProfileConversion[M]:
    """Return a model in which each softmax that can be is as a profile's rules ask; the argument is never changed.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`.
        profile: What `softq.profiles.load_profile` gave.
        calibration: Data for the ranges of queries, keys, values and scores: see `softq.data.open_data`.
        batch: Samples per run of them; None for the data's own.
        require: Refuse a model in which a site is not taken even after the conversion.
        input_shapes: Shapes of inputs, as in `softq.convert`.
        progress: Called with a step's name, the work done and the work there is, if known.

    Raises:
        InputError: the file is no usable ONNX model, or the data cannot be used.
        RefusalError: `require`, and a site is not taken; the message names the rule. Or a range cannot be measured.
    """
    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    sites, needs = try_out(work, profile, computes=calibration is None)
    found = ProfileConversion(work, sites, calibration is not None)
    if require:
        _require(found, profile)
    done = {site.site for site in found.converted}
    needs = {key: need for key, need in needs.items() if key in done}
    mark(work)
    ranges = assume if calibration is None else measured_on(calibration, batch, progress)
    if needs and write(work, needs, ranges, computes=calibration is None):
        NameFixPass()(work)
        work.metadata_props[VERSION_KEY] = __version__
        work.metadata_props[PROFILE_KEY] = profile.name
    return ProfileConversion(_in_given_form(work, model), sites, calibration is not None)


def _require(found: ProfileConversion[ir.Model], profile: Profile) -> None:
    refused = next((site for site in found.sites if site.taken == "no"), None)
    if refused is not None:
        ruling = next(ruling for ruling in refused.rulings if ruling.state in ("not met", "unknown"))
        raise RefusalError(
            f"site {refused.site} is not taken by {profile.name}: {ruling.subject} is {ruling.found}; {ruling.says}"
            f" ({ruling.source})"
        )
    if found.waiting:
        raise RefusalError(f"site {found.waiting[0].site}: {NEEDS_DATA}")


def _in_given_form(work: ir.Model, given: object) -> M:  # pyright: ignore[reportInvalidTypeVarUse]
    return ir.to_proto(work) if isinstance(given, onnx.ModelProto) else work  # pyright: ignore[reportReturnType]
