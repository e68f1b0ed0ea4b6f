"""Writing into a model what a profile's rules ask for: operators opened, rows on the last axis, types, codes.

What the softmax computes stays: an operator is opened into the Softmax and the products that it is made of, a softmax
over another axis gets a Transpose on either side, queries are multiplied instead of scores, and the mean key goes from
the keys whose codes are written. Operands, scores and weights become codes and numbers again by QuantizeLinear and
DequantizeLinear; what was there of weights stays behind these.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from softq.errors import InputError, RefusalError, UsageError
from softq.forms.matching.guards import ISNAN_WHERE, look_behind
from softq.graph.edits import take_over
from softq.graph.queries import graph_of, is_op
from softq.graph.rewriter import Rewriter
from softq.graph.view import ModelView
from softq.passes import PASSES
from softq.passes.locate import locate
from softq.passes.normalize import Normalize
from softq.passes.raise_opset import RaiseOpset
from softq.passes.rewriting.attention_regions import NotFusedError, Region, find_products
from softq.passes.rewriting.tensor_codes import Codes
from softq.passes.smooth_keys import smooth
from softq.profiles.checks import Between, Check, Dtype, Encoding, Output, Pattern, Products
from softq.profiles.exponentials import write_exponentials
from softq.profiles.factors import move_factor
from softq.profiles.narrowing import NARROW, narrow
from softq.profiles.operands import bring_codes_close, code, operands_without_codes
from softq.profiles.ranges import Ranges, Wanted, find_codes
from softq.profiles.reading import FoundEncoding, SiteView, read_sites
from softq.profiles.schema import Rule
from softq.site import META_KEY, Site

_MARK = "softq.profiles.site"
"""Key under which the id that a site had at first is left in the meta of its node."""

_OPSETS = {"uint8": 10, "int8": 10, "uint16": 21, "int16": 21, "float8e4m3fn": 19}
"""The version of the default domain from which on QuantizeLinear gives such codes."""

_NEVER = 1 << 16
_INITIALIZERS_ALONE = 4
"""The version of ONNX's format from which on an initializer need not be an input."""

_NARROW_SCALES = 19
"""The version of the default domain from which on QuantizeLinear takes float16 with a scale of float16."""


_FOLDING = ("infer-shapes", "drop-no-ops", "fold-shapes", "fold-constants", "drop-unused")

C = TypeVar("C", bound=Check)


@dataclass(frozen=True)
class Need:
    """What is written at a site.

    Attributes:
        opens: Whether it is opened, and brought to the last axis.
        rules: The rules that hold for it; what they ask for and it has not is written.
    """

    opens: bool
    rules: tuple[Rule, ...]

    def unmet(self, view: SiteView, kind: type[C]) -> Iterator[C]:
        """Yield the checks of a kind that a site does not meet."""
        for rule in self.rules:
            if isinstance(rule.check, kind) and rule.check.ask(view).met is False:
                yield rule.check


def mark(model: ir.Model) -> None:
    """Leave each site's id at its node, by which it is found after nodes were rewritten."""
    for view in read_sites(model):
        view.node.meta[_MARK] = view.site.id


def find_marked(model: ir.Model, views: Sequence[SiteView]) -> dict[str, SiteView]:
    """Return the sites of a model that was rewritten, by the ids that they had at first."""
    return {str(view.node.meta[_MARK]): view for view in views if _MARK in view.node.meta}


def write(model: ir.Model, needs: Mapping[str, Need], ranges: Ranges, *, computes: bool) -> bool:
    """Write what sites need, and return whether anything was written; sites that cannot be opened stay.

    Args:
        model: The model, with marks.
        needs: What to write, by the id that a site had when it was marked.
        ranges: Gives the ranges of the tensors that become codes.
        computes: Whether scales that a rule lets the model compute are to be computed.
    """
    modified = _open(model, [key for key, need in needs.items() if need.opens])
    modified |= _raise(model, needs)
    wanted: list[Wanted] = []
    for act in (_move_factor, _smooth, _narrow, _bring_close):
        modified |= _everywhere(model, needs, act)

    def want(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
        wanted.extend(_wanted(rewriter, key, view, need, computes))

    _everywhere(model, needs, want)
    known = ranges(model, wanted) if wanted else {}

    def code_operands(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
        for rule in need.unmet(view, Products):
            for _, node, position in operands_without_codes(view, _region(view), rule):
                dtype = _choose(rewriter, node, rule.codes)
                if dtype is not None:
                    code(rewriter, node, position, dtype, known, scores=False)

    def code_scores(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
        for rule in need.unmet(view, Dtype):
            dtype = _choose(rewriter, view.node, rule.codes)
            if dtype is not None and _gets_codes(rewriter, view, rule):
                code(rewriter, view.node, 0, dtype, known, scores=True)

    def code_results(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
        for rule in need.unmet(view, Products):
            second = _region(view).second
            dtype, found = _choose(rewriter, second, rule.codes), known.get(_name_of(second.outputs[0]))
            if dtype is not None and found is not None and rule.lacks_result(view):
                scale, codes = find_codes(found, dtype, centred=True)
                _code(rewriter, second, FoundEncoding(dtype.name.lower(), scale, codes.zero))

    for act in (code_results, code_operands, code_scores, _code_weights):
        modified |= _everywhere(model, needs, act)
    return modified


def _raise(model: ir.Model, needs: Mapping[str, Need]) -> bool:
    """Raise a model to the version that has the codes and scales which are asked for; one that cannot be stays."""
    wanted = 0

    def look(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
        nonlocal wanted
        asked = [one.codes for one in need.unmet(view, Products)]
        asked += [one.codes for one in need.unmet(view, Dtype) if _gets_codes(rewriter, view, one)]
        asked += [tuple(code.dtype for code in one.encodings) for one in need.unmet(view, Output)]
        versions = [min(_OPSETS.get(name, _NEVER) for name in names) for names in asked if names]
        versions += [_NARROW_SCALES for rule in need.unmet(view, Between) if NARROW.name.lower() in rule.floats]
        wanted = max(wanted, *versions, 0)

    _everywhere(model, needs, look)
    if not model.opset_imports.get("", _NEVER) < wanted < _NEVER:
        return False
    with contextlib.suppress(RefusalError, InputError):
        RaiseOpset(target=wanted)(model)
        # Below 4 an initializer is also an input.
        if model.ir_version >= _INITIALIZERS_ALONE:
            least = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", wanted)])
            model.ir_version = max(model.ir_version, least)
        return True
    return False


Act = Callable[[Rewriter, str, SiteView, Need], None]


def _everywhere(model: ir.Model, needs: Mapping[str, Need], act: Act) -> bool:
    """Do something at each softmax that needs it, and return whether the model was changed."""
    rewriter = Rewriter(model)
    for key, view in find_marked(model, read_sites(model)).items():
        if key in needs and is_op(view.node, "Softmax"):
            act(rewriter, key, view, needs[key])
    return rewriter.modified


def _region(view: SiteView) -> Region:
    return find_products(view.node, coded=True)


def _type(name: str) -> ir.DataType:
    return ir.DataType[name.upper()]


def _opset(rewriter: Rewriter, node: ir.Node) -> int:
    return rewriter.facts.view.container_of(node).opset


def _choose(rewriter: Rewriter, node: ir.Node, names: Sequence[str]) -> ir.DataType | None:
    """Return the first type of codes that QuantizeLinear gives in the version of the model; None if there is none."""
    opset = _opset(rewriter, node)
    return next((_type(name) for name in names if opset >= _OPSETS.get(name, _NEVER)), None)


def _move_factor(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
    if next(need.unmet(view, Pattern), None) is not None:
        move_factor(rewriter, view.node)


def _narrow(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
    rules = [rule for rule in need.unmet(view, Between) if NARROW.name.lower() in rule.floats]
    if rules and _opset(rewriter, view.node) >= _NARROW_SCALES:
        narrow(rewriter, _region(view))


def _bring_close(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
    for rule in need.unmet(view, Products):
        region = _region(view)
        assert region.first is not None, "its products are seen"
        for node, position in ((region.first, 0), (region.first, 1), (region.second, 1)) if rule.direct else ():
            bring_codes_close(rewriter, node, position)


def _smooth(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
    for rule in need.unmet(view, Products):
        missing = {name for name, _, _ in operands_without_codes(view, _region(view), rule)}
        if rule.smooth and "keys" in missing:
            smooth(rewriter, _region(view))


def _wanted(rewriter: Rewriter, key: str, view: SiteView, need: Need, computes: bool) -> Iterator[Wanted]:
    for rule in need.unmet(view, Products):
        if not (computes and rule.computed):
            for _, node, position in operands_without_codes(view, _region(view), rule):
                yield Wanted(key, _name_of(node.inputs[position]))
        if rule.lacks_result(view):
            yield Wanted(key, _name_of(_region(view).second.outputs[0]))
    for rule in need.unmet(view, Dtype):
        if _gets_codes(rewriter, view, rule):
            yield Wanted(key, _name_of(view.node.inputs[0]), scores=True)


def _name_of(value: ir.Value | None) -> str:
    assert value is not None and value.name, "operands have names"  # noqa: PT018
    return value.name


def _gets_codes(rewriter: Rewriter, view: SiteView, rule: Dtype) -> bool:
    """Say whether scores that have no codes get some: a softmax of floats that a rule wants on integers."""
    kinds = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    return view.codes is None and bool(rule.codes) and rewriter.facts.dtype(view.node.inputs[0]) in kinds


def _open(model: ir.Model, ids: Sequence[str]) -> bool:
    if not ids:
        return False
    try:
        sites = locate(model, select=[glob.escape(key) for key in ids], rewrites=())
    except UsageError as error:
        raise AssertionError("sites have the ids that they were marked with") from error
    taken = [site for site in sites if site.takes_method]
    if not taken:
        return False
    modified = Normalize()(model).modified
    for node in ModelView(model).nodes:
        site = node.meta.get(META_KEY)
        if isinstance(site, Site):
            node.meta[_MARK] = site.id
    if modified:
        _move_codes(model)
        _tidy(model, _FOLDING if any(site.operator != "Softmax" for site in taken) else ("drop-unused",))
    return modified


def _tidy(model: ir.Model, names: Sequence[str]) -> None:
    """Run passes until none changes anything: what computes sizes in an operator that was opened becomes constants."""
    while any([PASSES.get(name).factory()(model).modified for name in names]):  # noqa: C419
        pass


def _move_codes(model: ir.Model) -> None:
    """Move the elements of codes, where those of the numbers that are made of them are moved in front of a softmax."""
    rewriter = Rewriter(model)
    for node in [node for node in rewriter.facts.view.nodes if is_op(node, "Softmax") and _MARK in node.meta]:
        bring_codes_close(rewriter, node, 0)


def _code_weights(rewriter: Rewriter, key: str, view: SiteView, need: Need) -> None:
    encoding = _missing(view, need)
    if encoding is None or not _can_code(view, encoding, rewriter):
        return
    written = encoding.to_write()
    assert written is not None and written.scale is not None, "only such are chosen"  # noqa: PT018
    if encoding.normalized:
        _code(rewriter, view.node, written)
        return
    try:
        write_exponentials(rewriter, _region(view), Codes(_type(written.dtype), 0), written.scale)
    except NotFusedError:
        return


def _missing(view: SiteView, need: Need) -> Encoding | None:
    """Return the codes that a rule asks the weights to become; None where none are missing."""
    for check in need.unmet(view, Output):
        fitting = [one for one in check.fitting(view) if one.to_write() is not None]
        like = [one for one in fitting if view.output is not None and one.dtype == view.output.dtype]
        return next(iter((*like, *fitting)), None)
    return None


def _can_code(view: SiteView, encoding: Encoding, rewriter: Rewriter) -> bool:
    if not is_op(view.node, "Softmax"):
        return False
    opset = rewriter.facts.view.container_of(view.node).opset
    dtype = rewriter.facts.dtype(view.node.outputs[0])
    if dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16) or opset < _OPSETS.get(encoding.dtype, _NEVER):
        return False
    if dtype is ir.DataType.FLOAT16 and opset < _NARROW_SCALES:
        return False
    # Codes have no NaN, which this guard looks for; exponentials are made behind it.
    return not encoding.normalized or look_behind(view.node.outputs[0], rewriter.facts).guard != ISNAN_WHERE


def _code(rewriter: Rewriter, node: ir.Node, written: FoundEncoding) -> None:
    """Put codes, and the numbers that they stand for, behind a node, in front of whatever reads it."""
    weights = node.outputs[0]
    dtype, shape = rewriter.facts.dtype(weights), rewriter.facts.shape(weights)
    assert dtype is not None, "it was asked for"
    name = weights.name or "weights"
    scale, zero = _numbers(rewriter, node, written, dtype, name)
    quantize = ir.node("QuantizeLinear", [weights, scale, zero], name=rewriter.fresh(f"{name}/quantize"))
    decode = ir.node("DequantizeLinear", [quantize.outputs[0], scale, zero], name=rewriter.fresh(f"{name}/decode"))
    codes, decoded = quantize.outputs[0], decode.outputs[0]
    codes.name, codes.type = rewriter.fresh(f"{name}.codes"), ir.TensorType(ir.DataType[written.dtype.upper()])
    decoded.type = ir.TensorType(dtype)
    if shape is not None:
        codes.shape = ir.Shape(shape)
        decoded.shape = ir.Shape(shape)
    if weights.is_graph_output():
        take_over(weights, decoded, except_by=quantize)
        weights.name = rewriter.fresh(f"{name}.weights")
    else:
        decoded.name = rewriter.fresh(f"{name}.decoded")
        for user, position in list(weights.uses()):
            if user is not quantize:
                user.replace_input_with(position, decoded)
    graph_of(node).insert_after(node, [quantize, decode])
    rewriter.modified = True


def _numbers(
    rewriter: Rewriter, node: ir.Node, written: FoundEncoding, dtype: ir.DataType, name: str
) -> tuple[ir.Value, ir.Value]:
    assert written.scale is not None and written.zero_point is not None, "both are written"  # noqa: PT018
    kind = ir.DataType[written.dtype.upper()]
    scale = rewriter.add_number(node, written.scale, dtype, f"{name}.scale")
    point = ir.Tensor(np.array(written.zero_point).astype(kind.numpy()), dtype=kind)
    return scale, rewriter.add(node, "Constant", [], f"{name}.zero", kind, (), value=point)
