"""From a sweep's study and outcomes to the content of its report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from softq.errors import UsageError
from softq.formatting import PROOF_LENGTH
from softq.methods import METHODS, Method, OptionValue
from softq.reports import parse_drop
from softq.rowprog import DType, Kind, Program
from softq.rowprog.ranges import largest_length, prove
from softq.sweeps.records import PROFILED, Outcome, Setting, SiteErrors, Study
from softq.sweeps.report.columns import columns_of, numbers_of
from softq.sweeps.report.content import BITS, Content, Errors, Measured, Place, Subject
from softq.sweeps.report.cost import Cost
from softq.sweeps.report.interval import finite, interval_of
from softq.sweeps.report.verdicts import answer, shown, verdict, within

_FREE = ("input", "param", "const")
"""Operators that compute nothing."""


def gather(
    study: Study,
    outcomes: Sequence[Outcome],
    budget: str | float | None = None,
    axis: str = BITS,
    label: str | None = None,
) -> Content:
    """Return the content of the report of one study.

    Args:
        study: What all settings have in common.
        outcomes: What was measured.
        budget: The loss allowed, in the metric's unit, or a share of the float value as `X%`.
        axis: What is saved: `bits`, or the name of a column.
        label: What tells the study from others; the model's name if None.

    Raises:
        UsageError: the budget is no number of at least 0, or no setting has such a number.
    """
    allowed = _budget(study, budget)
    ordered = sorted(outcomes, key=lambda outcome: _order(outcome.setting))
    subject = _subject(study)
    sites = tuple(_place(site) for site in study.sites)
    bare = tuple(_measured(number, outcome, subject, allowed) for number, outcome in enumerate(ordered))
    costs, notes = _costs(bare, sites)
    own: dict[int, list[Cost]] = {}
    for cost in costs:
        own.setdefault(cost.setting, []).append(cost)
    rows = tuple(
        replace(row, numbers=numbers_of(outcome, own.get(row.setting, [])))
        for row, outcome in zip(bare, ordered, strict=True)
    )
    columns = columns_of(row.numbers for row in rows)
    known = [BITS, *(column.name for column in columns)]
    if axis not in known:
        raise UsageError(f"--front {axis}: no setting of {study.model} has it; there is {', '.join(known)}")
    errors = [
        _errors(number, site, found) for number, outcome in enumerate(ordered) for site, found in outcome.sites.items()
    ]
    return Content(
        label=study.model if label is None else label,
        answer=answer(rows, subject, allowed, axis),
        subject=subject,
        settings=rows,
        sites=sites,
        errors=tuple(errors),
        costs=tuple(costs),
        notes=(*notes, *_without_cost(ordered), *_unseen(sites, errors)),
        columns=columns,
    )


def _without_cost(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a note for each method that the target of the costs has no form of."""
    told = dict.fromkeys((one.setting.method, one.cost.refused) for one in outcomes if one.cost and one.cost.refused)
    return [f"No cost of {method} on the target: {why}." for method, why in told]


def _unseen(sites: Sequence[Place], errors: Sequence[Errors]) -> list[str]:
    """Return a note on sites without errors where others have some."""
    seen = {e.site for e in errors}
    missing = [site.id for site in sites if site.id not in seen]
    return [f"No errors of rows could be measured at {', '.join(missing)}."] if seen and missing else []


def _budget(study: Study, budget: str | float | None) -> float | None:
    if budget is None:
        return None
    allowance = parse_drop(budget, "budget")
    if allowance.relative == study.relative:
        return allowance.amount
    # A percentage is a share of the float value; so is a loss where losses are shares.
    size = abs(study.reference.value)
    if not 0 < size < math.inf:
        raise UsageError(f"the budget is {allowance.text}; nothing is a share of {study.metric} {size:g} of float")
    return allowance.amount * size if allowance.relative else allowance.amount / size


def _installed(name: str) -> Method | None:
    return METHODS.entries().get(name)


def _bits(setting: Setting) -> int | None:
    bits = setting.options.get("bits")
    if bits is None and (method := _installed(setting.method)) is not None:
        bits = method.options().to_json().get("bits")
    try:
        return None if bits is None else int(bits)
    except ValueError:
        return None


def _series(setting: Setting) -> str:
    return " ".join([setting.method, *(f"{k}={v}" for k, v in sorted(setting.options.items()) if k != "bits")])


def _order(setting: Setting) -> tuple[bool, bool, str, int, str]:
    bits = _bits(setting)
    return setting.site is not None, setting.head is not None, _series(setting), bits or 0, setting.key


def _name(setting: Setting) -> str:
    bits = _bits(setting)
    name = _series(setting) + ("" if bits is None else f" with {bits} bits")
    if setting.site is not None:
        name += f" at {setting.site} alone"
    return name + ("" if setting.head is None else f", head {setting.head}")


def _measured(number: int, outcome: Outcome, subject: Subject, budget: float | None) -> Measured:
    setting, loss, flips = outcome.setting, interval_of(outcome.loss), outcome.loss.flips
    return Measured(
        setting=number,
        name=_name(setting),
        series=_series(setting),
        method=setting.method,
        options=dict(sorted(setting.options.items())),
        bits=_bits(setting),
        site=setting.site,
        head=setting.head,
        metric=interval_of(outcome.metric),
        loss=loss,
        verdict=verdict(loss, outcome.samples),
        within=within(loss, budget),
        samples=outcome.samples,
        seconds=finite(outcome.seconds),
        shown=shown(outcome.loss, outcome.samples, subject, budget),
        flips=None if flips is None else (flips.lost, flips.gained),
        p_value=None if flips is None else flips.p_value,
        integer_only=None if (known := _installed(setting.method)) is None else known.integer_scores,
    )


def _subject(study: Study) -> Subject:
    told: dict[str, Any] = {field.name: getattr(study, field.name) for field in fields(Subject)}
    told["reference"] = interval_of(study.reference)
    told["versions"] = dict(sorted(study.versions.items()))
    told["conditions"] = {name: _told(value) for name, value in sorted(study.conditions.items())}
    return Subject(**told)


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _place(site: Mapping[str, Any]) -> Place:
    shape = site.get("shape")
    return Place(
        id=str(site["id"]),
        node=str(site.get("node") or ""),
        operator=str(site.get("operator", "")),
        role=str(site.get("role", "")),
        shape=None if shape is None else tuple(shape),
    )


def _errors(number: int, site: str, found: SiteErrors) -> Errors:
    numbers = {name: finite(value) for name, value in vars(found).items() if name != "row_sums"}
    return Errors(number, site, row_sums=tuple(map(finite, found.row_sums)), **numbers)  # pyright: ignore


def _costs(rows: Sequence[Measured], sites: Sequence[Place]) -> tuple[list[Cost], list[str]]:
    costs: list[Cost] = []
    notes: list[str] = []
    widest: dict[tuple[int, int], int] = {}
    for row in rows:
        if row.site is not None or row.head is not None or row.method.startswith(PROFILED):
            continue
        try:
            program = _program(row.method, row.options)
        except UsageError as error:
            notes.append(f"No cost of {row.name}: {error}")
            continue
        work = [node for node in program.nodes() if node.kind is Kind.ROW and node.op not in _FREE]
        floats = sum(node.dtype is DType.F32 for node in work)
        longest = largest_length(program)
        for site in sites:
            last = site.shape[-1] if site.shape else None
            length = last if isinstance(last, int) and last > 0 else PROOF_LENGTH
            length = min(length, longest)
            key = (row.setting, length)
            if key not in widest:
                widest[key] = prove(program, max_length=length).widest_bits
            elements = _elements(site)
            costs.append(
                Cost(
                    setting=row.setting,
                    site=site.id,
                    integer_only=METHODS.get(row.method).integer_scores,
                    float_operations=floats,
                    row_length=length,
                    widest_integer_bits=widest[key],
                    matrix_bytes=None if elements is None or row.bits is None else -(-elements * row.bits // 8),
                    float_bytes=None if elements is None else 4 * elements,
                )
            )
    return costs, notes


def _program(name: str, options: Mapping[str, OptionValue]) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(options), False))


def _elements(site: Place) -> int | None:
    """Return the elements of the probability matrix, of one sample where the first axis has no number."""
    if not site.shape:
        return None
    numbers = [extent for axis, extent in enumerate(site.shape) if isinstance(extent, int) or axis > 0]
    if not all(isinstance(extent, int) for extent in numbers):
        return None
    return math.prod(extent for extent in numbers if isinstance(extent, int))
