"""Profiles as they are in memory, and how the tables of a file become one; what is not as it should be is an error."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from typing import Any, cast, get_args, get_origin, get_type_hints

from softq.errors import InputError
from softq.methods import METHODS
from softq.nearest import unknown
from softq.profiles.checks import CHECKS, SUBJECTS, Check, Encoding, Told


@dataclass(frozen=True)
class Source:
    """A document that rules are from.

    Attributes:
        title: What it is called.
        url: Where it is.
        version: What was read of it: its version, a commit, or when it was published.
        read: When it was read.
    """

    title: str
    url: str
    version: str
    read: datetime.date


@dataclass(frozen=True)
class Rule:
    """One rule: what is checked, in which words, and which document states it."""

    check: Check
    says: str
    source: Source

    @property
    def subject(self) -> str:
        """What it is about."""
        return self.check.about if isinstance(self.check, Told) else self.check.subject


@dataclass(frozen=True)
class Profile:
    """What the documents of a device family say.

    Attributes:
        name: Its name, which is that of its file.
        summary: One line.
        release: The release that the rules were read from; for a document its version or date.
        sources: The documents by the names that the file gives them.
        softmax: Rules for each softmax.
        attention: Rules for one whose weights are multiplied by values, besides those.
        not_stated: The subjects on which the documents are silent, of both.
        methods: Names of softq's methods that compute what the device's kernels do.
    """

    name: str
    summary: str
    release: str
    sources: Mapping[str, Source]
    softmax: tuple[Rule, ...]
    attention: tuple[Rule, ...]
    not_stated: Mapping[str, tuple[str, ...]]
    methods: tuple[str, ...] = ()


Table = Mapping[str, object]


def parse_profile(given: Table, name: str, file: str) -> Profile:
    """Return the profile that the tables of a file hold.

    Args:
        given: What the file holds.
        name: The name that the profile has to have.
        file: The file, for messages.

    Raises:
        InputError: something is missing, unknown, of another type or said twice; the message names file and place.
    """
    others = ("methods", "sources", "softmax", "attention", "not_stated")
    head = _fields(given, dict.fromkeys(("name", "summary", "release"), str), others, file)
    if head["name"] != name:
        raise InputError(f"{file}: the profile is named {head['name']!r}; the file's name asks for {name!r}")
    sources = {
        key: cast("Source", _fill(Source, _table(one, f"{file}: sources.{key}"), f"{file}: sources.{key}"))
        for key, one in _table(given.get("sources", {}), f"{file}: sources").items()
    }
    used: set[str] = set()
    rules = {part: _rules(given.get(part, []), sources, used, f"{file}: {part}") for part in SUBJECTS}
    for key in sorted(sources.keys() - used):
        raise InputError(f"{file}: sources.{key} is the source of no rule")
    silent = _table(given.get("not_stated", {}), f"{file}: not_stated")
    for key in silent.keys() - SUBJECTS.keys():
        raise InputError(f"{file}: not_stated.{key} is unknown; allowed is {' or '.join(SUBJECTS)}")
    stated = {part: _silence(silent.get(part, []), part, rules[part], file) for part in SUBJECTS}
    methods = cast("tuple[str, ...]", _value(given.get("methods", []), tuple[str, ...], f"{file}: methods"))
    for one in methods:
        if one not in METHODS.entries():
            raise InputError(f"{file}: methods: {unknown('method', one, METHODS.entries(), 'softq methods')}")
    name, summary, release = map(str, head.values())
    return Profile(name, summary, release, sources, rules["softmax"], rules["attention"], stated, methods)


def _rules(given: object, sources: Mapping[str, Source], used: set[str], where: str) -> tuple[Rule, ...]:
    if not isinstance(given, list):
        raise InputError(f"{where} is no list of tables ([[...]])")
    made: list[Rule] = []
    for number, one in enumerate(cast("list[object]", given), 1):
        place = f"{where}, rule {number}"
        table = dict(_table(one, place))
        kind, says, source = (table.pop(key, None) for key in ("rule", "says", "source"))
        if not isinstance(kind, str) or kind not in CHECKS:
            raise InputError(f"{place}: rule is {kind!r}; allowed is {', '.join(CHECKS)}")
        if not isinstance(says, str) or not says:
            raise InputError(f"{place} ({kind}): says is missing")
        if not isinstance(source, str) or source not in sources:
            raise InputError(f"{place} ({kind}): source is {source!r}; there are: {', '.join(sources) or 'none'}")
        used.add(source)
        made.append(Rule(cast("Check", _fill(CHECKS[kind], table, f"{place} ({kind})")), says, sources[source]))
    return tuple(made)


def _silence(given: object, part: str, rules: tuple[Rule, ...], file: str) -> tuple[str, ...]:
    said = cast("tuple[str, ...]", _value(given, tuple[str, ...], f"{file}: not_stated.{part}"))
    ruled = {rule.subject for rule in rules}
    for subject in said:
        if subject not in SUBJECTS[part]:
            raise InputError(
                f"{file}: not_stated.{part}: {subject!r} is unknown; allowed is {', '.join(SUBJECTS[part])}"
            )
        if subject in ruled:
            raise InputError(f"{file}: {part}: there is a rule on {subject}, which not_stated names too")
    for subject in SUBJECTS[part]:
        if subject not in ruled and subject not in said:
            raise InputError(f"{file}: {part}: there is no rule on {subject}, and not_stated does not name it")
    return said


def _fields(given: Table, wanted: Mapping[str, type], others: tuple[str, ...], where: str) -> dict[str, object]:
    for key in given.keys() - wanted.keys() - set(others):
        raise InputError(f"{where}: {key} is unknown; allowed is {', '.join((*wanted, *others))}")
    for key in wanted:
        if key not in given:
            raise InputError(f"{where}: {key} is missing")
    return {key: _value(given[key], kind, f"{where}: {key}") for key, kind in wanted.items()}


def _fill(kind: type, given: Table, where: str) -> object:
    """Return the dataclass that a table describes: its keys are the fields."""
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    for key in given.keys() - known.keys():
        raise InputError(f"{where}: {key} is unknown; allowed is {', '.join(known)}")
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise InputError(f"{where}: {name} is missing")
    return kind(**{key: _value(value, hints[key], f"{where}: {key}") for key, value in given.items()})


def _value(given: object, hint: Any, where: str) -> object:
    if hint in (str, int, bool, datetime.date):
        if type(given) is hint and given != "":
            return given
        raise InputError(f"{where} is {given!r}, expected {'a date' if hint is datetime.date else hint.__name__}")
    kind = get_args(hint)[0]
    if kind is Encoding:
        tables = _list(given, where)
        return tuple(_fill(Encoding, _table(one, where), f"{where} {number}") for number, one in enumerate(tables, 1))
    if get_origin(hint) is tuple:
        return tuple(_value(one, kind, where) for one in _list(given, where))
    if kind is Fraction:
        try:
            return Fraction(given) if isinstance(given, str) else Fraction(cast("int", given))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise InputError(f"{where} is {given!r}, expected a number such as '1/256'") from error
    return _value(given, kind, where)


def _list(given: object, where: str) -> list[object]:
    if not isinstance(given, list):
        raise InputError(f"{where} is {given!r}, expected a list")
    return cast("list[object]", given)


def _table(given: object, where: str) -> Table:
    if not isinstance(given, dict):
        raise InputError(f"{where} is {given!r}, expected a table")
    return cast("Table", given)
