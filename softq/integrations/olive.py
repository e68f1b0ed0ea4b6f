"""Olive's workflows with softq: a pass of its own, and a surgeon for its pass GraphSurgeries.

Importing this file registers the surgeon. The pass is found by the package configuration that a workflow is run with,
which takes the place of Olive's own: `package_config` is that with softq's pass among the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
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
from pydantic import field_validator

from softq.conversion_pass import OWN, SoftqPass
from softq.errors import InputError, UsageError
from softq.methods import DEFAULT_METHOD, OptionValue
from softq.modelfile import data_files, load
from softq.passes import NOTES_KEY
from softq.plans import load_plan
from softq.visible import visible

logger = logging.getLogger(__name__)


class Softq(Pass):
    """Replaces softmaxes as `softq.convert` does, whose arguments are its configuration."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        del accelerator_spec
        return {
            # None by default, because a plan settles the method.
            "method": PassConfigParam(
                type_=str, default_value=None, description=f"Name of the method; without one {DEFAULT_METHOD}."
            ),
            "bits": PassConfigParam(type_=int, default_value=None, description="Short for the setting `bits`."),
            "settings": PassConfigParam(type_=dict[str, Any], default_value=None, description="Options of the method."),
            "options": PassConfigParam(
                type_=dict[str, Any], default_value=None, description="Others of softq.convert: sites, qdq, plan, ..."
            ),
            **get_external_data_config(),
        }

    @classmethod
    def _validators(cls) -> dict[str, Any]:
        return {"read_plan": field_validator("options", mode="before")(_read_plan)}

    def _run_for_config(self, model: ONNXModelHandler, config: Any, output_model_path: str) -> ONNXModelHandler:
        path = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        step = _make_pass(config.method, config.bits, config.settings, config.options)
        with _telling_olive():
            made = _apply(step, load(model.model_path))
        # What is outside stays outside: Olive writes its names alone else, and not the data.
        outside = config.save_as_external_data or bool(data_files(model.model_path))
        return ir_model_to_olive_model(made, path, config.model_dump() | {"save_as_external_data": outside})


class SoftqSurgeon(Surgeon):
    """Replaces softmaxes as `softq.convert` does, as one of the surgeries of Olive's pass GraphSurgeries.

    Args:
        method: Name of the method; `softq.methods.DEFAULT_METHOD` if None.
        bits: Short for the setting `bits`.
        settings: Options of the method by name.
        options: Others of `softq.convert`.

    Raises:
        ValueError: the method or an option is unknown, or a value not allowed.
    """

    def __init__(
        self,
        method: str | None = None,
        bits: int | None = None,
        settings: Mapping[str, OptionValue] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._pass = _make_pass(method, bits, settings, options)

    def call_ir(self, model: ir.Model) -> ir.Model:
        """Return the converted model.

        Raises:
            ValueError: where `softq.convert` says UsageError or InputError.
            SoftqError: as in `softq.convert`.
        """
        with _telling_olive():
            return _apply(self._pass, model)


def package_config() -> dict[str, Any]:
    """Return Olive's own package configuration with the pass Softq: for `--package-config`, written as JSON."""
    with open(OlivePackageConfig.get_default_config_path(), encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    everything = {name: ["*"] for name in ("supported_providers", "supported_accelerators", "supported_precisions")}
    config["passes"][Softq.__name__] = {"module_path": f"{Softq.__module__}.{Softq.__name__}", **everything}
    return config


def _read_plan(options: Any) -> Any:
    """Return options with the plan itself where they name its file: Olive takes equal configurations for equal work."""
    if not isinstance(options, Mapping) or not isinstance(options.get("plan"), (str, Path)):
        return options
    with _telling_olive():
        return {**options, "plan": load_plan(options["plan"]).to_json()}


def _make_pass(
    method: str | None, bits: int | None, settings: Mapping[str, Any] | None, options: Mapping[str, Any] | None
) -> SoftqPass:
    with _telling_olive():
        if beside := [name for name in options or {} if name in OWN]:
            raise UsageError(f"{beside[0]} is among the options; it stands beside them")
        return SoftqPass(method, bits=bits, settings=settings, **dict(options or {}))


def _apply(step: SoftqPass, model: ir.Model) -> ir.Model:
    made = step(model).model
    for note in made.meta.get(NOTES_KEY, ()):
        logger.warning("%s", visible(note))
    return made


@contextmanager
def _telling_olive() -> Generator[None]:
    """Raise ValueError for what a user has to mend: after other errors Olive ends with 0, and without a model."""
    try:
        yield
    except (InputError, UsageError) as error:
        raise ValueError(str(error)) from error
