"""What a rule of a profile can ask of a softmax: a few predicates, each with the subject that it is about."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from softq.profiles.reading import MOVES, FoundEncoding, Operand, SiteView


@dataclass(frozen=True)
class Answer:
    """Whether a site is as a rule asks, and what it has: `met` is None where this cannot be told from the model."""

    met: bool | None
    found: str


@dataclass(frozen=True)
class Encoding:
    """Codes that stand for the weights.

    Attributes:
        dtype: ONNX element type of the codes.
        scale: What one code stands for; None where the document leaves it open.
        zero_point: The code of 0; None where the document leaves it open.
        scores: The element type of the codes of the scores that it goes with; empty for any.
        chosen_scale: What a conversion writes where the document leaves the scale open.
        chosen_zero_point: Likewise.
        normalized: Whether the weights of a row add up to 1; if not, codes are of exponentials, the greatest of a row
            is the greatest code, and the product with values is divided by their sum.
    """

    dtype: str
    scale: Fraction | None = None
    zero_point: int | None = None
    scores: str = ""
    chosen_scale: Fraction | None = None
    chosen_zero_point: int | None = None
    normalized: bool = True

    def matches(self, found: FoundEncoding) -> bool:
        """Return whether codes of a model are these; a scale is compared as a float32 or as a float16."""
        return (
            found.dtype == self.dtype
            and found.normalized == self.normalized
            and (self.scale is None or _equal(found.scale, self.scale))
            and (self.zero_point is None or found.zero_point == self.zero_point)
        )

    def to_write(self) -> FoundEncoding | None:
        """Return the codes that a conversion writes; None where the profile does not settle them."""
        scale = self.chosen_scale if self.scale is None else self.scale
        zero = self.chosen_zero_point if self.zero_point is None else self.zero_point
        return None if scale is None or zero is None else FoundEncoding(self.dtype, float(scale), zero, self.normalized)


def _equal(found: float | None, asked: Fraction) -> bool:
    if found is None:
        return False
    return found == float(np.float16(asked)) or math.isclose(found, float(asked), rel_tol=2.0**-23)


@dataclass(frozen=True)
class Check(ABC):
    """What a rule asks; `subject` is what it is about."""

    subject: ClassVar[str]

    @abstractmethod
    def ask(self, view: SiteView) -> Answer:
        """Return whether the site is so, and what it has."""


@dataclass(frozen=True)
class Operator(Check):
    """Which operators are taken; those of other domains as `domain::Name`."""

    subject = "operator"
    operators: tuple[str, ...]

    def ask(self, view: SiteView) -> Answer:
        """Return whether the site is one of these, and no form that is written out."""
        plain = view.node.op_type == view.site.operator.rpartition("::")[2]
        written = view.site.operator if plain else f"{view.site.operator} as {view.site.form}"
        return Answer(plain and view.site.operator in self.operators, written)


@dataclass(frozen=True)
class Rank(Check):
    """How many axes the scores have."""

    subject = "rank"
    least: int = 1
    most: int | None = None

    def ask(self, view: SiteView) -> Answer:
        """Return whether there are so many."""
        shape = view.site.shape
        if shape is None:
            return Answer(None, "unknown; --input-shape may settle it")
        return Answer(self.least <= len(shape) and (self.most is None or len(shape) <= self.most), str(len(shape)))


@dataclass(frozen=True)
class Axis(Check):
    """Over which axis, counted from the end."""

    subject = "axis"
    axis: int

    def ask(self, view: SiteView) -> Answer:
        """Return whether the rows are along this one."""
        found = view.site.axis
        return Answer(None if found is None else found == self.axis, "unknown" if found is None else str(found))


@dataclass(frozen=True)
class Dtype(Check):
    """Of which types scores are read: as codes behind which a DequantizeLinear stands, or as floats.

    Without `codes`, what is in front of the floats does not matter. A conversion writes the first of `codes` that the
    model's version has.
    """

    subject = "dtype"
    codes: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()

    def ask(self, view: SiteView) -> Answer:
        """Return whether scores are of such a type."""
        if view.codes is None or not self.codes:
            return Answer(view.site.dtype in self.floats, f"{view.site.dtype}, no codes")
        return Answer(view.codes in self.codes, f"codes of {view.codes}")


@dataclass(frozen=True)
class Length(Check):
    """How long rows may be, and whether lengths have to be known; `every_axis` means the other axes too."""

    subject = "length"
    most: int | None = None
    static: bool = False
    every_axis: bool = False

    def ask(self, view: SiteView) -> Answer:
        """Return whether lengths are known and small enough."""
        shape, axis = view.site.shape, view.site.axis
        if shape is None or axis is None:
            return Answer(None, "unknown; --input-shape may settle it")
        asked = shape if self.every_axis else (shape[axis],)
        known = [length for length in asked if isinstance(length, int)]
        found = "x".join("?" if length is None else str(length) for length in asked)
        if self.most is not None and any(length > self.most for length in known):
            return Answer(False, found)
        if len(known) < len(asked):
            return Answer(False if self.static else None, f"{found}, not known; --input-shape fixes it")
        return Answer(True, found)


@dataclass(frozen=True)
class Output(Check):
    """Which codes the weights have; with `coded`, that they have some. Floats in and out have none to check."""

    subject = "output"
    encodings: tuple[Encoding, ...] = ()
    coded: bool = False
    floats: bool = False

    def ask(self, view: SiteView) -> Answer:
        """Return whether the weights become such codes."""
        if self.floats:
            return Answer(True, "floats come out of it" if view.output is None else "codes are made behind it")
        fitting = self.fitting(view)
        if view.output is None:
            needed = self.coded or view.codes is not None
            if needed and not fitting:
                return Answer(True, f"nothing is stated for scores of {view.codes}")
            return Answer(not needed, "no codes")
        if not fitting:
            return Answer(True, f"nothing is stated for scores of {view.codes}")
        return Answer(any(one.matches(view.output) for one in fitting), str(view.output))

    def fitting(self, view: SiteView) -> list[Encoding]:
        """Return the encodings that go with the codes of the scores."""
        return [one for one in self.encodings if one.scores in ("", view.codes)]


@dataclass(frozen=True)
class Products(Check):
    """Of which codes queries, keys and values are.

    Attributes:
        codes: Types of the codes; a conversion writes the first that the model's version has.
        direct: Whether nothing may stand between codes and product; otherwise what only moves elements may.
        through: What may stand there besides; `Mul` and `Div` by one number.
        made: Whether a QuantizeLinear of the model has to make the codes; otherwise they may be its inputs.
        smooth: Whether a conversion that writes codes of keys subtracts the mean key from them.
        result: Whether the product with the values becomes such codes, too.
        computed: Whether the model may compute scales while it runs: a conversion needs no data then.
    """

    subject = "products"
    codes: tuple[str, ...]
    direct: bool = False
    through: tuple[str, ...] = ()
    made: bool = False
    smooth: bool = False
    result: bool = False
    computed: bool = False

    def ask(self, view: SiteView) -> Answer:
        """Return whether all three are of such codes."""
        if view.products is None:
            return Answer(None, view.unseen)
        met = all(self.takes(one) for one in view.products.values()) and not self.lacks_result(view)
        found = [f"{name} {one}" for name, one in view.products.items()]
        found += [f"result {view.result or 'no codes'}"] if self.result else []
        return Answer(met, ", ".join(found))

    def lacks_result(self, view: SiteView) -> bool:
        """Return whether the product with the values has to become codes, and does not."""
        return self.result and view.result not in self.codes

    def takes(self, operand: Operand) -> bool:
        """Return whether one of the three is so."""
        allowed = {*(() if self.direct else MOVES), *self.through}
        return operand.codes in self.codes and allowed.issuperset(operand.passed) and (operand.made or not self.made)


@dataclass(frozen=True)
class HeadSize(Check):
    """How many elements a query has in a head."""

    subject = "head-size"
    sizes: tuple[int, ...]

    def ask(self, view: SiteView) -> Answer:
        """Return whether it is one of these."""
        if view.head_size is None:
            return Answer(None, view.unseen or "unknown; --input-shape may settle it")
        return Answer(view.head_size in self.sizes, str(view.head_size))


@dataclass(frozen=True)
class Pattern(Check):
    """That nothing multiplies the scores between their product and the softmax (`factor_in_front`)."""

    subject = "pattern"
    factor_in_front: bool

    def ask(self, view: SiteView) -> Answer:
        """Return whether factors stand in front of the product."""
        if view.products is None:
            return Answer(None, view.unseen)
        behind = "a factor stands behind the product of queries and keys"
        return Answer(not (self.factor_in_front and view.factor_behind), behind if view.factor_behind else "no factor")


@dataclass(frozen=True)
class Between(Check):
    """Of which type everything is from the product of queries and keys to that with the values."""

    subject = "between"
    floats: tuple[str, ...]

    def ask(self, view: SiteView) -> Answer:
        """Return whether it is of one of these types."""
        if view.between is None:
            return Answer(None, view.unseen)
        return Answer(view.between in self.floats, view.between)


@dataclass(frozen=True)
class Told(Check):
    """What a document says and a model does not show: it is told, and not checked. `about` is its subject."""

    subject = "told"
    about: str

    def ask(self, view: SiteView) -> Answer:
        """Return that it is not checked."""
        return Answer(True, "not checked")


CHECKS: dict[str, type[Check]] = {
    kind.subject: kind
    for kind in (Operator, Rank, Axis, Dtype, Length, Output, Products, HeadSize, Pattern, Between, Told)
}
"""Each kind of rule by the name that it has in files."""

SUBJECTS = {
    "softmax": ("operator", "rank", "axis", "dtype", "length", "output"),
    "attention": ("length", "head-size", "products", "pattern", "between"),
}
"""What a profile has to rule on, or to name as not stated."""
