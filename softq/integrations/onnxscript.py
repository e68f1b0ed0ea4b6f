"""Rewrite rules of onnxscript that put a method's function in the place of a bare Softmax.

For rewriters that take rules and nothing else. They see one node at a time: no mask is lifted, no form but the operator
is recognised, and a row of scores that are all -inf gives what the method gives there. `softq.SoftqPass` does all that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult, RewriteRule, RewriteRuleSet

from softq.errors import UsageError
from softq.forms.matching.operators import FLOATS, NEWEST_OPSET
from softq.graph.queries import is_op
from softq.graph.view import ModelView
from softq.methods import DEFAULT_METHOD, METHODS, OptionValue
from softq.passes.normalize import MINIMUM_OPSET
from softq.passes.replace import FUNCTION_DOMAIN, PAIR_KEY, Pair, add_function
from softq.passes.rewriting.calls import Call, CallContext, make_call
from softq.plans import DEFAULT_MAX_LENGTH, SitePlan, check_max_length

NAME = "softq-softmax"
"""Name of the rule, which onnxscript leaves at the nodes that it writes."""


def softmax_rules(
    method: str = DEFAULT_METHOD,
    *,
    bits: int | None = None,
    settings: dict[str, OptionValue] | None = None,
    everywhere: bool = False,
    max_length: int = DEFAULT_MAX_LENGTH,
) -> RewriteRuleSet:
    """Return rules for `apply_to_model`, `onnxscript.rewriter.rewrite` and `RewritePass`, or to be joined with others.

    Replaced is a Softmax over the last axis, opset 18 or later, of float32, float16 or bfloat16 scores. The pass
    `softq.passes.defer_normalizer.DeferNormalizer` behind them takes the division behind the product with V.

    Args:
        method: Name of a method that may take a softmax's place.
        bits: Short for the setting `bits`.
        settings: Options of the method by name; those that are fitted on data need a number.
        everywhere: Replace every such Softmax, and not only those whose weights are multiplied with values.
        max_length: Greatest length of a row that the proof covers.

    Raises:
        UsageError: the method or an option is unknown, is to be fitted, or the method is no drop-in; or `max_length` is
            not allowed.
    """
    check_max_length(max_length)
    chosen = METHODS.open(method)
    if not chosen.drop_in:
        raise UsageError(f"{method} is another function than the softmax; rules take methods that are drop-ins")
    given = dict(settings or {}) | ({} if bits is None else {"bits": bits})
    options = chosen.resolve(chosen.configure(given), False)
    if options.fitted:
        raise UsageError(f"{method}: {next(iter(options.fitted))} is fitted on data; rules need a number for it")
    planned = SitePlan(NAME, "", method, options.to_json(), {})
    return RewriteRuleSet([_SoftmaxRule(planned, everywhere, max_length)])


class _SoftmaxRule(RewriteRule):
    """One rule: the function goes into the model when a call of it is written."""

    def __init__(self, planned: SitePlan, everywhere: bool, max_length: int) -> None:
        super().__init__(_pattern, self._rewrite, self._check, name=NAME)
        self._planned, self._everywhere, self._max_length = planned, everywhere, max_length
        # Names and arrays are those of every opset.
        self._call = self._make_call(MINIMUM_OPSET)

    def try_rewrite(self, model: ir.Model, graph_or_function: ir.Graph | ir.Function, node: ir.Node, **how: Any) -> Any:
        """Return what takes a matching node's place, None for others."""
        found = super().try_rewrite(model, graph_or_function, node, **how)
        if found is not None and how.get("tracer") is None:
            add_function(model, self._make_call(model.opset_imports[""]).function)
            model.ir_version = max(model.ir_version, 8)  # the first version that knows functions
        return found

    def _make_call(self, opset: int) -> Call:
        return make_call(self._planned, CallContext(False, opset, self._max_length), exposed=False)

    def _check(self, context: MatchContext, scores: ir.Value, weights: ir.Value) -> MatchResult:
        node, opset = weights.producer(), context.model.opset_imports.get("", 0)
        assert node is not None, "the pattern has it"
        inside = next(each for each in ModelView(context.model).containers if each.graph is node.graph)
        given, shape = node.attributes.get("axis"), scores.shape
        axis = -1 if given is None or given.is_ref() else given.as_int()
        length = shape[-1] if shape is not None and len(shape) else None
        refusal = ""
        if inside.function is not None and inside.function[0] == FUNCTION_DOMAIN:
            refusal = "it is in a function of softq"
        elif not MINIMUM_OPSET <= opset <= NEWEST_OPSET:
            refusal = f"the model has opset {opset}; allowed is {MINIMUM_OPSET} to {NEWEST_OPSET}"
        elif inside.opset != opset:
            refusal = f"it is in a function of opset {inside.opset}; the model has opset {opset}"
        elif given is not None and given.is_ref():
            refusal = "its axis is an attribute of the function that it is in"
        elif axis != -1 and (shape is None or axis != len(shape) - 1):
            refusal = f"it reduces axis {axis}, which is not known to be the last"
        elif scores.dtype not in FLOATS:
            refusal = f"its scores are of type {scores.dtype}"
        elif isinstance(length, int) and length > self._max_length:
            refusal = f"its rows have {length} elements; the proof covers {self._max_length}"
        elif not self._everywhere and not any(
            is_op(user, "MatMul") and user.inputs[0] is weights for user in weights.consumers()
        ):
            refusal = "its weights are not multiplied with values"
        return MatchResult().fail(refusal, node) if refusal else MatchResult()

    def _rewrite(self, op: Any, scores: ir.Value, weights: ir.Value) -> ir.Value:
        # Functions know no initializers: rules that add some are skipped there.
        given = [op.op("Constant", value=ir.tensor(array)) for array in self._call.arrays.values()]
        names = [str(output.name) for output in self._call.function.outputs]
        made = op.op(self._call.function.name, scores, *given, _domain=FUNCTION_DOMAIN, _version=1, _outputs=len(names))
        outputs = dict(zip(names, made if isinstance(made, Sequence) else [made], strict=True))
        for output in outputs.values():
            output.dtype = ir.DataType.FLOAT
        result = outputs.get("probabilities")
        if result is None:
            result = op.op("Div", outputs["weights"], outputs["normalizer"])
            exponential = METHODS.get(self._planned.method).logarithms
            result.meta[PAIR_KEY] = Pair(outputs["weights"], outputs["normalizer"], False, exponential, None)
        if scores.dtype is not ir.DataType.FLOAT:
            result = op.op("Cast", result, to=int(scores.dtype or ir.DataType.FLOAT))
        return result


def _pattern(op: Any, scores: ir.Value) -> ir.Value:
    return op.Softmax(scores, _outputs=["weights"])
