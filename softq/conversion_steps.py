"""The passes that convert a model."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass

from softq.graph.facts import Facts
from softq.passes import PASSES
from softq.passes.defer_logarithm import DeferLogarithm
from softq.passes.defer_normalizer import DeferNormalizer
from softq.passes.fuse_attentions import FuseAttentions
from softq.passes.inline_functions import InlineFunctions
from softq.passes.normalize import Normalize
from softq.passes.quantize_attentions import QuantizeAttentions
from softq.passes.replace import Replace
from softq.plans import SitePlan


def make_steps(
    planned: Mapping[str, SitePlan],
    rewrites: Mapping[str, str],
    max_length: int,
    facts: Facts | None = None,
    *,
    inline: bool = False,
    fuse_attention: bool = False,
    qdq: bool = False,
    expose: bool = False,
) -> list[ir.passes.InPlacePass]:
    """Return the passes that convert a located model, in their order.

    Args:
        planned: What each site gets, by id.
        rewrites: Names of the passes that make sites superfluous, by the site's id.
        max_length: Greatest length of a row that the proofs cover.
        facts: Facts of the model as it is then; None to ask anew.
        inline: Write plain operators instead of functions.
        fuse_attention: Write attentions as functions.
        qdq: Write the products of attentions on 8-bit integers.
        expose: Make what the options decide inputs of the graph.
    """
    exact = [PASSES.get(name).factory() for name in sorted(set(rewrites.values()))]
    replaced = Replace(plan=planned, max_length=max_length, expose_parameters=expose)
    wanted = ((fuse_attention, FuseAttentions), (qdq, QuantizeAttentions), (inline, InlineFunctions))
    plain = [make() for asked, make in wanted if asked]
    # A model may hold any name, those that the passes give too.
    # What was known of the model holds as long as no pass has changed it.
    normalize = Normalize(None if exact else facts)
    return [*exact, normalize, replaced, DeferLogarithm(), DeferNormalizer(), *plain, NameFixPass()]
