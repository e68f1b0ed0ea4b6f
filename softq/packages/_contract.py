"""What a form of packages declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from softq.errors import UsageError
from softq.text_options import TextOptions, option

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_PLAIN = re.compile(r"[^\x00-\x1f<>&\"'\\]+")
"""What every form of manifest takes as it stands."""


@dataclass(frozen=True)
class PackageOptions(TextOptions):
    """What every package says of itself; texts."""

    version: str = option("1.0.0", "the package's version: MAJOR.MINOR.PATCH")
    vendor: str = option("softq", "who publishes it")
    url: str = option("https://example.com", "where it is published")

    def __post_init__(self) -> None:
        """Check the texts.

        Raises:
            UsageError: a text has a form that no tool takes.
        """
        if not _VERSION.fullmatch(self.version):
            raise UsageError(f"package: version is {self.version!r}; expected MAJOR.MINOR.PATCH, such as 1.0.0")
        if not re.fullmatch(r"https?://[\w./~%-]+", self.url, re.ASCII):
            raise UsageError(f"package: url is {self.url!r}; expected one that begins with http:// or https://")
        for key, text in self.settings().items():
            if not _PLAIN.fullmatch(text):
                raise UsageError(f"package: {key} is {text!r}; a text without quotes, <, > and & is expected")


@dataclass(frozen=True)
class Contents:
    """What goes into a package.

    Attributes:
        name: The model's name, a C identifier.
        files: The C files by name.
        inputs: Name and type in C of each input.
        outputs: The same of outputs.
        has_floats: Whether the processor has a unit for floats.
        options: What the package says of itself.
    """

    name: str
    files: Mapping[str, bytes]
    inputs: Sequence[tuple[str, str]]
    outputs: Sequence[tuple[str, str]]
    has_floats: bool
    options: PackageOptions

    @property
    def header(self) -> str:
        """The file that projects include."""
        return f"{self.name}.h"

    @property
    def sources(self) -> list[str]:
        """The files that are compiled."""
        return [file for file in self.files if file.endswith(".c")]

    @property
    def summary(self) -> str:
        """One sentence of the package."""
        return f"The model {self.name} in C, without heap, files and threads."


@dataclass(frozen=True)
class Package:
    """A form in which a model in C goes into projects of a tool.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        sources: The folder of the C files in the package.
        around: Returns the other files: what each path in the package holds.
        options: The dataclass of its options.
    """

    name: str
    summary: str
    sources: str
    around: Callable[[Contents], Mapping[str, bytes]]
    options: type[PackageOptions] = PackageOptions

    def configure(self, settings: Mapping[str, str]) -> PackageOptions:
        """Return the options with these settings over the defaults.

        Raises:
            UsageError: an option is unknown, or has another form; the message lists what there is.
        """
        known = self.options.help()
        for name in settings:
            if name not in known:
                raise UsageError(f"package {self.name} has no option {name!r}; its options are: {', '.join(known)}")
        return self.options(**settings)
