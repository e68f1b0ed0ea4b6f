"""How a node of each operator is drawn for a random graph, one file for each kind.

Each file has its `OPERATORS` by name; one of onnxruntime's own stands behind its domain: `com.microsoft::FusedMatMul`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from tests.random_graph import Draw


def _collect() -> Mapping[str, Draw]:
    found: dict[str, Draw] = {}
    for info in pkgutil.iter_modules(__path__):
        operators: Mapping[str, Draw] = importlib.import_module(f"{__name__}.{info.name}").OPERATORS
        assert not found.keys() & operators.keys(), info.name
        found |= operators
    return found


OPERATORS = _collect()
"""How a node of each operator is drawn."""

OLD = {
    name: OPERATORS[name]
    for name in (
        *("Upsample", "Upsample", "Scatter", "Scatter", "Abs", "Neg", "Exp", "Sin", "Tanh", "Sigmoid", "LeakyRelu"),
        *("Elu", "Erf", "Add", "Sub", "Mul", "Transpose", "Flatten", "Concat", "MatMul", "Shape", "Identity", "Conv"),
    )
}
"""Those for operator sets of long ago: operators that are no more, and some whose nodes were written the same."""
