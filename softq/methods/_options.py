"""What a user can set of a method: a frozen dataclass whose fields are its options, their limits and their help."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from softq.errors import UsageError
from softq.rowprog.program import Scope

OptionValue = int | float | str
Auto = Literal["auto"]
"""The word of an option that `Method.resolve`, or the method itself, replaces by what is usual."""

FITTED_SCOPES: tuple[Scope, ...] = get_args(Scope)
"""Words that an option takes instead of a number to have it fitted: one number per site, or one per head."""

T = TypeVar("T")


@dataclass(frozen=True)
class OptionSpec:
    """What an option takes: numbers of one type within limits, and perhaps some words."""

    number: type[int] | type[float] | None
    low: float
    high: float
    words: tuple[str, ...]
    help: str

    @property
    def allowed(self) -> str:
        """What is allowed, for messages and help."""
        kind = {int: "a whole number", float: "a number", None: ""}[self.number]
        numbers = [f"{kind} from {self.low:g} to {self.high:g}"] if self.number else []
        return " or ".join(numbers + [" or ".join(self.words)] * bool(self.words))

    def parse(self, name: str, value: object) -> OptionValue:
        """Return the value as the option holds it.

        Raises:
            UsageError: it is not allowed; the message says what is.
        """
        if isinstance(value, str) and value in self.words:
            return value
        if self.number is not None and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                given = float(value)
                if self.low <= given <= self.high and (self.number is float or given == int(given)):
                    return self.number(given)
            except (ValueError, OverflowError):
                pass
        raise UsageError(f"{name} is {value!r}; allowed is {self.allowed}")


def option(default: T, help: str, *, low: float = 0, high: float = 0, words: Sequence[str] = ()) -> T:
    """Return a dataclass field that is an option of a method: `r: float | Auto | Scope = option("auto", ...)`.

    Args:
        default: Its default. Numbers are whole ones if it is an integer.
        help: What it does, with its unit.
        low: Least number allowed.
        high: Greatest number allowed; equal to `low` if only words are.
        words: Words allowed instead of a number; if none are given, those that the field's type names (`Literal`).
    """
    number = None if high <= low else int if isinstance(default, int) else float
    return field(default=default, metadata={"option": OptionSpec(number, low, high, tuple(words), help)})


@dataclass(frozen=True)
class Options:
    """Base of a method's options: a frozen dataclass whose fields are made by `option`. By itself it has none."""

    unnamed: ClassVar[Mapping[str, OptionValue]] = {}
    """Options that are no part of the structure's name while they have these values."""

    @classmethod
    @cache
    def specs(cls) -> Mapping[str, OptionSpec]:
        """Return what each option takes, by name.

        Raises:
            UsageError: a default is not allowed.
        """
        types = get_type_hints(cls)
        specs: dict[str, OptionSpec] = {}
        for one in dataclasses.fields(cls):
            spec: OptionSpec = one.metadata["option"]
            specs[one.name] = spec = replace(spec, words=spec.words or tuple(_words(types[one.name])))
            spec.parse(f"{cls.__name__}: the default of {one.name}", one.default)
        return specs

    def to_json(self) -> dict[str, OptionValue]:
        """Return the options by name."""
        return dataclasses.asdict(self)

    @property
    def fitted(self) -> dict[str, Scope]:
        """The options that are to be fitted, with their scope."""
        return {name: scope for name, value in self.to_json().items() for scope in FITTED_SCOPES if value == scope}

    @property
    def structure(self) -> str:
        """The options as part of a name: `b4_r0p75`, initials of the fields and their values."""
        named = [(name, value) for name, value in self.to_json().items() if self.unnamed.get(name) != value]
        return "_".join(f"{name[0]}{_name(value)}" for name, value in named)


def _words(annotation: object) -> Iterator[str]:
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is Literal:
            yield from get_args(part)


def _name(value: OptionValue) -> str:
    text = value if isinstance(value, str) else repr(int(value) if value == int(value) else value)
    return text.replace("-", "m").replace(".", "p").replace("+", "")
