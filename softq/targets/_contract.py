"""What a target declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from softq.errors import UsageError
from softq.text_options import TextOptions

if TYPE_CHECKING:
    from softq.artifact.device.steps import DeviceProgram
    from softq.artifact.firmware.program import Firmware
    from softq.artifact.machine import Cpu, Machine
    from softq.artifact.operators.library import OperatorLibrary
    from softq.artifact.program import Program


@dataclass(frozen=True)
class TargetOptions(TextOptions):
    """Base of a target's options: a frozen dataclass of texts whose fields are made by `option`."""


@dataclass(frozen=True)
class Built:
    """What a target makes of a model.

    Attributes:
        program: The program.
        machine: What it is for.
        device: The launches and kernels, where the machine has memory and threads of its own.
    """

    program: Program
    machine: Machine
    device: DeviceProgram | None = None


@dataclass(frozen=True)
class BuiltOperators:
    """Custom operators for the functions of a model, which another runtime runs.

    Attributes:
        library: The operators with their kernels.
        machine: What they are for.
    """

    library: OperatorLibrary
    machine: Cpu


@dataclass(frozen=True)
class BuiltFirmware:
    """A model in C.

    Attributes:
        firmware: The model.
        machine: What it is for.
        name: What files and symbols begin with; empty for the name of the folder.
    """

    firmware: Firmware
    machine: Cpu
    name: str = ""


@dataclass(frozen=True)
class Target:
    """Something that a converted model is lowered to.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        produces: What the user gets, one line.
        needs: What has to be installed beside softq, `nothing` if nothing.
        passes: Makes the passes that turn a converted model into what the target takes, in their order.
        options: The dataclass of its options.
        build: Makes a program of a converted model, or operators for it, and does not change it; None where the
            target's product is the model itself.
    """

    name: str
    summary: str
    produces: str
    needs: str
    passes: Callable[[], Sequence[ir.passes.InPlacePass]]
    options: type[TargetOptions] = TargetOptions
    build: Callable[[ir.Model, TargetOptions], Built | BuiltOperators | BuiltFirmware] | None = None

    def configure(self, settings: Mapping[str, str]) -> TargetOptions:
        """Return the options with these settings over the defaults.

        Raises:
            UsageError: an option is unknown; the message lists what there is.
        """
        known = self.options.help()
        for name in settings:
            if name not in known:
                raise UsageError(
                    f"target {self.name} has no option {name!r}; its options are: {', '.join(known) or 'none'}"
                )
        return self.options(**settings)
