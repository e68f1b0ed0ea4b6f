"""The cores of a converted model: one for each function of softq's domain, and numbers, that its softmaxes have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from softq.errors import ProofError, RefusalError, UsageError
from softq.graph.queries import constant_tensor, producer
from softq.methods import METHODS, OptionValue
from softq.modelfile import as_model
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.infer_shapes import InferShapes
from softq.passes.replace import FUNCTION_DOMAIN
from softq.plans import SitePlan
from softq.provenance import RowFunction, row_functions
from softq.rowprog import DType
from softq.rowprog.onnx.interface import arguments
from softq.rtl.arguments import SCORES, UNKNOWN_STEP
from softq.rtl.making import MadeCore, make_core
from softq.rtl.wanted import Wanted
from softq.rtl.writing import core_files
from softq.site import META_KEY

_UNKNOWN = (0.0, "auto")
"""What options say of the real value of one unit where they leave it to the scores."""


@dataclass(frozen=True)
class SiteCore:
    """A core with the softmaxes that it computes.

    Attributes:
        made: The core.
        function: Name of their function.
        sites: Their ids.
    """

    made: MadeCore
    function: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """Softmaxes that no core computes.

    Attributes:
        function: Name of their function.
        sites: Their ids.
        reason: Why; it names the value that is in the way.
    """

    function: str
    sites: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """One line that says so."""
        return f"{FUNCTION_DOMAIN}::{self.function} ({', '.join(self.sites)}) is no core: {self.reason}"


@dataclass(frozen=True)
class FoundCores:
    """The cores of a model.

    Attributes:
        cores: The cores, in the order of their first softmaxes.
        refused: What has none.
    """

    cores: tuple[SiteCore, ...]
    refused: tuple[Refused, ...]

    def files(self, clock: float) -> dict[str, bytes]:
        """Return the files of all cores by name, with constraints that ask for a clock of so many megahertz."""
        return {name: content for core in self.cores for name, content in core_files(core.made, clock).items()}

    def to_json(self) -> dict[str, object]:
        """Return which softmaxes have which core, and which have none, as plain values."""
        return {
            "cores": [{"function": core.function, "sites": list(core.sites), **core.made.facts} for core in self.cores],
            "refused": [
                {"function": each.function, "sites": list(each.sites), "reason": each.reason} for each in self.refused
            ],
        }


@dataclass(frozen=True)
class _Same:
    """What softmaxes of one core have in common."""

    function: str
    method: str
    options: tuple[tuple[str, OptionValue], ...]
    fitted: tuple[tuple[str, tuple[float, ...]], ...]
    scores: DType
    masked: bool

    @property
    def heads(self) -> int:
        """Heads that have numbers of their own."""
        return max((len(values) for _, values in self.fitted), default=1)

    def options_of(self, head: int) -> dict[str, OptionValue]:
        """Return the options of a head."""
        return {**dict(self.options), **{name: v[head if len(v) > 1 else 0] for name, v in self.fitted}}


@dataclass
class _Group:
    length: int = 0
    sites: list[str] = field(default_factory=list[str])


def find_cores(model: ir.Model, wanted: Wanted) -> FoundCores:
    """Return the cores of the functions that a model calls; it is not changed.

    Numbers that were fitted, and the scale of the scores where the model quantizes them, are constants of the cores:
    softmaxes of one function with others of these get cores of their own.

    Raises:
        RefusalError: the model calls no function, or one that is not that of its plan, or none of them can be a core.
        UsageError: an argument is wrong.
    """
    flat = as_model(model)
    if ExpandFunctions()(flat).modified:  # Calls of softq's functions may stand in the model's own.
        InferShapes()(flat)
    called = row_functions(flat)
    if not called:
        raise RefusalError(
            f"the model calls no function of the domain {FUNCTION_DOMAIN}, which could be a core; convert it first, "
            "without --inline"
        )
    groups: dict[_Same, _Group] = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for call in flat.graph.all_nodes():
        if call.domain != FUNCTION_DOMAIN:
            continue
        site = call.metadata_props.get(META_KEY, call.name or "")
        try:
            same, length = _read(call, site, called[call.op_identifier()[:2]], wanted)
        except (RefusalError, UsageError) as error:
            refused.setdefault((call.op_type, str(error)), []).append(site)
            continue
        group = groups.setdefault(same, _Group())
        group.length = max(group.length, length)
        group.sites.append(site)
    made: list[SiteCore] = []
    taken: dict[str, int] = {}
    for same, group in groups.items():
        method = METHODS.get(same.method)
        each = [method.configure(same.options_of(head)) for head in range(same.heads)]
        stem = method.name.replace("-", "_")
        name = stem if stem not in taken else f"{stem}_{taken[stem] + 1}"
        try:
            first, *others = (method.program(o, scores=same.scores, masked=same.masked) for o in each)
            core = make_core(
                method,
                each[0],
                first,
                wanted.settings(group.length, same.heads),
                name=name,
                fitted={option: values[0] if len(values) == 1 else values for option, values in same.fitted},
                outputs=wanted.outputs,
                registers=wanted.registers,
                others=others,
            )
        except (RefusalError, UsageError, ProofError) as error:
            refused.setdefault((same.function, str(error)), []).extend(group.sites)
            continue
        taken[stem] = taken.get(stem, 0) + 1
        made.append(SiteCore(core, same.function, tuple(group.sites)))
    none = tuple(Refused(function, tuple(sites), reason) for (function, reason), sites in refused.items())
    if not made:
        raise RefusalError("; ".join(each.text for each in none))
    return FoundCores(tuple(made), none)


def _read(call: ir.Node, site: str, function: RowFunction, wanted: Wanted) -> tuple[_Same, int]:
    """Return what one softmax asks of a core, and the length of its longest row."""
    planned = _planned(call, site, function)
    method, options = METHODS.get(planned.method), planned.configure()
    if not method.integer_scores:
        raise RefusalError(f"scores of method {method.name} are floats; a core takes integers of 8 bits")
    fitted = {name: _numbers(name, value, wanted.registers) for name, value in planned.fitted.items()}
    settings: dict[str, OptionValue] = {**options.to_json(), **{name: values[0] for name, values in fitted.items()}}
    scores = _quantizer(call)
    if scores is not None and wanted.scores not in (None, scores.kind):
        raise RefusalError(f"its scores are {scores.kind.value}; {wanted.scores.value} is asked for")
    settings["step"] = _step(settings.get("step", 0.0), scores, wanted.step)
    if scores is not None and scores.zero and "zero" in settings:
        if settings["zero"] not in (0, scores.zero):
            raise RefusalError(f"zero is {settings['zero']}; the zero point of its scores is {scores.zero}")
        settings["zero"] = scores.zero
    chosen = method.configure(settings)
    kind = wanted.scores or (DType.I8 if scores is None else scores.kind)
    same = _Same(
        call.op_type,
        method.name,
        tuple(chosen.to_json().items()),
        tuple(fitted.items()),
        kind,
        function.program.masked,
    )
    length = _length(call, wanted.length)
    if settings["step"] == 0:
        raise RefusalError(f"{UNKNOWN_STEP}, as in --target verilog,step=0.06")
    return same, length


def _planned(call: ir.Node, site: str, function: RowFunction) -> SitePlan:
    """Return what the plan says of a softmax, after checking that the model gives the function the same numbers."""
    given = [constant_tensor(value) for value in call.inputs[1 + function.program.masked :]]
    arrays = [None if tensor is None else tensor.numpy() for tensor in given]
    named = [planned for planned in function.sites if planned.id == site]
    for planned in named or function.sites:
        method = METHODS.get(planned.method)
        options = planned.configure()
        numbers = method.parameters(options, planned.fitted) if options.fitted else {}
        wanted = arguments(function.program, numbers)
        if len(wanted) == len(arrays) and all(
            a is not None and np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in zip(arrays, wanted, strict=True)
        ):
            return planned
    raise RefusalError("its fitted numbers are not those of the plan in the model's metadata")


def _numbers(name: str, value: float | tuple[float, ...], registers: bool) -> tuple[float, ...]:
    """Return a fitted number for each head, or as one for all."""
    several = value if isinstance(value, tuple) else (value,)
    if registers:
        return several
    if len(set(several)) > 1:
        raise RefusalError(f"{name} is fitted per head, {len(several)} numbers; a core without registers has one")
    return several[:1]


@dataclass(frozen=True)
class _Quantizer:
    """How the codes of scores are meant.

    Attributes:
        kind: Their type.
        scale: The real value of one unit.
        zero: The code of 0.
    """

    kind: DType
    scale: float
    zero: int


def _quantizer(call: ir.Node) -> _Quantizer | None:
    """Return how the model quantizes the scores of a softmax; None if it does not, or not by one known scale."""
    scores = call.inputs[0]
    decode = None if scores is None else producer(scores, "DequantizeLinear")
    if decode is None or decode.inputs[0] is None or decode.inputs[0].dtype is None:
        return None
    scale = constant_tensor(decode.inputs[1])
    zero = constant_tensor(decode.inputs[2]) if len(decode.inputs) > 2 else None
    kind = DType.named(decode.inputs[0].dtype.numpy().name)
    if scale is None or scale.size != 1 or kind not in SCORES:
        return None
    if zero is None and len(decode.inputs) > 2 and decode.inputs[2] is not None:
        return None
    return _Quantizer(kind, float(scale.numpy().item()), 0 if zero is None else int(zero.numpy().item()))


def _step(stated: OptionValue, scores: _Quantizer | None, asked: float | None) -> OptionValue:
    """Return the real value of one unit: what the model, the options and the user say of it may not differ."""
    known = {
        "the scale of its scores": None if scores is None else scores.scale,
        "step of its method": None if stated in _UNKNOWN else stated,
        "step of the target": asked,
    }
    said = {what: value for what, value in known.items() if value is not None}
    if len(set(map(np.float32, said.values()))) > 1:  # Models have scales in float32.
        raise RefusalError(" and ".join(f"{what} is {value:g}" for what, value in said.items()))
    return next(iter(said.values()), stated)


def _length(call: ir.Node, asked: int | None) -> int:
    shape = None if call.inputs[0] is None else call.inputs[0].shape
    last = shape[-1] if shape is not None and len(shape) else None
    if not isinstance(last, int):
        if asked is None:
            raise RefusalError("length of its rows is not known in the model; length=N gives the longest")
        return asked
    if asked is not None and last > asked:
        raise RefusalError(f"length of its rows is {last}; {asked} is asked for")
    return asked or last
