"""What a device's profile asks for, as candidates of a sweep beside methods: the model that `convert --for` makes.

A setting of one has the name of the profile behind "for", and the type of codes as an option. It is run as it is
written, code by code, without onnxruntime's own fusions: what the device computes between the codes is its own affair.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from softq.errors import RefusalError, UsageError
from softq.profiles import Profile, convert_for, load_profile
from softq.profiles.checks import Dtype, Length, Products
from softq.profiles.meeting import NEEDS_DATA
from softq.profiles.schema import Rule
from softq.profiles.text import describe_profile
from softq.runner import OnnxRunner
from softq.sweeps.evaluate.evaluator import Form
from softq.sweeps.records import PROFILED, Setting

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.sweeps.task import Task

_CODES = "codes"


@dataclass(frozen=True)
class Profiled:
    """A profile, and what it takes.

    Attributes:
        profile: The profile.
        settings: One for each type of codes that a rule allows of operands or scores, the one that a conversion writes
            first; one without options where there is none.
    """

    profile: Profile
    settings: tuple[Setting, ...]

    @classmethod
    def of(cls, name: str, task: Task) -> Profiled:
        """Return what a sweep measures of a profile.

        Raises:
            UsageError: there is no such profile; or the models are no ONNX models of this process.
        """
        if task.framework != "onnx" or task.distributed:
            raise UsageError("a profile is about ONNX models, and measured in one process")
        profile = load_profile(name)
        title = f"{PROFILED}{profile.name}"
        kinds = dict.fromkeys(kind for kinds in _choices(profile) for kind in kinds)
        return cls(profile, tuple(Setting(title, {_CODES: kind}) for kind in kinds) or (Setting(title, {}),))

    @property
    def condition(self) -> str:
        """A hash of its rules: what values depend on."""
        text = json.dumps(describe_profile(self.profile), sort_keys=True)
        return f"{self.profile.name} {hashlib.sha256(text.encode()).hexdigest()}"

    def make(self, model: ir.Model, setting: Setting, task: Task) -> Callable[[], Form]:
        """Return what makes the model of a setting; it raises RefusalError where the profile takes no softmax of it."""
        kind = setting.options.get(_CODES)
        profile = _open_shapes(self.profile if kind is None else with_codes(self.profile, str(kind)))

        def form() -> Form:
            found = convert_for(model, profile, calibration=task.calibration, batch=task.selection.batch)
            if found.waiting:
                raise RefusalError(f"{found.waiting[0].site}: {NEEDS_DATA}")
            if all(one.taken == "no" for one in found.sites):
                refused = [f"{one.subject} is {one.found}" for site in found.sites for one in site.rulings
                           if one.state in ("not met", "unknown")]  # fmt: skip
                why = f": {refused[0]}" if refused else ""
                raise RefusalError(
                    f"{self.profile.name} takes no softmax of the model, not even after a conversion{why}"
                )
            return Form(partial(OnnxRunner.open, found.model, threads=task.threads, optimize=False))

        return form


def _open_shapes(profile: Profile) -> Profile:
    """Return a profile that does not ask for known shapes: these change no value, and data may come in any batches."""

    def rules(given: tuple[Rule, ...]) -> Iterator[Rule]:
        for rule in given:
            if not isinstance(rule.check, Length):
                yield rule
            elif rule.check.most is not None:
                yield replace(rule, check=replace(rule.check, static=False, every_axis=False))

    return replace(profile, softmax=tuple(rules(profile.softmax)), attention=tuple(rules(profile.attention)))


def with_codes(profile: Profile, kind: str) -> Profile:
    """Return a profile whose rules that allow codes of a type allow no others: a conversion writes these."""

    def rules(given: tuple[Rule, ...]) -> Iterator[Rule]:
        for rule in given:
            check = rule.check
            if isinstance(check, Dtype | Products) and kind in check.codes:
                rule = replace(rule, check=replace(check, codes=(kind,)))
            yield rule

    return replace(profile, softmax=tuple(rules(profile.softmax)), attention=tuple(rules(profile.attention)))


def _choices(profile: Profile) -> Iterator[tuple[str, ...]]:
    """Yield the types of codes that each rule lets a conversion choose from."""
    for rule in (*profile.softmax, *profile.attention):
        check = rule.check
        # Where floats are taken a conversion writes no codes of scores.
        if isinstance(check, Products) or (isinstance(check, Dtype) and not check.floats):
            yield check.codes
