"""From a model to a converted model: the steps in their order (`convert`), and the first of them alone (`inspect`)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, cast

import onnx_ir as ir

from softq import modelfile
from softq._version import __version__
from softq.calibration import Sampling, make_fit
from softq.conversion_steps import make_steps
from softq.errors import RefusalError, UsageError
from softq.files import write_text
from softq.graph.facts import Assumed, Facts
from softq.graph.view import ModelView
from softq.input_shapes import InputShapes, fix_input_shapes
from softq.methods import DEFAULT_METHOD, METHODS, OptionValue
from softq.modelfile import ModelLike, as_model, graph_hash, weights_fingerprint
from softq.passes.fuse_attentions import REFUSED_KEY
from softq.passes.locate import locate
from softq.passes.quantize_attentions import FLOATS_KEY
from softq.plan_application import follow
from softq.plan_making import check_substitutes, doubts, plan_sites, softmaxes
from softq.plans import (
    DEFAULT_MAX_LENGTH,
    PLAN_KEY,
    VERSION_KEY,
    Plan,
    as_plan,
    check_max_length,
    check_names,
)
from softq.progress import Progress
from softq.site import Site
from softq.wording import by_reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import onnx
    from typing_extensions import TypeVar

    from softq.data import DataSource

    M = TypeVar("M", bound=onnx.ModelProto | ir.Model, default=ir.Model)
else:
    from typing import TypeVar

    M = TypeVar("M")


@dataclass(frozen=True)
class Conversion(Generic[M]):
    """What `convert` returns.

    Attributes:
        model: The converted model: a `ModelProto` for a `ModelProto`, an `ir.Model` for a path or an `ir.Model`.
        sites: Every softmax of the original model, with its verdict.
        plan: What was done to each converted site; given to `convert` again it reproduces the model.
        warnings: What the user should know, one sentence each.
    """

    model: M
    sites: tuple[Site, ...]
    plan: Plan
    warnings: tuple[str, ...]


def inspect(
    model: ModelLike,
    *,
    method: str | None = None,
    sites: Sequence[str] = (),
    all_sites: bool = False,
    masks: Sequence[str] = (),
    allow_float32: bool = False,
    input_shapes: InputShapes | None = None,
) -> tuple[Site, ...]:
    """Return every softmax of the model, with the verdict that `convert` would act on; the model is not changed.

    Args:
        model: A path or a model.
        method: Name of the method, as in `convert`: not each can take every site.
        sites: Globs over site ids, as in `convert`.
        all_sites: Whether every site that can be converted is to be, as in `convert`.
        masks: Names of tensors that are masks, as in `convert`.
        allow_float32: Whether double scores may be computed in float32, as in `convert`.
        input_shapes: Shapes of inputs, as in `convert`.

    Raises:
        InputError: the file is no usable ONNX model.
        UsageError: a glob matches no site, the method is unknown, or there is no tensor of a mask's name.
    """
    chosen = METHODS.open(DEFAULT_METHOD if method is None else method)
    check_names("sites", sites)
    check_names("masks", masks)
    assumed = Assumed(frozenset(masks), allow_float32)
    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    return locate(
        work,
        select=sites,
        all_sites=all_sites,
        logarithms=chosen.logarithms,
        methods=chosen.name,
        assumed=assumed,
    )


def convert(
    model: str | os.PathLike[str] | M,
    *,
    method: str | None = None,
    bits: int | None = None,
    settings: Mapping[str, OptionValue] | None = None,
    calibration: DataSource | None = None,
    sampling: Sampling | None = None,
    sites: Sequence[str] = (),
    all_sites: bool = False,
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    require: bool = False,
    inline: bool = False,
    fuse_attention: bool = False,
    qdq: bool = False,
    max_length: int | None = None,
    batch: int | None = None,
    masks: Sequence[str] = (),
    allow_float32: bool = False,
    allow_substitute: bool = False,
    input_shapes: InputShapes | None = None,
    progress: Progress | None = None,
) -> Conversion[M]:
    """Return the model with its softmaxes replaced; the argument is never changed.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`.
        method: Name of the method, or the file of one's own (`my_method.py`); `softq.methods.DEFAULT_METHOD` if None.
        bits: Short for the setting `bits`.
        settings: Options of the method by name.
        calibration: Data for options that are fitted: see `softq.data.open_data`.
        sampling: How many rows of them are fitted on, and how they are drawn.
        sites: Globs over site ids: exactly the sites that match are converted, whatever their role. Without them the
            attention softmaxes are, and classifier heads, samplers and routers stay exact.
        all_sites: Convert every site that can be.
        plan: A plan, its file, or the values in it, to follow instead of method, bits, settings, calibration, sites
            and all_sites; beside it, the file of a method of one's own that the plan names.
        require: Refuse a model in which nothing is converted, instead of returning it as it is.
        inline: Write plain operators instead of functions, for consumers that refuse functions.
        fuse_attention: Write each attention whose softmax is replaced as a function around the softmax's own, with
            equal results; a warning says of each that stays why.
        qdq: Write both products of each such attention on 8-bit integers, as QuantizeLinear and DequantizeLinear with
            scales that the model computes of the tensors at hand; a warning says of each that stays in floats why.
        max_length: Greatest length of a row that the proofs cover, where the graph gives no bound; 65,536 if None.
        batch: Samples a run of the calibration.
        masks: Names of tensors that are masks though the graph does not prove it: the caller's word that their elements
            are 0 where a position takes part and at most -1e4 elsewhere, or of integers, 1 and 0.
        allow_float32: Convert softmaxes of double scores too; they are computed in float32.
        allow_substitute: Put methods that are no drop-in in the place of softmaxes: other functions, for models that
            were trained with them. A plan does not settle this: who follows one that names such a method says it again.
        input_shapes: For an input's name its lengths (None for an axis that stays open), or lengths by the names of its
            axes; the result takes these alone.
        progress: Called with a step's name, the work done and the work there is, if known.

    Raises:
        InputError: the model, the plan or the calibration data cannot be used.
        UsageError: an argument is wrong, or two exclude each other, or a method is no drop-in and not allowed.
        RefusalError: the model cannot be converted truthfully, or `require` and nothing is.
        ProofError: a method's program has no proof for the rows' greatest length.
    """
    followed = None if plan is None else as_plan(plan)
    if method is not None:
        settled = followed if method.endswith(".py") else None
        method = METHODS.open(method).name if settled is None else _know(method, settled)
    if followed is not None and max_length not in (None, followed.max_length):
        raise UsageError(f"max_length is {max_length}; the plan was made for {followed.max_length}")
    if max_length is None:
        max_length = DEFAULT_MAX_LENGTH if followed is None else followed.max_length
    if qdq and fuse_attention:
        raise UsageError("qdq and fuse_attention exclude each other: fused attentions are functions")
    check_max_length(max_length)
    check_names("sites", sites)
    check_names("masks", masks)
    chosen_settings = dict(settings or {}) | ({} if bits is None else {"bits": bits})
    given = {
        "method": method,
        "bits or settings": chosen_settings,
        "calibration": calibration,
        "sampling": sampling is not None and sampling != Sampling(),
        "sites": sites,
        "all_sites": all_sites,
        "masks": masks,
        "allow_float32": allow_float32,
    }
    if followed is not None and any(given.values()):
        names = ", ".join(name for name, value in given.items() if value)
        raise UsageError(f"a plan settles {names} already; give either the plan or {names}")
    name = DEFAULT_METHOD if method is None else method
    if qdq and followed is None:
        usual = METHODS.get(name)
        fits = usual.byte_fits if calibration is not None else ()
        chosen_settings = dict(usual.byte_weights) | dict(fits) | chosen_settings
    METHODS.get(name).configure(chosen_settings)  # a wrong option is reported before the model is read

    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    graph, weights = graph_hash(work), weights_fingerprint(work)
    warnings: list[str] = []
    facts: Facts | None = None
    if followed is not None:
        assumed, found, planned = follow(work, followed, graph)
        plain = {site.id for site in softmaxes(found)}
        check_substitutes(((s.id, s.method) for s in followed.sites if s.id in plain), allow_substitute)
        if followed.weights != weights:
            warnings.append(
                "the plan was made for the same graph with other weights: its fitted numbers may not suit them"
            )
    else:
        assumed = Assumed(frozenset(masks), allow_float32)
        logarithms = METHODS.get(name).logarithms
        facts = Facts(ModelView(work))
        found = locate(
            work,
            select=sites,
            all_sites=all_sites,
            logarithms=logarithms,
            methods=name,
            assumed=assumed,
            facts=facts,
        )
        planned = None
    rewrites = {site.id: site.rewrite for site in found if site.rewrite}
    if not any(site.verdict.action == "convert" for site in found) or not (planned is None or planned or rewrites):
        nothing = "the plan has no sites: nothing to convert" if planned == {} else _nothing(found)
        if require:
            raise RefusalError(nothing)
        warnings.append(nothing)
        empty = Plan(__version__, graph, weights, (), max_length, {}, tuple(sorted(assumed.masks)), assumed.float32)
        return Conversion(_in_given_form(work, model), found, empty, tuple(warnings))

    if planned is None:
        check_substitutes(((site.id, name) for site in softmaxes(found)), allow_substitute)
        fit = None
        if calibration is not None:
            fit, unused = make_fit(
                work, found, calibration, METHODS.get(name), chosen_settings, sampling or Sampling(), batch, assumed,
                progress,
            )  # fmt: skip
            warnings += unused
            facts = None  # Calibration may write into the model.
        made = plan_sites(found, name, chosen_settings, fit, allow_substitute=allow_substitute)
        planned = {s.id: s for s in made}
    warnings += doubts(planned.values())
    steps = make_steps(planned, rewrites, max_length, facts, inline=inline, fuse_attention=fuse_attention, qdq=qdq)
    for number, step in enumerate(steps):
        if progress is not None:
            progress("convert", number, len(steps))
        step(work)
    for key, stays in ((FLOATS_KEY, "stays in floats"), (REFUSED_KEY, "is not fused")):
        warnings += [f"the attention of {sites} {stays}: {why}" for sites, why in by_reason(work.meta.pop(key, {}))]
    result = Plan(
        __version__, graph, weights, tuple(planned.values()), max_length, rewrites,
        tuple(sorted(assumed.masks)), assumed.float32,
    )  # fmt: skip
    work.metadata_props[VERSION_KEY] = __version__
    work.metadata_props[PLAN_KEY] = json.dumps(result.to_json(), separators=(",", ":"), allow_nan=False)
    return Conversion(_in_given_form(work, model), found, result, tuple(warnings))


def calibrate(
    model: ModelLike,
    data: DataSource,
    *,
    method: str | None = None,
    bits: int | None = None,
    settings: Mapping[str, OptionValue] | None = None,
    sampling: Sampling | None = None,
    sites: Sequence[str] = (),
    all_sites: bool = False,
    max_length: int | None = None,
    batch: int | None = None,
    masks: Sequence[str] = (),
    allow_float32: bool = False,
    allow_substitute: bool = False,
    input_shapes: InputShapes | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Return the plan that `convert` follows with these calibration data, the options of each site fitted.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`.
        data: The calibration data: see `softq.data.open_data`.
        method: As in `convert`.
        bits: As in `convert`.
        settings: As in `convert`.
        sampling: As in `convert`.
        sites: As in `convert`.
        all_sites: As in `convert`.
        max_length: As in `convert`.
        batch: As in `convert`.
        masks: As in `convert`.
        allow_float32: As in `convert`.
        allow_substitute: As in `convert`.
        input_shapes: As in `convert`.
        progress: As in `convert`.

    Raises:
        RefusalError: nothing of the model is converted.
        SoftqError: as in `convert`.
    """
    return convert(
        as_model(model), method=method, bits=bits, settings=settings, calibration=data, sampling=sampling, sites=sites,
        all_sites=all_sites, require=True, max_length=max_length, batch=batch, masks=masks, allow_float32=allow_float32,
        allow_substitute=allow_substitute, input_shapes=input_shapes, progress=progress,
    ).plan  # fmt: skip


def save(
    result: Conversion[onnx.ModelProto] | Conversion[ir.Model] | onnx.ModelProto | ir.Model | Plan,
    path: str | os.PathLike[str],
) -> None:
    """Write what `convert`, `calibrate` or `plan` gave to a file: a model as .onnx, a plan as JSON.

    On an error nothing is left behind, and a file that was there is as it was. A model's weights in other files are
    referred to in the folder of the model that it was made from, and copied elsewhere.

    Args:
        result: A conversion, its model, or a plan.
        path: The file to write.

    Raises:
        UsageError: `path` is the file that the model was made from, one of its data files, or no place for a file.
        InputError: the folder is absent, cannot be written, or the disk is full; or weights cannot be read.
    """
    if isinstance(result, Plan):
        write_text(path, result.to_text())
    else:
        modelfile.save(result.model if isinstance(result, Conversion) else result, path)


def expose(model: ModelLike, plan: Plan) -> ir.Model:
    """Return the model that `convert` makes of the plan, with what its options decide as inputs of the graph.

    It gives the same values if it is given the plan's own arrays; `softq.passes.rewriting.calls.EXPOSED_KEY` says which
    inputs.

    Args:
        model: A path or a model, which is not changed.
        plan: A plan for this graph.

    Raises:
        RefusalError: as in `convert`.
        ProofError: as in `convert`.
    """
    work = as_model(model)
    _, _, planned = follow(work, plan, graph_hash(work))
    for step in make_steps(planned, plan.rewrites, plan.max_length, expose=True):
        step(work)
    return work


def _know(file: str, plan: Plan) -> None:
    """Make the method of a file known, for a plan that names it.

    Raises:
        UsageError: the plan does not.
    """
    name = METHODS.open(file).name
    if name not in {site.method for site in plan.sites}:
        raise UsageError(f"a plan settles method already, and this one does not name {name}, which {file!r} holds")


def _in_given_form(work: ir.Model, model: str | os.PathLike[str] | M) -> M:
    return cast("M", work if isinstance(model, (str, os.PathLike, ir.Model)) else ir.to_proto(work))


def _nothing(sites: Sequence[Site]) -> str:
    if not sites:
        return "the model has no softmax: nothing to convert"
    first = f"{sites[0].id}: {sites[0].verdict.reason}"
    if len(sites) == 1:
        return f"the only softmax is not to be converted; {first}"
    return f"none of the {len(sites)} softmaxes is to be converted; the first, {first}"
