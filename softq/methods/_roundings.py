"""Number types for the steps of float methods: what each of them gives is rounded to a format, whatever the method.

The steps are those of `softq.rowprog.library`: the difference from the maximum, the exponential, the sum of a row, and
what goes into the product with V. The sum is rounded once, behind the last element: in what order accelerators add is
their own. A distance that is infinite, that of a masked element, stays so in formats without infinities.

Not every method has every step: the weight of a rectified score has no exponential, a logarithm of probabilities no
product before it is coded. A type for a step that there is not is refused, with those that there are; methods whose
every number is an integer have no such options, since widths of fixed point stand in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from softq.methods._options import Options, OptionValue, option
from softq.rowprog.library import Step

StepType = Literal["f32", "bf16", "f16", "e5m2", "e4m3"]


@dataclass(frozen=True)
class FloatOptions(Options):
    """Base of the options of methods that compute with floats; none of them is named where it is f32."""

    difference_type: StepType = option("f32", "the type of the difference from the row's maximum")
    exponential_type: StepType = option("f32", "the type of exponentials")
    sum_type: StepType = option("f32", "the type of a row's sum, rounded once behind the last element")
    product_type: StepType = option(
        "f32", "the type of what is multiplied with V; of methods that divide first, of exponentials over their sum"
    )

    @property
    def types(self) -> Mapping[Step, str]:
        """The formats that steps are rounded to."""
        given = super().to_json()
        return {step: str(given[f"{step}_type"]) for step in get_args(Step) if given[f"{step}_type"] != "f32"}

    def to_json(self) -> dict[str, OptionValue]:
        """Return the options by name, types only where they are not f32: plans are older than they."""
        left = {f"{step}_type" for step in get_args(Step)} - {f"{step}_type" for step in self.types}
        return {name: value for name, value in super().to_json().items() if name not in left}
