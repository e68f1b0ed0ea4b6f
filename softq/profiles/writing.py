"""Writing into a model what a profile's rules ask for: operators opened, rows on the last axis, codes of the weights.

What the softmax computes stays: an operator is opened into the Softmax and the products that it is made of, a softmax
over another axis gets a Transpose on either side, and queries are multiplied instead of scores. The weights become
codes and numbers again right behind the softmax, by QuantizeLinear and DequantizeLinear with fixed numbers; what was
there stays behind these.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.errors import UsageError
from softq.forms.matching.guards import ISNAN_WHERE, look_behind
from softq.graph.edits import take_over
from softq.graph.queries import constant, graph_of, is_op, producer
from softq.graph.rewriter import Rewriter
from softq.graph.view import ModelView
from softq.passes import PASSES
from softq.passes.locate import locate
from softq.passes.normalize import Normalize
from softq.profiles.checks import Encoding, Output
from softq.profiles.factors import move_factor
from softq.profiles.reading import FoundEncoding, SiteView, read_sites
from softq.profiles.schema import Rule
from softq.site import META_KEY, Site

_MARK = "softq.profiles.site"
"""Key under which the id that a site had at first is left in the meta of its node."""

_OPSETS = {"uint8": 10, "int8": 10, "uint16": 21, "int16": 21, "float8e4m3fn": 19}
"""The version of the default domain from which on QuantizeLinear gives such codes."""

_NARROW_SCALES = 19
"""The version of the default domain from which on QuantizeLinear takes float16 with a scale of float16."""


_FOLDING = ("infer-shapes", "drop-no-ops", "fold-shapes", "fold-constants", "drop-unused")


@dataclass(frozen=True)
class Need:
    """What is written at a site.

    Attributes:
        opens: Whether it is opened, and brought to the last axis.
        moves_factor: Whether what multiplies scores is to multiply queries.
        rules: The rules on softmaxes, of which one may say which codes the weights become.
    """

    opens: bool
    moves_factor: bool
    rules: tuple[Rule, ...]


def mark(model: ir.Model) -> None:
    """Leave each site's id at its node, by which it is found after nodes were rewritten."""
    for view in read_sites(model):
        view.node.meta[_MARK] = view.site.id


def find_marked(model: ir.Model, views: Sequence[SiteView]) -> dict[str, SiteView]:
    """Return the sites of a model that was rewritten, by the ids that they had at first."""
    return {str(view.node.meta[_MARK]): view for view in views if _MARK in view.node.meta}


def write(model: ir.Model, needs: Mapping[str, Need]) -> bool:
    """Write what sites need, and return whether anything was written; sites that cannot be opened stay.

    Args:
        model: The model, with marks.
        needs: What to write, by the id that a site had when it was marked.
    """
    opened = _open(model, [key for key, need in needs.items() if need.opens])
    coded = moved = False
    rewriter = Rewriter(model)
    for key, view in find_marked(model, read_sites(model)).items():
        need = needs.get(key)
        encoding = None if need is None else _missing(view, need)
        if need is not None and need.moves_factor and is_op(view.node, "Softmax"):
            moved |= move_factor(rewriter, view.node)
        if encoding is not None and _can_code(view, encoding, rewriter):
            _code(rewriter, view.node, encoding)
            coded = True
    return opened or coded or moved


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
        move = producer(node.inputs[0], "Transpose")
        decode = None if move is None else producer(move.inputs[0], "DequantizeLinear")
        scale = None if decode is None else constant(decode.inputs[1])
        if move is None or decode is None or scale is None or scale.size != 1:
            continue
        codes, moved = decode.inputs[0], move.outputs[0]
        assert codes is not None, "it is what is decoded"
        name, order = moved.name or "scores", move.attributes["perm"].as_ints()
        dtype, shape = rewriter.facts.dtype(codes), rewriter.facts.shape(moved)
        turned = rewriter.add(node, "Transpose", [codes], f"{name}.codes", dtype, shape, perm=order)
        others = [value for value in decode.inputs[1:] if value is not None]
        number = rewriter.add(node, "DequantizeLinear", [turned, *others], f"{name}.decoded", moved.dtype, shape)
        node.replace_input_with(0, number)


def _missing(view: SiteView, need: Need) -> Encoding | None:
    """Return the codes that a rule asks the weights to become; None where none are missing."""
    for rule in need.rules:
        check = rule.check
        if isinstance(check, Output) and check.ask(view).met is False:
            fitting = [one for one in check.fitting(view) if one.to_write() is not None]
            like = [one for one in fitting if view.output is not None and one.dtype == view.output.dtype]
            return next(iter((*like, *fitting)), None)
    return None


def _can_code(view: SiteView, encoding: Encoding, rewriter: Rewriter) -> bool:
    if not is_op(view.node, "Softmax"):
        return False
    opset = rewriter.facts.view.container_of(view.node).opset
    dtype = rewriter.facts.dtype(view.node.outputs[0])
    if dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16) or opset < _OPSETS.get(encoding.dtype, 99):
        return False
    if dtype is ir.DataType.FLOAT16 and opset < _NARROW_SCALES:
        return False
    # Codes have no NaN, which this guard looks for.
    return look_behind(view.node.outputs[0], rewriter.facts).guard != ISNAN_WHERE


def _code(rewriter: Rewriter, node: ir.Node, encoding: Encoding) -> None:
    written = encoding.to_write()
    assert written is not None, "only such are chosen"
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
