"""What a target declares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from softq.errors import UsageError
from softq.text_options import TextOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.artifact.device.steps import DeviceProgram
    from softq.artifact.firmware.program import Firmware
    from softq.artifact.machine import Cpu, Machine
    from softq.artifact.operators.library import OperatorLibrary
    from softq.artifact.program import Program
    from softq.artifact.signing import Signer
    from softq.packages import Package, PackageOptions
    from softq.runner import Written


@dataclass(frozen=True)
class TargetOptions(TextOptions):
    """Base of a target's options: a frozen dataclass of texts whose fields are made by `option`."""


@dataclass(frozen=True)
class Order:
    """How `build` wants a result to be written.

    Attributes:
        folder: Where it goes.
        target: The target with its options, as the user gave it.
        model: Hashes of the model that it was made from, by name.
        package: The form of package that its files get for projects of another tool, with its options.
        sign: Signs the manifest, if that is wanted.
    """

    folder: Path
    target: str
    model: Mapping[str, str]
    package: tuple[Package, PackageOptions] | None = None
    sign: Signer | None = None


class Result(ABC):
    """What a target makes of a model: it writes itself.

    Attributes:
        takes_package: Whether its files can be laid out as a package.
    """

    takes_package: ClassVar[bool] = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, one sentence each."""
        return ()

    @abstractmethod
    def write(self, order: Order) -> Path:
        """Write it and return the folder.

        Raises:
            UsageError: the folder is something else than an artifact, or something that it takes is not installed.
            InputError: the folder cannot be written, or the disk is full.
        """


@dataclass(frozen=True)
class Built(Result):
    """A model that runs through a driver.

    Attributes:
        program: The program.
        machine: What it is for.
        device: The launches and kernels, where the machine has memory and threads of its own.
    """

    program: Program
    machine: Machine
    device: DeviceProgram | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What compiling the model found."""
        return self.program.notes

    def write(self, order: Order) -> Path:
        """Write kernels, driver, library, weights and manifest."""
        from softq.artifact.writing import write

        return write(
            self.program,
            self.machine,
            order.folder,
            target=order.target,
            model=order.model,
            device=self.device,
            sign=order.sign,
        )


@dataclass(frozen=True)
class BuiltOperators(Result):
    """Custom operators for the functions of a model, which another runtime runs.

    Attributes:
        library: The operators with their kernels.
        machine: What they are for.
    """

    library: OperatorLibrary
    machine: Cpu

    def write(self, order: Order) -> Path:
        """Write the library, its source and a manifest."""
        from softq.artifact.operators.writing import write_operators

        return write_operators(
            self.library, self.machine, order.folder, target=order.target, model=order.model, sign=order.sign
        )


@dataclass(frozen=True)
class BuiltFirmware(Result):
    """A model in C.

    Attributes:
        firmware: The model.
        machine: What it is for.
        name: What files and symbols begin with; empty for the name of the folder.
    """

    firmware: Firmware
    machine: Cpu
    name: str = ""
    takes_package: ClassVar[bool] = True

    @property
    def notes(self) -> tuple[str, ...]:
        """What compiling the model found."""
        return self.firmware.program.notes

    def write(self, order: Order) -> Path:
        """Write the files in C and a manifest, laid out as a package if that is wanted."""
        from softq.artifact.firmware.writing import write_firmware

        return write_firmware(
            self.firmware,
            self.machine,
            order.folder,
            name=self.name,
            target=order.target,
            model=order.model,
            package=order.package,
            sign=order.sign,
        )


@dataclass(frozen=True)
class BuiltCores(Result):
    """Cores for FPGAs.

    Attributes:
        files: Their files by name.
        facts: What they are and which softmaxes they compute, as plain values.
        missing: What has no core, one sentence each.
    """

    files: Mapping[str, bytes]
    facts: Mapping[str, object]
    missing: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What has no core."""
        return self.missing

    def write(self, order: Order) -> Path:
        """Write the cores and a manifest."""
        from softq.artifact.cores import write_cores

        return write_cores(
            self.files, self.facts, order.folder, target=order.target, model=order.model, sign=order.sign
        )


@dataclass(frozen=True)
class Use:
    """A method as softmaxes of a model use it.

    Attributes:
        method: Its name.
        options: Its options by name, as the user gave them; the others have their defaults.
        row_length: Elements of the longest row; None if the model does not say.
        masked: Whether elements may be masked.
    """

    method: str
    options: Mapping[str, int | float | str]
    row_length: int | None
    masked: bool


@dataclass(frozen=True)
class Amount:
    """What a target needs of something for a method, known before it is built.

    Attributes:
        value: How much; less is better.
        unit: Of what.
    """

    value: float
    unit: str


Amounts = Mapping[str, Amount]
"""Amounts by name: LUT4, bytes, clocks."""


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
        build: Makes what is written of a converted model, which it does not change; None where the
            target's product is the model itself.
        needs_tvm: Whether `build` needs TVM.
        cost: Says what one unit that computes a method takes; every method has the same names. None where that is not
            known before a build. It raises RefusalError where the target has no form of the method.
        open: Opens what `build` wrote of a converted model, so that it can be timed: given the model's file, the folder
            and the threads (all cores if None). Sizes are of what a user would ship. None where what was built does
            not run on this computer, or has no threads to compare with onnxruntime's.
        ready: Gives the folder that comes with softq and serves a converted model, given its file, as what `build` with
            no option would write; None where there is none or it does not serve. Given None, the folder itself.
    """

    name: str
    summary: str
    produces: str
    needs: str
    passes: Callable[[], Sequence[ir.passes.InPlacePass]]
    options: type[TargetOptions] = TargetOptions
    build: Callable[[ir.Model, TargetOptions], Result] | None = None
    needs_tvm: bool = True
    cost: Callable[[Use, TargetOptions], Amounts] | None = None
    open: Callable[[Path, Path, int | None], Written] | None = None
    ready: Callable[[Path | None], Path | None] | None = None

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
