"""ONNX operators that softq imports itself, one file for each kind.

Each file has its `CONVERTERS` by operator; one of another domain than the default one stands behind its name:
`com.microsoft::MatMulNBits`. A converter that returns None leaves the node to TVM.
What no built model has stands in `REFUSED` with the reason, if a file has one; `DOMAIN::*` is all of a domain.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from softq.compiler.frontend.onnx_node import Converter


@cache
def converters() -> Mapping[str, Converter]:
    """Return the converter of each operator, as the files of this folder have them."""
    found: dict[str, Converter] = {}
    owner: dict[str, str] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for operator, converter in module.CONVERTERS.items():
            assert operator not in found, f"{operator} is in {owner[operator]} and {info.name}"
            found[operator], owner[operator] = converter, info.name
    return found


def full_name(domain: str, operator: str) -> str:
    """Return the name by which a converter is found."""
    return operator if domain in ("", "ai.onnx") else f"{domain}::{operator}"


@cache
def refused() -> Mapping[str, str]:
    """Return why there is no form of an operator, or of a domain's operators, for all that this folder's files name."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {operator: why for module in modules for operator, why in getattr(module, "REFUSED", {}).items()}
