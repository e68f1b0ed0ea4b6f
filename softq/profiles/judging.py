"""Which softmaxes of a model a profile's rules let through: as they are, after a conversion, or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import onnx_ir as ir

from softq.input_shapes import InputShapes, fix_input_shapes
from softq.modelfile import ModelLike, as_model
from softq.profiles.ranges import Range, Wanted, assume
from softq.profiles.reading import SiteView, read_sites
from softq.profiles.schema import Profile, Rule
from softq.profiles.writing import Need, find_marked, mark, write

Taken = Literal["as it is", "after convert", "no"]
"""What a profile's rules say of a site."""

RulingState = Literal["met", "after convert", "not met", "unknown"]


@dataclass(frozen=True)
class Ruling:
    """What one rule says of a site.

    Attributes:
        subject: The rule's subject, such as "axis".
        state: Whether the rule is met, met after a conversion, or not met; unknown if the model does not show it.
        found: What the site has.
        says: The rule in words.
        source: The document's address.
        version: The version of the document.
        read: When it was read, as an ISO date.
    """

    subject: str
    state: RulingState
    found: str
    says: str
    source: str
    version: str
    read: str


@dataclass(frozen=True)
class Judgement:
    """What a profile says of one site.

    Attributes:
        site: The id of the site.
        operator: What it is.
        role: What its result is used for.
        taken: Whether the device takes it by its documents.
        rulings: Every rule, in the order of the profile.
        needs_data: Whether the conversion takes ranges of calibration data.
    """

    site: str
    operator: str
    role: str
    taken: Taken
    rulings: tuple[Ruling, ...]
    needs_data: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the judgement as plain values that `json` can write."""
        return asdict(self)


def judge(model: ModelLike, profile: Profile, *, input_shapes: InputShapes | None = None) -> tuple[Judgement, ...]:
    """Return what a profile says of each softmax of a model; the model is not changed.

    To say what is taken after a conversion, a copy is converted and judged again.

    Args:
        model: A path or a model.
        profile: What `softq.profiles.load_profile` gave.
        input_shapes: Shapes of inputs, as in `softq.convert`.

    Raises:
        InputError: the file is no usable ONNX model.
    """
    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    return try_out(work, profile)[0]


def try_out(
    work: ir.Model, profile: Profile, *, computes: bool = True
) -> tuple[tuple[Judgement, ...], dict[str, Need]]:
    """Return the judgements of a model, and what a conversion writes at the sites that are taken after it.

    Args:
        work: The model; it is not changed.
        profile: The profile.
        computes: As in `softq.profiles.writing.write`.
    """
    views = read_sites(work)
    before = {view.site.id: _ask(view, profile, view.attention) for view in views}
    needs = {view.site.id: need for view in views if (need := _need(view, before[view.site.id])) is not None}
    attention = {view.site.id: view.attention for view in views}

    def judge_all(needs: Mapping[str, Need]) -> dict[str, Judgement]:
        tried, ranged = _try(work, needs, profile, attention, computes)
        return {
            key: _judge(view, before[key], tried.get(key), key in ranged) for view in views for key in [view.site.id]
        }

    judged = judge_all(needs)
    # Drop the sites that a conversion does not help, and try again until it helps every site that is left.
    while needs and any(judged[key].taken != "after convert" for key in needs):
        needs = {key: need for key, need in needs.items() if judged[key].taken == "after convert"}
        judged |= {key: one for key, one in judge_all(needs).items() if key in needs}
    return tuple(judged.values()), needs


def _try(
    work: ir.Model, needs: Mapping[str, Need], profile: Profile, attention: Mapping[str, bool], computes: bool
) -> tuple[dict[str, list[tuple[Rule, bool | None]]], set[str]]:
    """Return what each rule says of sites after a copy was converted, by their ids before, and which need ranges."""
    if not needs:
        return {}, set()
    trial = as_model(work)
    mark(trial)
    ranged: set[str] = set()

    def ranges(model: ir.Model, wanted: Sequence[Wanted]) -> Mapping[str, Range]:
        ranged.update(one.site for one in wanted)
        return assume(model, wanted)

    write(trial, needs, ranges, computes=computes)
    found = {
        key: [(rule, met) for rule, met, _ in _ask(view, profile, attention[key])]
        for key, view in find_marked(trial, read_sites(trial)).items()
    }
    return found, ranged


Asked = list[tuple[Rule, bool | None, str]]


def _ask(view: SiteView, profile: Profile, attention: bool) -> Asked:
    rules = (*profile.softmax, *(profile.attention if attention else ()))
    return [(rule, answer.met, answer.found) for rule in rules for answer in [rule.check.ask(view)]]


def _need(view: SiteView, asked: Asked) -> Need | None:
    """Return what a conversion has to write; None where every rule is met."""
    missing = {rule.subject: met for rule, met, _ in asked if met is not True}
    # Some rules cannot be judged before an operator is opened.
    hidden = view.node.op_type != "Softmax" and None in missing.values()
    opens = hidden or "operator" in missing or "axis" in missing
    return Need(opens, tuple(rule for rule, _, _ in asked)) if missing else None


def _judge(view: SiteView, before: Asked, after: Sequence[tuple[Rule, bool | None]] | None, ranged: bool) -> Judgement:
    later = {id(rule): met for rule, met in after or ()}
    rulings = tuple(_ruling(rule, met, found, later.get(id(rule))) for rule, met, found in before)
    states = {ruling.state for ruling in rulings}
    taken: Taken = "as it is" if states <= {"met"} else "after convert" if states <= {"met", "after convert"} else "no"
    ranged = ranged and taken == "after convert"
    return Judgement(view.site.id, view.site.operator, view.site.role, taken, rulings, ranged)


def _ruling(rule: Rule, met: bool | None, found: str, later: bool | None) -> Ruling:
    state: RulingState = "met" if met else "unknown" if met is None else "not met"
    if later is not None and later != met:
        # A site for which the conversion breaks a rule is not converted.
        state = "after convert" if later else "not met" if later is False else "unknown"
    source = rule.source
    return Ruling(rule.subject, state, found, rule.says, source.url, source.version, source.read.isoformat())
