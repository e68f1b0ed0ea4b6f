"""The row functions that a converted model calls, wherever the calls stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from softq.errors import RefusalError
from softq.modelfile import as_model
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.infer_shapes import InferShapes
from softq.passes.replace import FUNCTION_DOMAIN
from softq.provenance import RowFunction, row_functions
from softq.site import META_KEY


@dataclass(frozen=True)
class FoundFunctions:
    """The row functions of a model.

    Attributes:
        functions: What each computes, by name.
        sites: Ids of the softmaxes that each computes, by its name.
    """

    functions: Mapping[str, RowFunction]
    sites: Mapping[str, Sequence[str]]


def find_row_functions(model: ir.Model) -> FoundFunctions:
    """Return the functions of softq's domain that a model calls; it is not changed.

    Raises:
        RefusalError: there is none, or one is not that of the plan in the model's metadata.
    """
    opened = as_model(model)
    if ExpandFunctions()(opened).modified:  # Calls of softq's functions may stand in the model's own.
        InferShapes()(opened)
    found = {name: function for (_, name), function in row_functions(opened).items()}
    if not found:
        raise RefusalError(
            f"the model calls no function of the domain {FUNCTION_DOMAIN}, for which there could be operators; "
            "convert it first, without --inline"
        )
    sites: dict[str, list[str]] = {}
    for node in opened.graph.all_nodes():
        if node.domain == FUNCTION_DOMAIN:
            sites.setdefault(node.op_type, []).append(node.metadata_props.get(META_KEY, node.name or ""))
    return FoundFunctions(found, sites)
