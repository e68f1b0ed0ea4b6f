"""What softq says about one softmax of a model: where it is, what form it has, and whether it is converted."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from inspect import getdoc
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Action = Literal["convert", "keep", "refuse"]
MaskedRow = Literal["nan", "zero", "uniform", "scores"]
Role = Literal["attention", "selector", "feature-map", "classifier", "router", "sampler", "detector", "other"]
MaskKind = Literal["none", "where", "additive", "unproven"]

SCHEMA = 1
"""Version of sites as JSON (`softq inspect --json`): fields may be added, a change of meaning is another version."""

META_KEY = "softq.site"
"""Key under which `locate` leaves a node's `Site` in `ir.Node.meta`, and `replace` its id in the metadata of a call."""


@dataclass(frozen=True)
class Verdict:
    """What happens to a site (`convert`, `keep` as it is, `refuse` as impossible) and the sentence that says why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class OwnFunction:
    """The function of a row that a graph writes out where others have a softmax: that of a method.

    Attributes:
        method: The name of the method.
        options: The method's options, every one of them by name.
        fitted: The options that are numbers a head.
    """

    method: str
    options: Mapping[str, int | float | str]
    fitted: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Site:
    """One softmax of a model.

    Attributes:
        id: Container path and output value name joined by `/`; `operator#index` where there is no name.
        container: Names from the main graph down to the graph or function of the node; empty for the main graph.
        operator: `Softmax`, `LogSoftmax`, `com.microsoft::Attention`, ...
        form: Name of the rule that recognised it (`softq inspect --json` prints it).
        axis: The reduced axis counted from the end (-1 is the last), or None if it is not known.
        head_axis: The axis of the attention heads counted from the end, or None.
        dtype: ONNX element type of the scores in lower case, `float32`; `unknown` if the graph does not say.
        shape: Shape of the scores: a number, a symbol, or None for each axis; None if the rank is unknown.
        mask: How masked positions are written into the scores: `where`, `additive`, `unproven` (an addition that
            may be a mask but cannot be proven one, and stays an addition), or `none`.
        masked_row: What the original model gives for a row without any unmasked element: `nan`, `zero`, `uniform`,
            or `scores` (the softmax of the row's own scores, because the mask is finite).
        guard: `none`, or the name of what stands behind the softmax to catch NaN rows (`isnan-where`).
        role: What the result is used for.
        consumer: The operator (or `graph output`) that takes the weights, behind guards and casts.
        verdict: What happens to it and why.
        rewrite: The pass that makes it superfluous without a method (`drop-argmax`, `fuse-topk`), or empty.
        logarithm: Whether the logarithm of its weights is taken, which only methods that say so can give.
        function: The method whose function it is with what stands in front of it and behind; None if it is no such
            function.
    """

    id: str
    container: tuple[str, ...]
    operator: str
    form: str
    axis: int | None
    head_axis: int | None
    dtype: str
    shape: tuple[int | str | None, ...] | None
    mask: MaskKind
    masked_row: MaskedRow
    guard: str
    role: Role
    consumer: str
    verdict: Verdict
    rewrite: str = ""
    logarithm: bool = False
    function: OwnFunction | None = None

    @property
    def takes_method(self) -> bool:
        """Whether a method takes its place."""
        return self.verdict.action == "convert" and not self.rewrite

    @property
    def fingerprint(self) -> str:
        """Form and shape as one text: what a plan stores to recognise the site again."""
        shape = "?" if self.shape is None else "x".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.form}:{self.operator}:{self.dtype}:{shape}:axis={self.axis}:mask={self.mask}"

    def to_json(self) -> dict[str, object]:
        """Return the site as plain values that `json` can write."""
        return asdict(self)


def inspection_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of what `softq inspect --json` prints."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "model": {"type": "string", "description": "The model as it was given."},
            "sites": {"type": "array", "items": described(Site), "description": "In the order of the graph."},
        },
        "required": ["schema", "model", "sites"],
    }


def described(kind: type) -> dict[str, object]:
    """Return the JSON Schema of a dataclass, with the descriptions from its docstring and those of its bases."""
    hints = get_type_hints(kind)
    documents = "\n".join(getdoc(one) or "" for one in reversed(kind.__mro__) if is_dataclass(one))
    texts = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", documents, re.MULTILINE))
    properties: dict[str, object] = {}
    for field in fields(kind):
        text = " ".join(texts.get(field.name, "").split())
        properties[field.name] = _schema_of(hints[field.name]) | ({"description": text} if text else {})
    return {"type": "object", "properties": properties, "required": list(properties)}


_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _schema_of(hint: Any) -> dict[str, object]:
    if hint in _NAMES:
        return {"type": _NAMES[hint]}
    if is_dataclass(hint):
        return described(hint if isinstance(hint, type) else type(hint))
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(arguments)}
    if get_origin(hint) in (Union, types.UnionType):
        return {"anyOf": [_schema_of(argument) for argument in arguments]}
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    assert get_origin(hint) is tuple, hint
    assert arguments[1:] == (...,), hint
    return {"type": "array", "items": _schema_of(arguments[0])}
