"""`convert --for`: a model as a profile's rules ask for it, as far as they can be met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass

from softq._version import __version__
from softq.errors import RefusalError
from softq.input_shapes import InputShapes, fix_input_shapes
from softq.modelfile import as_model
from softq.plans import VERSION_KEY
from softq.profiles.judging import Judgement, try_out
from softq.profiles.schema import Profile
from softq.profiles.writing import mark, write

PROFILE_KEY = "softq.profile"
"""Key under which the profile's name stands in the metadata of a model that was converted for it."""

M = TypeVar("M", bound="onnx.ModelProto | ir.Model")


@dataclass(frozen=True)
class ProfileConversion(Generic[M]):
    """What `convert_for` returns.

    Attributes:
        model: The converted model: a `ModelProto` for a `ModelProto`, an `ir.Model` for a path or an `ir.Model`.
        sites: What the profile said of each softmax of the original model; those that are taken after a conversion
            are converted, the others are as they were.
    """

    model: M
    sites: tuple[Judgement, ...]

    @property
    def converted(self) -> tuple[Judgement, ...]:
        """The sites that were converted."""
        return tuple(site for site in self.sites if site.taken == "after convert")


def convert_for(
    model: str | M, profile: Profile, *, require: bool = False, input_shapes: InputShapes | None = None
) -> ProfileConversion[M]:
    """Return a model in which each softmax that can be is as a profile's rules ask; the argument is never changed.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`.
        profile: What `softq.profiles.load_profile` gave.
        require: Refuse a model in which a site is not taken even after the conversion.
        input_shapes: Shapes of inputs, as in `softq.convert`.

    Raises:
        InputError: the file is no usable ONNX model.
        RefusalError: `require`, and a site is not taken; the message names the rule.
    """
    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    sites, needs = try_out(work, profile)
    refused = next((site for site in sites if site.taken == "no"), None)
    if require and refused is not None:
        ruling = next(ruling for ruling in refused.rulings if ruling.state in ("not met", "unknown"))
        raise RefusalError(
            f"site {refused.site} is not taken by {profile.name}: {ruling.subject} is {ruling.found}; {ruling.says}"
            f" ({ruling.source})"
        )
    mark(work)
    if needs and write(work, needs):
        NameFixPass()(work)
        work.metadata_props[VERSION_KEY] = __version__
        work.metadata_props[PROFILE_KEY] = profile.name
    return ProfileConversion(_in_given_form(work, model), sites)


def _in_given_form(work: ir.Model, given: object) -> M:  # pyright: ignore[reportInvalidTypeVarUse]
    return ir.to_proto(work) if isinstance(given, onnx.ModelProto) else work  # pyright: ignore[reportReturnType]
