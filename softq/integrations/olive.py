"""Olive's workflows with softq: a pass of its own, and a surgeon for its pass GraphSurgeries.

Importing this file registers the surgeon. The pass is found by the package configuration that a workflow is run with,
which takes the place of Olive's own: `package_config` is that with softq's pass among the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.onnx.common import get_external_data_config, ir_model_to_olive_model
from olive.passes.onnx.graph_surgeries import Surgeon
from olive.passes.pass_config import PassConfigParam

from softq.conversion import convert
from softq.conversion_pass import SoftqPass
from softq.methods import DEFAULT_METHOD, OptionValue


class Softq(Pass):
    """Replaces softmaxes as `softq.convert` does, whose arguments are its configuration."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        del accelerator_spec
        return {
            "method": PassConfigParam(type_=str, default_value=DEFAULT_METHOD, description="Name of the method."),
            "bits": PassConfigParam(type_=int, default_value=None, description="Short for the setting `bits`."),
            "settings": PassConfigParam(type_=dict[str, Any], default_value=None, description="Options of the method."),
            "options": PassConfigParam(
                type_=dict[str, Any], default_value=None, description="Others of softq.convert: sites, qdq, plan, ..."
            ),
            **get_external_data_config(),
        }

    def _run_for_config(self, model: ONNXModelHandler, config: Any, output_model_path: str) -> ONNXModelHandler:
        path = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        made = convert(
            model.model_path, method=config.method, bits=config.bits, settings=config.settings, **(config.options or {})
        )
        return ir_model_to_olive_model(made.model, path, config)


class SoftqSurgeon(Surgeon):
    """Replaces softmaxes as `softq.convert` does, as one of the surgeries of Olive's pass GraphSurgeries.

    Args:
        method: Name of the method.
        bits: Short for the setting `bits`.
        settings: Options of the method by name.
        options: Others of `softq.convert`.

    Raises:
        UsageError: the method or an option of it is unknown, or a value not allowed.
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        bits: int | None = None,
        settings: dict[str, OptionValue] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._pass = SoftqPass(method, bits=bits, settings=settings, **(options or {}))

    def call_ir(self, model: ir.Model) -> ir.Model:
        """Return the converted model.

        Raises:
            SoftqError: as in `softq.convert`.
        """
        return self._pass(model).model


def package_config() -> dict[str, Any]:
    """Return Olive's own package configuration with the pass Softq: for `--package-config`, written as JSON."""
    with open(OlivePackageConfig.get_default_config_path(), encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    everything = {name: ["*"] for name in ("supported_providers", "supported_accelerators", "supported_precisions")}
    config["passes"][Softq.__name__] = {"module_path": f"{Softq.__module__}.{Softq.__name__}", **everything}
    return config
