"""Traced modules whose mode can be changed: torch's own refuse `train()` and `eval()`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule, Node

from softq.errors import UsageError

_FLAGS = {"train": False, "training": False, "dropout_p": 0.0}
"""Arguments of torch's operators by which they know the mode, with what they are in evaluation."""

TRACED_IN_TRAINING = "softq_traced_in_training"
"""Key of the module's `meta`: whether that was its mode when it was traced."""

_KEY = "softq_mode_{}"
"""Where a node keeps what an argument was when it was traced."""


class TracedModule(GraphModule):
    """A traced module that knows both modes if it was traced in training; parameters have the names they had.

    What is chosen by the mode in Python code (`if self.training`) is as it was traced.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError("a traced module cannot be pickled, since torch's own cannot; save its state_dict()")

    def train(self, mode: bool = True) -> TracedModule:
        """Set the mode of every operator and module in the trace.

        Raises:
            UsageError: it is to be training, and the module was traced in evaluation.
        """
        if mode and not self.meta[TRACED_IN_TRAINING]:
            raise UsageError("the module was traced in evaluation; for training, convert it after train()")
        for node, at, name in list(_flags(self)):
            own = node.meta.setdefault(_KEY.format(name), node.args[at] if isinstance(at, int) else node.kwargs[at])
            value = own if mode else _FLAGS[name]
            node.update_arg(at, value) if isinstance(at, int) else node.update_kwarg(at, value)
        for child in self.children():
            child.train(mode)
        self.training = mode
        self.recompile()
        return self


def _flags(module: GraphModule) -> Iterator[tuple[Node, int | str, str]]:
    """Yield the arguments that say the mode, by their place or name in the call."""
    for node in module.graph.nodes:
        schema: Any = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        for at, argument in enumerate(schema.arguments):
            if argument.name in _FLAGS and (at < len(node.args) or argument.name in node.kwargs):
                yield node, at if at < len(node.args) else argument.name, argument.name
