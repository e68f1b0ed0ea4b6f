"""The whole conversion as one pass of onnx_ir, for pipelines that were written before softq was known."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from softq.conversion import convert
from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, METHODS, OptionValue
from softq.passes import NOTES_KEY
from softq.plans import check_names

OWN = ("model", "method", "bits", "settings")
"""Arguments of `softq.convert` that are no options of the pass: it is given them in another way."""


class SoftqPass(ir.passes.FunctionalPass):
    """`softq.convert` as a pass: the model that it is given stays, the result's model is the converted one.

    `modified` says whether a softmax was replaced or made superfluous. Warnings are in the model's meta, under
    `softq.passes.NOTES_KEY`. In a `Sequential` errors have the cause that softq raised.

    Args:
        method: Name of the method; `softq.methods.DEFAULT_METHOD` if None.
        bits: Short for the setting `bits`.
        settings: Options of the method by name.
        **options: Others of `softq.convert`: `calibration`, `plan`, `sites`, `all_sites`, `qdq`, `inline`, ...

    Raises:
        UsageError: the method or an option is unknown, or a value not allowed.
    """

    def __init__(
        self,
        method: str | None = None,
        *,
        bits: int | None = None,
        settings: Mapping[str, OptionValue] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _check(options)
        given = dict(settings or {}) | ({} if bits is None else {"bits": bits})
        METHODS.open(DEFAULT_METHOD if method is None else method).configure(given)
        self._options: dict[str, Any] = {**options, "method": method, "settings": given}

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Return the converted model.

        Raises:
            SoftqError: as in `softq.convert`.
        """
        made = convert(model, **self._options)
        if made.warnings:
            made.model.meta[NOTES_KEY] = made.warnings
        return ir.passes.PassResult(made.model, any(site.verdict.action == "convert" for site in made.sites))


def _check(options: Mapping[str, Any]) -> None:
    # Here, because a pipeline may come to the pass late.
    known = [name for name in inspect.signature(convert).parameters if name not in OWN]
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"unknown option {name!r} of softq.convert; there are: {', '.join(known)}")
        if name in ("sites", "masks"):
            check_names(name, value)
