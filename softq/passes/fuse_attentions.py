"""Write each attention around a replaced softmax as a function, which a runtime may have an operator for."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.edits import remove_if_unused
from softq.graph.facts import Facts
from softq.graph.queries import graph_of, is_small, node_label
from softq.graph.view import ModelView
from softq.passes import PassEntry
from softq.passes.replace import FUNCTION_DOMAIN
from softq.passes.rewriting.attention_function import write_function
from softq.passes.rewriting.attention_regions import NotFusedError, Region, find_region
from softq.site import META_KEY

REFUSED_KEY = "softq.not_fused"
"""Key under which `fuse-attentions` leaves, in the meta of a model, why attentions stayed: sentences by site."""


class FuseAttentions(ir.passes.InPlacePass):
    """Puts a function of the domain `softq` in the place of each attention whose softmax was replaced.

    Its body is the nodes that it takes the place of, a call of the softmax's row function among them, so that results
    are the same. It takes Q, K, V (or scores and V), masks and the row function's numbers and tables.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Write the functions; `modified` says whether there are any."""
        refused: dict[str, str] = {}
        modified, view = False, ModelView(model)
        facts, places = Facts(view), {node: place for place, node in enumerate(view.nodes)}
        for call in [node for node in view.nodes if _calls_rows(node, model)]:
            if isinstance(call.graph, ir.Function):
                refused[_site(call)] = "it stands in a function of the model"
                continue
            try:
                _fuse(model, find_region(call, facts), places)
                modified = True
            except NotFusedError as error:
                refused[_site(call)] = str(error)
        model.meta[REFUSED_KEY] = refused
        return ir.passes.PassResult(model, modified)


def calls_row_function(function: ir.Function) -> bool:
    """Say whether a function of softq's domain is an attention: one that calls a row function."""
    return function.domain == FUNCTION_DOMAIN and any(node.domain == FUNCTION_DOMAIN for node in function)


def _calls_rows(node: ir.Node, model: ir.Model) -> bool:
    function = model.functions.get(node.op_identifier()) if node.domain == FUNCTION_DOMAIN else None
    owner = node.graph
    inside = isinstance(owner, ir.Function) and owner.domain == FUNCTION_DOMAIN
    return function is not None and not inside and not calls_row_function(function)


def _site(call: ir.Node) -> str:
    return call.metadata_props.get(META_KEY, node_label(call))


def _fuse(model: ir.Model, region: Region, places: dict[ir.Node, int]) -> None:
    """Put the function of a region in its place; places say in which order nodes stand."""
    graph, nodes = graph_of(region.call), sorted(region.nodes, key=places.__getitem__)
    given = [value for value in region.inputs() if value in region.call.inputs[1:] or not is_small(value)]
    function = write_function(model, region, nodes, given)
    model.functions.setdefault(function.identifier(), function)
    old = region.result
    new = ir.val(old.name, shape=old.shape, type=old.type)
    node = ir.Node(
        FUNCTION_DOMAIN, function.name, given, outputs=[new], name=f"{node_label(region.call)}.attention",
        metadata_props=region.call.metadata_props,
    )  # fmt: skip
    places[node] = places[nodes[-1]]
    graph.insert_after(nodes[-1], node)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    read = {v: None for n in region.nodes for v in n.inputs if v is not None and v.producer() not in region.nodes}
    constants = [value.producer() for value in read if value not in given]
    graph.remove(nodes, safe=True)
    remove_if_unused(*constants)
    for value in read:
        idle = not (value.uses() or value.is_graph_input() or value.is_graph_output())
        if value.is_initializer() and idle and value.graph is not None:
            value.graph.initializers.pop(str(value.name))


PASS = PassEntry("fuse-attentions", FuseAttentions, "Write attentions around replaced softmaxes as functions")
