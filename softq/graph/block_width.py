"""How wide the blocks of channels are that a model was saved with: what the file tells, else what is read here."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from onnx import parser

from softq.errors import RefusalError
from softq.graph.block_bodies import DOMAIN, WIDTHS
from softq.graph.channel_blocks import WAY_OUT, Blocks, Convolution
from softq.graph.queries import node_label


@dataclass(frozen=True)
class Width:
    """How many channels a block has.

    Attributes:
        channels: The number.
        proved: Whether the model shows it, or no other would make a difference.
    """

    channels: int
    proved: bool


def find_width(blocks: Blocks) -> Width:
    """Return how wide the blocks of a model are.

    Three things tell: numbers of channels that fill blocks of one width only, Reshapes that make blocks an axis, and
    padding, which is zeros at the end of the weights in one of the orders and scattered in the other. Where none does,
    the model means what onnxruntime on this machine takes it for.

    Raises:
        RefusalError: the model contradicts itself, or onnxruntime on this machine has no blocks.
    """
    fitting = [width for width in WIDTHS if blocks.fit(width)]
    if not fitting:
        name = node_label(blocks.nodes[0])
        raise RefusalError(f"the channels around {DOMAIN} {name!r} fill blocks of no width: {WAY_OUT}")
    if len(fitting) > 1:
        # Weights that are zero without being padding show nothing: fewer of them is no proof.
        clean = [width for width in fitting if not any(_stray_zeros(one, width) for one in blocks.convolutions)]
        fitting = clean or fitting
    if len(fitting) == 1:
        return Width(fitting[0], True)
    if all(_reads_equal(one, fitting) for one in blocks.convolutions):
        return Width(fitting[-1], True)
    return Width(width_here(), False)


def describe(width: Width) -> list[str]:
    """Return what a user should know of a width."""
    if width.proved:
        return []
    return [
        f"the model has channels in blocks of onnxruntime's (ORT_ENABLE_ALL) and does not say how wide; "
        f"taken as {width.channels}, as onnxruntime reads it on this machine; saved on another processor it may mean "
        f"something else: {WAY_OUT}"
    ]


def _stray_zeros(convolution: Convolution, width: int) -> int:
    """Return how many weights are zero that are not of channels at the end of which all are."""
    zero = convolution.unpack(width) == 0
    outputs, inputs = (np.flatnonzero(~zero.all(axis=axes)) for axes in ((1, 2, 3), (0, 2, 3)))
    return int(zero[: outputs.max(initial=-1) + 1, : inputs.max(initial=-1) + 1].sum())


def _reads_equal(convolution: Convolution, widths: list[int]) -> bool:
    first, *rest = (convolution.unpack(width) for width in widths)
    return all(np.array_equal(first, other, equal_nan=True) for other in rest)


@functools.cache
def width_here() -> int:
    """Return how wide onnxruntime's blocks are on this machine.

    Raises:
        RefusalError: it has none.
    """
    import onnxruntime

    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18, "{DOMAIN}": 1]>
        g (float[1, 8, 1, 1] x) => (float[1, C, 1, 1] y) {{ y = {DOMAIN}.ReorderInput (x) }}""")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": np.zeros((1, 8, 1, 1), np.float32)})[0]).shape[1]
    except Exception as error:  # onnxruntime's own kinds share no base
        raise RefusalError(
            f"the model has channels in blocks, of which onnxruntime on this machine has none: {WAY_OUT}"
        ) from error
