"""What a report says, as data: every form of it (page, JSON, CSV, Markdown) is written from a `Content`.

The fields below are the documentation of `report.json`; `content_schema` makes its JSON Schema from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

from softq.methods import OptionValue
from softq.site import described
from softq.sweeps.report.columns import Column
from softq.sweeps.report.cost import Cost
from softq.sweeps.report.interval import Interval
from softq.sweeps.report.plans import PlanResult

SCHEMA = 1
"""Version of `report.json`: fields may be added, a change of meaning is another version."""

BITS = "bits"
"""What is saved where nothing else is named."""

Verdict = Literal["same", "worse", "better", "open", "broken", "unmeasured"]


@dataclass(frozen=True)
class Measured:
    """One setting and what was measured for it.

    Attributes:
        setting: Its number in this report, from 0.
        name: Method, options, and where it is used, as one text.
        series: Method and options without `bits`: what one line of a chart joins.
        method: Name of the method.
        options: Options as they were given.
        bits: Bits of a code, or null for a method without.
        site: The one site that got it; null if all did.
        head: The one head that got it; null if all did.
        metric: The metric's value.
        loss: How much worse than float, paired over the samples; below 0 is better.
        verdict: By the interval of the loss: `same` if it holds 0 (the data do not tell it from float), `worse`,
            `better`; `open` if there is no interval, `broken` if the loss is no finite number, `unmeasured` if only
            errors of the site were.
        within: Whether the loss is within the budget: the upper end of the interval, or the value where there is no
            interval; null without a budget.
        samples: Samples that were evaluated.
        seconds: Of the evaluation.
        shown: How much worse than float it is at most by these samples, and what more would show, in words; empty
            without an interval.
        flips: Samples that only float has right, and that only this setting has right; null where they are no counts.
        p_value: McNemar's exact test of these, two-sided; null without them.
        integer_only: Whether the method goes from 8-bit integer scores to weights without floats; null for one that is
            not installed.
        numbers: What else is known of it, by name of the column; less is better.
    """

    setting: int
    name: str
    series: str
    method: str
    options: Mapping[str, OptionValue]
    bits: int | None
    site: str | None
    head: int | None
    metric: Interval
    loss: Interval
    verdict: Verdict
    within: bool | None
    samples: int
    seconds: float | None
    shown: str = ""
    flips: tuple[int, ...] | None = None
    p_value: float | None = None
    integer_only: bool | None = None
    numbers: Mapping[str, Interval] = field(default_factory=dict[str, Interval])

    def amount(self, axis: str) -> float | None:
        """Return its bits, or its number of a column; None if it has none."""
        if axis == BITS:
            return self.bits
        number = self.numbers.get(axis)
        return None if number is None else number.value


@dataclass(frozen=True)
class Place:
    """One site.

    Attributes:
        id: As `softq inspect` prints it.
        node: Name of the node, empty if it has none.
        operator: The node's operator.
        role: What the result is used for.
        shape: Shape of the scores: a number, a symbol, or null for each axis; null if the rank is unknown.
    """

    id: str
    node: str
    operator: str
    role: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Errors:
    """What a setting does to one site.

    Attributes:
        setting: Number of the setting.
        site: The site.
        output_error: Norm of the change of P x V over the norm of P x V; null where there is no V.
        row_sums: Quantiles 0, 0.05, 0.5, 0.95 and 1 of the sum of the weights of a row.
        mean_row_sum: Mean of the sum of the weights of a row.
        argmax_flips: Share of the rows whose greatest weight is at another position.
        top5_flips: Share of the rows whose five greatest weights are another set.
        masked: Share of the elements that are masked.
        rows: Rows in the sample.
    """

    setting: int
    site: str
    output_error: float | None
    row_sums: tuple[float | None, ...]
    mean_row_sum: float | None
    argmax_flips: float | None
    top5_flips: float | None
    masked: float | None
    rows: int


@dataclass(frozen=True)
class Step:
    """From which budget on a setting is recommended, up to the budget of the next step.

    Attributes:
        budget: The least budget, in the metric's unit (a share where losses are shares).
        setting: Number of the setting.
    """

    budget: float
    setting: int


@dataclass(frozen=True)
class Answer:
    """The recommended setting under a budget; without one, the settings to choose from.

    Attributes:
        sentence: The answer in one sentence.
        setting: Number of the recommended setting; null if there is none, as without a budget.
        peers: Settings with as many bits that are acceptable too and whose interval meets that of the recommended.
        peers_sentence: What the data do not tell apart, and what more would; empty if there is nothing.
        budget: The loss allowed in the metric's unit (a share where losses are shares); null if none was given.
        front: The settings that none with as little of what is saved is measured better than, by it.
        by_budget: What is recommended under which budget, from the least budget under which anything is.
        axis: What is saved: `bits`, or the name of a column.
    """

    sentence: str
    setting: int | None
    peers: tuple[int, ...]
    peers_sentence: str
    budget: float | None
    front: tuple[int, ...] = ()
    by_budget: tuple[Step, ...] = ()
    axis: str = BITS


@dataclass(frozen=True)
class Subject:
    """What was measured on what, and how to do it again.

    Attributes:
        model: The model's name as the user gave it.
        graph: Hash of its graph without weights.
        weights: Fingerprint of its weights.
        data: The data's name as the user gave it.
        data_hash: Hash of the data.
        samples: Samples that were evaluated.
        metric: Name of the metric.
        unit: Its unit.
        direction: `higher` or `lower`: which is better.
        relative: Whether losses are shares of the float value instead of differences.
        reference: The float model's metric.
        softq: Version of softq that measured.
        versions: Versions of what computed the values.
        conditions: What else the values depend on, by name: the choices of who swept.
        command: What reproduces the numbers, a line for each folder.
    """

    model: str
    graph: str
    weights: str
    data: str
    data_hash: str
    samples: int
    metric: str
    unit: str
    direction: str
    relative: bool
    reference: Interval
    softq: str
    versions: Mapping[str, str]
    conditions: Mapping[str, str]
    command: str


@dataclass(frozen=True)
class StudyContent:
    """What a report says of one study.

    Attributes:
        label: What tells the study from the others of the report: the model's name where that does.
        answer: The recommended setting.
        subject: What was measured on what.
        settings: Every setting, those of all sites first, by method and bits.
        sites: Every site that takes a method, in the order of the graph.
        errors: Errors by setting and site, where they were measured.
        costs: Costs by setting and site, for the settings of all sites.
        notes: What the reader has to know besides.
    """

    label: str
    answer: Answer
    subject: Subject
    settings: tuple[Measured, ...]
    sites: tuple[Place, ...]
    errors: tuple[Errors, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]

    @property
    def whole(self) -> list[Measured]:
        """The settings that every site got."""
        return [row for row in self.settings if row.site is None and row.head is None]

    def errors_by_width(self) -> dict[tuple[str, int | None], list[Errors]]:
        """Return the errors of each site by series and bits, those of a sweep before those of a sensitivity run.

        Both are of rows of the float model, whatever else is replaced, so that they differ in the sample at most.
        """
        found: dict[tuple[str, int | None], dict[str, Errors]] = {}
        rows = self.settings
        for e in sorted(self.errors, key=lambda e: rows[e.setting].site is not None):
            row = rows[e.setting]
            if row.head is None:
                found.setdefault((row.series, row.bits), {}).setdefault(e.site, e)
        order = {site.id: number for number, site in enumerate(self.sites)}
        return {
            key: sorted(sites.values(), key=lambda e: order.get(e.site, len(order))) for key, sites in found.items()
        }


@dataclass(frozen=True)
class Shared:
    """A setting that every study of a report measured.

    Attributes:
        name: Method, options and bits, as one text.
        bits: Bits of a code, or null for a method without.
        settings: Its number in each study, in their order.
        within: Whether it is within the budget in every study; null without a budget.
    """

    name: str
    bits: int | None
    settings: tuple[int, ...]
    within: bool | None


@dataclass(frozen=True)
class Content(StudyContent):
    """A report: its first study, and what there is beside it.

    Attributes:
        schema: Version of this form.
        columns: What `numbers` of settings holds, in order.
        plan: A plan and what was measured of it; null if none was given.
        compared: The other studies, if there are several.
        shared: The settings that all studies measured, by bits, of those integer-only ones and the least losses first;
            empty where there is one study.
        together: Which setting keeps the budget in all studies, in one sentence; empty where there is one study.
    """

    schema: int = SCHEMA
    columns: tuple[Column, ...] = ()
    plan: PlanResult | None = None
    compared: tuple[StudyContent, ...] = ()
    shared: tuple[Shared, ...] = ()
    together: str = ""

    @property
    def studies(self) -> tuple[StudyContent, ...]:
        """All studies, the first among them."""
        return (self, *self.compared)

    def as_study(self) -> StudyContent:
        """Return what it says of its first study alone."""
        return StudyContent(**{one.name: getattr(self, one.name) for one in fields(StudyContent)})

    def to_json(self) -> dict[str, object]:
        """Return the report as plain values that `json` can write."""
        plain = asdict(self)
        return {"schema": plain.pop("schema")} | plain


def content_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of `report.json`: a study, and what a report has beside it."""
    study, schema = described(StudyContent), described(Content)
    every, known = schema["properties"], study["properties"]
    assert isinstance(every, dict)
    assert isinstance(known, dict)
    of_study = {"$ref": "#/$defs/study"}
    own = {name: every[name] for name in every if name not in known}
    own |= {"schema": {"const": SCHEMA}, "compared": own["compared"] | {"items": of_study}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "allOf": [of_study],
        "properties": own,
        "required": schema["required"],
        "$defs": {"study": study},
    }
