"""Put a method's function in the place of each canonical softmax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.errors import RefusalError, SoftqError
from softq.graph.edits import add_cast, add_constant, remove_if_unused, row_shape, take_over
from softq.graph.queries import graph_of
from softq.graph.view import ModelView
from softq.methods import DEFAULT_METHOD, METHODS
from softq.passes import PassEntry
from softq.passes.normalize import Normalize
from softq.passes.rewriting.calls import EXPOSED_KEY, ROW_KEY, CallContext, Exposed, make_call, same_function
from softq.passes.rewriting.canonical import CANONICAL_KEY, Canonical, Mask, leaves_scores, scores_of
from softq.plan_making import plan_sites
from softq.plans import DEFAULT_MAX_LENGTH, SitePlan
from softq.rowprog import Program
from softq.rowprog.onnx import function_name
from softq.site import META_KEY

FUNCTION_DOMAIN = "softq"
"""Domain of the functions that softq puts into a model."""

PAIR_KEY = "softq.pair"
"""Key under which `replace` leaves a `Pair` in the meta of the value that stands for the probabilities."""


@dataclass(frozen=True)
class Pair:
    """What the probabilities of a replaced softmax are the quotient of.

    Attributes:
        weights: float32, shape of the scores.
        normalizer: float32, the same with 1 as the last axis.
        zero_undefined: Whether a row whose normalizer is 0 or NaN counts as zeros.
        zero_rows: The condition of a Where behind the probabilities that makes whole rows zeros; None if there is none.
        exponential: Whether the weights are the exponentials of the scores' distances from the row's maximum.
        values: What codes V, as in `Call`.
    """

    weights: ir.Value
    normalizer: ir.Value
    zero_undefined: bool
    exponential: bool
    zero_rows: ir.Value | None
    values: ir.Function | None = None


class Replace(ir.passes.InPlacePass):
    """Replaces each canonical softmax by a call of its method's function, domain `softq`.

    A model that `normalize` has not seen is normalized first.

    Args:
        method: Method of every site, where there is no plan.
        settings: Options of the method by name; the others keep their defaults.
        plan: What each site gets, by id; a site that is not in it stays as it is.
        max_length: Greatest length of a row that the proofs cover, for sites whose graph gives no bound.
        allow_substitute: Whether `method` may be one that is no drop-in; a plan was asked for that when it was made.
        expose_parameters: Make fitted parameters, and the numbers and tables of the programs, inputs of the graph, so
            that one session serves many settings; `EXPOSED_KEY` in the model's meta says which. Calls inside functions
            of the model, which see no input of the graph, keep theirs.

    Raises:
        ProofError: the program of a site cannot be proved for its greatest length.
        UsageError: the method is no drop-in and not allowed.
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        settings: Mapping[str, object] | None = None,
        *,
        plan: Mapping[str, SitePlan] | None = None,
        max_length: int = DEFAULT_MAX_LENGTH,
        allow_substitute: bool = False,
        expose_parameters: bool = False,
    ) -> None:
        super().__init__()
        self._method, self._settings, self._plan = METHODS.open(method).name, dict(settings or {}), plan
        self._max_length, self._expose, self._allowed = max_length, expose_parameters, allow_substitute

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace what is canonical; `modified` says whether anything was."""
        found, modified = canonical_nodes(model), False
        if not found:
            modified = Normalize()(model).modified
            found = canonical_nodes(model)
        plan = self._plan
        if plan is None:
            sites = [canonical.site for _, canonical in found]
            whole = plan_sites(sites, self._method, self._settings, allow_substitute=self._allowed)
            plan = {planned.id: planned for planned in whole}
        chosen: list[tuple[ir.Node, Canonical, SitePlan, Program]] = []
        for node, canonical in found:
            if (planned := plan.get(canonical.site.id)) is not None:
                program = METHODS.get(planned.method).program(planned.configure(), masked=uses_mask(canonical))
                chosen.append((node, canonical, planned, program))
        lengths = self._greatest_lengths([(canonical, program) for _, canonical, _, program in chosen])
        taken: dict[ir.Value, ir.Value] = {}
        added: dict[ir.Function, ir.Function] = {}
        if self._expose:
            model.meta[EXPOSED_KEY] = []
        for node, given, planned, program in chosen:
            canonical = _renew(given, taken)
            try:
                length = lengths[function_name(program)]
                result = self._replace(model, node, canonical, planned, program, length, added)
            except SoftqError as error:
                raise type(error)(f"site {canonical.site.id}: {error}") from error
            taken[canonical.probabilities] = result
        # Several sites may share a mask, and one that leaves it in the scores does not read it.
        masked = [canonical for _, canonical, _, _ in chosen if canonical.mask is not None]
        remove_if_unused(*(c.mask.condition.producer() for c in masked if c.mask is not None))
        remove_if_unused(*(c.scores.producer() for c in masked))
        return ir.passes.PassResult(model, modified or bool(chosen))

    def _greatest_lengths(self, chosen: list[tuple[Canonical, Program]]) -> dict[str, int]:
        """Return the greatest length of a row for each function: sites that share one share its proof."""
        lengths: dict[str, int] = {}
        for canonical, program in chosen:
            shape, key = canonical.scores.shape, function_name(program)
            last = shape[-1] if shape is not None and len(shape) else None
            # Rows without elements need a proof too, and have that of one element.
            lengths[key] = max(lengths.get(key, 1), last if isinstance(last, int) else self._max_length)
        return lengths

    def _replace(
        self,
        model: ir.Model,
        node: ir.Node,
        canonical: Canonical,
        planned: SitePlan,
        program: Program,
        max_length: int,
        added: dict[ir.Function, ir.Function],
    ) -> ir.Value:
        context = CallContext(program.masked, model.opset_imports[""], max_length)
        exposes = self._expose and not owners(model, node)
        call = make_call(planned, context, exposed=exposes)
        function = added.get(call.function)
        if function is None:
            function = added[call.function] = add_function(model, call.function)
        for owner in (model, *owners(model, node)):
            owner.opset_imports[FUNCTION_DOMAIN] = 1
        model.ir_version = max(model.ir_version, 8)  # the first version that knows functions

        tape = Tape()
        inputs = [canonical.scores if program.masked or canonical.whole else scores_of(node)]
        if program.masked:
            assert canonical.mask is not None
            inputs.append(_write_valid(canonical.mask, tape))
        base = node.outputs[0].name or "softmax"
        _check_heads(canonical, planned)
        given: list[ir.Value] = []
        for name, array in call.arrays.items():
            # An input of the graph takes other arrays of this type and number of axes, too.
            kind, dims = ir.DataType.from_numpy(array.dtype), [None] * array.ndim
            constant = None if exposes else add_constant(tape, array, f"{base}.{name}")
            given.append(ir.val(f"{base}.{name}", kind, dims) if constant is None else constant)
        if exposes:
            model.graph.inputs.extend(given)
            model.meta[EXPOSED_KEY].append(Exposed(canonical.site.id, context, function, tuple(given)))

        shape = node.outputs[0].shape
        shapes = {"weights": shape, "probabilities": shape, "normalizer": row_shape(shape)}
        outputs = {
            name: ir.val(f"{base}.{name}", ir.DataType.FLOAT if name in shapes else None, shapes.get(name))
            for name in (str(output.name) for output in function.outputs)
        }
        # The first version with metadata of nodes is 10.
        about = {META_KEY: canonical.site.id} if model.ir_version >= 10 else None
        tape.op_multi_out(
            function.name, [*inputs, *given], domain=FUNCTION_DOMAIN, outputs=[*outputs.values()],
            name=f"{node.name or base}.{planned.method}", metadata_props=about,
        )  # fmt: skip
        tape.nodes[-1].meta[ROW_KEY] = call.row
        pair, zero = None, canonical.nan_becomes_zero
        if program.is_pair:
            exponential = METHODS.get(planned.method).logarithms
            pair = Pair(outputs["weights"], outputs["normalizer"], zero, exponential, canonical.zero_rows, call.values)
            result = divided(pair.weights, pair, tape, f"{base}.p", shape)
        else:
            result = outputs["probabilities"]
            if zero:
                boolean = ir.val(f"{base}.undefined", ir.DataType.BOOL, shape)
                nothing = add_constant(tape, np.array(0, np.float32), f"{base}.zero")
                nan = tape.op("IsNaN", [result], name=f"{base}.isnan", output=boolean)
                guarded = ir.val(f"{base}.guarded", ir.DataType.FLOAT, shape)
                result = tape.op("Where", [nan, nothing, result], name=f"{base}.where", output=guarded)
        result = add_cast(tape, result, node.outputs[0], f"{base}.cast")
        graph_of(node).insert_before(node, tape.nodes)
        take_over(canonical.probabilities, result)
        if pair is not None:
            result.meta[PAIR_KEY] = pair
        remove_if_unused(node, canonical.probabilities.producer())
        return result


def add_function(model: ir.Model, function: ir.Function) -> ir.Function:
    """Put a copy of a function into the model, unless the same is there; return the one that is there then.

    Raises:
        RefusalError: one of the same name with another body is there: of another origin, or proved for other lengths.
    """
    there = model.functions.get(function.identifier())
    if there is None:
        there = model.functions[function.identifier()] = function.clone()
    elif not same_function(there, function):
        raise RefusalError(
            f"the model has a function {FUNCTION_DOMAIN}::{function.name} with another body already; "
            "convert the original model, all sites at once"
        )
    return there


def pairs_of(model: ir.Model) -> list[tuple[ir.Value, Pair]]:
    """Return the probabilities that are a quotient in their own graph, with what they are the quotient of."""
    found = ((value, value.meta.get(PAIR_KEY)) for node in ModelView(model).nodes for value in node.outputs)
    return [(value, p) for value, p in found if isinstance(p, Pair) and p.weights.graph is value.graph]


def canonical_nodes(model: ir.Model) -> list[tuple[ir.Node, Canonical]]:
    """Return every node that `normalize` has made canonical, with what it stands for, in graph order."""
    found = ((node, node.meta.get(CANONICAL_KEY)) for node in ModelView(model).nodes)
    # A clone of the model takes the meta along, but its values are others.
    return [(node, c) for node, c in found if isinstance(c, Canonical) and _belongs(c, node)]


def _check_heads(canonical: Canonical, planned: SitePlan) -> None:
    site = canonical.site
    for name, value in planned.fitted.items():
        if not isinstance(value, tuple):
            continue
        if site.head_axis is None or site.shape is None:
            raise RefusalError(f"{name} is fitted per head, and this site has no head axis; fit it per site")
        heads = site.shape[site.head_axis]
        if isinstance(heads, int) and heads != len(value):
            raise RefusalError(f"{name} has {len(value)} numbers, one per head; the site has {heads} heads")


def _belongs(canonical: Canonical, node: ir.Node) -> bool:
    values = [canonical.scores, canonical.probabilities]
    values += [] if canonical.mask is None else [canonical.mask.condition]
    alive = {id(node.outputs[0]), id(node.inputs[0])}
    if id(canonical.probabilities) != id(node.outputs[0]):
        alive |= {id(out) for user in node.outputs[0].consumers() for out in user.outputs}
    near = id(canonical.probabilities) in alive
    return near and (canonical.scores is node.inputs[0] or canonical.mask is not None or canonical.whole)


def divided(product: ir.Value, pair: Pair, before: Tape, name: str, shape: ir.Shape | None) -> ir.Value:
    """Append the division of `product`, float32 of a shape, by the pair's normalizer; return the quotient."""
    quotient = ir.val(f"{name}.quotient", ir.DataType.FLOAT, shape)
    before.op("Div", [product, pair.normalizer], name=f"{name}.div", output=quotient)
    if not pair.zero_undefined:
        return quotient
    zero = add_constant(before, np.array(0, np.float32), f"{name}.zero")
    # False for a normalizer of 0 and for NaN alike.
    defined = ir.val(f"{name}.defined", ir.DataType.BOOL, pair.normalizer.shape)
    before.op("Greater", [pair.normalizer, zero], name=f"{name}.greater", output=defined)
    guarded = ir.val(f"{name}.guarded", ir.DataType.FLOAT, shape)
    return before.op("Where", [defined, quotient, zero], name=f"{name}.where", output=guarded)


def _renew(canonical: Canonical, taken: Mapping[ir.Value, ir.Value]) -> Canonical:
    """Return a canonical softmax with the values that have taken the place of others since."""
    mask = canonical.mask
    return replace(
        canonical,
        scores=taken.get(canonical.scores, canonical.scores),
        mask=None if mask is None else replace(mask, condition=taken.get(mask.condition, mask.condition)),
    )


def uses_mask(canonical: Canonical) -> bool:
    """Return whether the mask is the method's, and not in the scores."""
    return canonical.mask is not None and (canonical.mask.total or leaves_scores(canonical.site.masked_row))


def _write_valid(mask: Mask, tape: Tape) -> ir.Value:
    if mask.valid_when:
        return mask.condition
    name = mask.condition.name
    valid = ir.val(f"{name}.valid", shape=mask.condition.shape, type=mask.condition.type)
    return tape.op("Not", [mask.condition], name=f"{name}.not", output=valid)


def owners(model: ir.Model, node: ir.Node) -> list[ir.Function]:
    """Return the function that a node lies in, if it does in one."""
    return [f for f in model.functions.values() if any(n is node for n in f.all_nodes())]


PASS = PassEntry("replace", Replace, "Put a method's function in the place of each canonical softmax")
