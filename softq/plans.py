"""The plan: which method with which options and fitted numbers goes to which site, as JSON that people can edit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from softq.errors import InputError, UsageError
from softq.files import read_json
from softq.methods import METHODS, Fitted, Method, Options, OptionValue, Spread
from softq.site import Site, described

SCHEMA = 1

VERSION_KEY, PLAN_KEY = "softq.version", "softq.plan"
"""Keys of a converted model's metadata: softq's version, and the plan (with the hash of the original graph) as JSON."""

DEFAULT_MAX_LENGTH = 65536
"""Length of a row that proofs cover where neither the graph nor the user bounds it."""


def check_max_length(length: int) -> None:
    """Raise UsageError for a length of a row that no proof can be for."""
    if not 1 <= length < 2**31:
        raise UsageError(f"max_length is {length}; allowed is 1 to {2**31 - 1}")


def check_names(what: str, names: object) -> None:
    """Raise UsageError for one text where several are expected: it would be read letter by letter."""
    if isinstance(names, str):
        raise UsageError(f"{what} is {names!r}; expected a list of such")


@dataclass(frozen=True)
class SitePlan:
    """What one site gets.

    Attributes:
        id: The site's id.
        fingerprint: Its form and shape, to recognise it again.
        method: Name of the method.
        options: The method's options, resolved: every one of them by name.
        fitted: The fitted options: one number, or one per head.
        spread: What each came to on single draws of the calibration data, where there were several.
    """

    id: str
    fingerprint: str
    method: str
    options: Mapping[str, OptionValue]
    fitted: Fitted
    spread: Mapping[str, Spread] = field(default_factory=dict[str, Spread])

    def find_method(self) -> Method:
        """Return the method.

        Raises:
            UsageError: it is unknown; the message says how one of the user's own is made known.
        """
        try:
            return METHODS.get(self.method)
        except UsageError as error:
            file = f"{self.method.removesuffix('.py').replace('-', '_')}.py"
            raise UsageError(f"{error}; one of your own is named by its file: --method {file}") from error

    def configure(self) -> Options:
        """Return the options as the method's own class.

        Raises:
            UsageError: the method or an option is unknown, or a value not allowed.
            InputError: a fitted number is missing or too many.
        """
        options = self.find_method().configure(self.options)
        if set(options.fitted) != set(self.fitted):
            raise InputError(
                f"plan: site {self.id} has fitted numbers for {sorted(self.fitted)}; "
                f"its options ask for {sorted(options.fitted)}"
            )
        for name, value in self.fitted.items():
            if isinstance(value, tuple) != (options.fitted[name] == "head"):
                raise InputError(
                    f"plan: site {self.id}: {name} is {value}; expected one number a {options.fitted[name]}"
                )
            if value == ():
                raise InputError(f"plan: site {self.id}: {name} is an empty list; expected one number per head")
            for number in value if isinstance(value, tuple) else (value,):
                type(options).specs()[name].parse(f"plan: site {self.id}: fitted {name}", number)
        heads = {name: len(value) for name, value in self.fitted.items() if isinstance(value, tuple)}
        if len(set(heads.values())) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in heads.items())
            raise InputError(f"plan: site {self.id} has another number of heads for each option: {counts}")
        return options


@dataclass(frozen=True)
class Plan:
    """Which sites of which graph get what.

    Attributes:
        softq: Version that made it.
        graph: Hash of the graph without weights (`softq.modelfile.graph_hash`).
        weights: Fingerprint of the weights; another one is worth a warning, not a refusal.
        sites: The sites that are converted, in graph order.
        max_length: Greatest length of a row that the proofs cover, where the graph gives no bound.
        rewrites: For each site that needs no method because only the order of its weights is used, the pass that makes
            it superfluous.
        masks: Names of tensors that count as masks on the user's word.
        allow_float32: Whether double scores may be computed in float32.
    """

    softq: str
    graph: str
    weights: str
    sites: tuple[SitePlan, ...]
    max_length: int = DEFAULT_MAX_LENGTH
    rewrites: Mapping[str, str] = field(default_factory=dict[str, str])
    masks: tuple[str, ...] = ()
    allow_float32: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain values."""
        return {
            "schema": SCHEMA,
            "softq": self.softq,
            "graph": self.graph,
            "weights": self.weights,
            "max_length": self.max_length,
            "rewrites": dict(self.rewrites),
            "masks": list(self.masks),
            "allow_float32": self.allow_float32,
            "sites": [
                {"id": s.id, "fingerprint": s.fingerprint, "method": s.method, "options": dict(s.options),
                 "fitted": _plain(s.fitted)}
                | ({"spread": {k: _plain(asdict(v)) for k, v in s.spread.items()}} if s.spread else {})
                for s in self.sites
            ],
        }  # fmt: skip

    def to_text(self) -> str:
        """Return the plan as the text of its file."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"

    def match(self, graph: str, sites: Sequence[Site]) -> dict[str, SitePlan]:
        """Return the plan of each site by id, after checking that it was made for this graph.

        Raises:
            InputError: the graph is another one, or a site is not there or of another form.
        """
        if graph != self.graph:
            raise InputError(f"the plan was made for another graph: {self.graph[:16]}..., this one is {graph[:16]}...")
        known = {site.id: site for site in sites}
        for name in (*(planned.id for planned in self.sites), *self.rewrites):
            if name not in known:
                raise InputError(f"plan: there is no site {name!r}; the model has {_shortened(list(known))}")
        for planned in self.sites:
            site = known[planned.id]
            if site.fingerprint != planned.fingerprint:
                raise InputError(f"plan: site {site.id} is {site.fingerprint!r}; the plan has {planned.fingerprint!r}")
        return {planned.id: planned for planned in self.sites}


def _plain(numbers: Fitted) -> dict[str, float | list[float]]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in numbers.items()}


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"


def as_plan(plan: Plan | Mapping[str, Any] | str | os.PathLike[str]) -> Plan:
    """Return a plan that is given as one, as its file, or as the plain values in it.

    Raises:
        InputError: as in `load_plan`.
    """
    if isinstance(plan, Plan):
        return plan
    return load_plan(plan) if isinstance(plan, (str, os.PathLike)) else parse_plan(plan)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a file.

    Raises:
        InputError: the file cannot be read, is no plan, or misses something; the message says what.
    """
    try:
        data = read_json(path)
    except OSError as error:
        raise InputError(f"plan {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"plan {path} is not JSON: {error}") from error
    return parse_plan(data, f"plan {path}")


def parse_plan(data: object, name: str = "plan") -> Plan:
    """Return the plan that plain values (from JSON) describe; `name` stands in messages.

    Raises:
        InputError: something is missing or of the wrong type.
    """
    later = {"rewrites": {}, "masks": [], "allow_float32": False}  # plans of version 0.1 have none
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise InputError(f"{name}: schema is {data['schema']!r}; this softq reads {SCHEMA}")
    top = _object(later | data if isinstance(data, dict) else data, name, {
        "schema": int, "softq": str, "graph": str, "weights": str, "max_length": int, "sites": list,
        "rewrites": dict, "masks": list, "allow_float32": bool,
    })  # fmt: skip
    sites = tuple(_parse_site(entry, f"{name}: sites[{i}]") for i, entry in enumerate(top["sites"]))
    seen: set[str] = set()
    for site in sites:
        if site.id in seen:
            raise InputError(f"{name}: site {site.id!r} stands twice")
        seen.add(site.id)
    for key, value in top["rewrites"].items():
        if not isinstance(value, str):
            raise InputError(f"{name}: rewrites: {key} is {value!r}; expected the name of a pass")
        if key in seen:
            raise InputError(f"{name}: site {key!r} stands in sites and in rewrites")
    if not all(isinstance(mask, str) for mask in top["masks"]):
        raise InputError(f"{name}: masks is {top['masks']!r}; expected names of tensors")
    del top["schema"]
    top["sites"], top["masks"] = sites, tuple(top["masks"])
    return Plan(**top)


def plan_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of the file of a plan."""
    top, site = described(Plan), described(SitePlan)
    properties, of_site = top["properties"], site["properties"]
    assert isinstance(properties, dict)
    assert isinstance(of_site, dict)
    several = {**site, "required": [key for key in of_site if key != "spread"], "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA}, **properties, "sites": {**properties["sites"], "items": several}
        },
        "required": ["schema", *(key for key in properties if key not in ("rewrites", "masks", "allow_float32"))],
        "additionalProperties": False,
    }  # fmt: skip


def _parse_site(entry: object, where: str) -> SitePlan:
    s = _object({"spread": {}} | entry if isinstance(entry, dict) else entry, where, {
        "id": str, "fingerprint": str, "method": str, "options": dict, "fitted": dict, "spread": dict,
    })  # fmt: skip
    for key, value in s["options"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise InputError(f"{where}: option {key} is {value!r}; expected a number or a word")
    s["fitted"] = {key: parse_fitted(value, f"{where}: fitted {key}") for key, value in s["fitted"].items()}
    s["spread"] = {key: _parse_spread(value, f"{where}: spread {key}") for key, value in s["spread"].items()}
    return SitePlan(**s)


def _parse_spread(value: object, where: str) -> Spread:
    numbers = _object(value, where, {"low": object, "high": object, "deviation": object})
    return Spread(**{end: parse_fitted(number, f"{where}: {end}") for end, number in numbers.items()})


_WORDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    list: "a list",
    dict: "an object",
}
"""What a message calls the types of JSON."""


def _object(data: object, where: str, fields: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(data, dict):
        kind = "null" if data is None else _WORDS.get(type(data), "a number")
        raise InputError(f"{where} is {kind}; expected an object with {', '.join(fields)}")
    missing = [key for key in fields if key not in data]
    if missing:
        raise InputError(f"{where} misses {', '.join(missing)}")
    for key, kind in fields.items():
        if not isinstance(data[key], kind) or isinstance(data[key], bool) != (kind is bool):
            raise InputError(f"{where}: {key} is {data[key]!r}; expected {_WORDS.get(kind, 'a number')}")
    unknown = set(data) - set(fields)
    if unknown:
        raise InputError(f"{where}: unknown {', '.join(sorted(map(str, unknown)))}; known are {', '.join(fields)}")
    return dict(data)


def parse_fitted(value: object, where: str) -> float | tuple[float, ...]:
    """Return the fitted number, or numbers per head, that a plain value describes; `where` stands in messages.

    Raises:
        InputError: it is neither a number nor a list of numbers.
    """
    numbers: list[Any] = value if isinstance(value, list) else [value]
    if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
        raise InputError(f"{where} is {value!r}; expected a number or a list of numbers")
    return tuple(map(float, numbers)) if isinstance(value, list) else float(numbers[0])
