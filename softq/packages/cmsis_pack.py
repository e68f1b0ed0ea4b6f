"""CMSIS-Pack: VENDOR.NAME.VERSION.pack, which cpackget and IDEs such as Keil's install, beside its description.

The form is that of Open-CMSIS-Pack-Spec 1.7 (schema/PACK.xsd there). A project chooses the component
`Machine Learning: Model: NAME`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from softq.errors import UsageError
from softq.packages._contract import Contents, Package, PackageOptions

_OLDEST = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip knows: the same input gives the same bytes."""


@dataclass(frozen=True)
class Options(PackageOptions):
    """Names of files begin with the vendor."""

    def __post_init__(self) -> None:
        """Check the texts.

        Raises:
            UsageError: a text has a form that the schema refuses.
        """
        super().__post_init__()
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.vendor, re.ASCII):
            raise UsageError(f"package: vendor is {self.vendor!r}; expected letters, digits, _ and -")


def _description(given: Contents) -> str:
    options, summary = given.options, given.summary
    which = f'Cclass="Machine Learning" Cgroup="Model" Csub="{given.name}" Cversion="{options.version}"'
    files = [f'        <file category="header" name="src/{given.header}"/>']
    files += [f'        <file category="source" name="src/{file}"/>' for file in given.sources]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<package schemaVersion="1.7.7" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance" '
            'xs:noNamespaceSchemaLocation="https://raw.githubusercontent.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec/'
            'v1.7.7/schema/PACK.xsd">',
            f"  <vendor>{options.vendor}</vendor>",
            f"  <name>{given.name}</name>",
            f"  <description>{summary}</description>",
            f"  <url>{options.url}</url>",
            "  <releases>",
            f'    <release version="{options.version}">The model as softq built it.</release>',
            "  </releases>",
            "  <components>",
            f"    <component {which}>",
            f"      <description>{summary}</description>",
            "      <files>",
            *files,
            "      </files>",
            "    </component>",
            "  </components>",
            "</package>",
            "",
        ]
    )


def _around(given: Contents) -> Mapping[str, bytes]:
    stem = f"{given.options.vendor}.{given.name}"
    description = _description(given).encode()
    members = {f"{stem}.pdsc": description, **{f"src/{file}": content for file, content in given.files.items()}}
    packed = io.BytesIO()
    # Not compressed: releases of zlib differ in their bytes.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path, content in members.items():
            entry = zipfile.ZipInfo(path, _OLDEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content)
    return {f"{stem}.pdsc": description, f"{stem}.{given.options.version}.pack": packed.getvalue()}


PACKAGE = Package(
    name="cmsis-pack",
    summary="A CMSIS-Pack, and the files that it holds.",
    sources="src",
    around=_around,
    options=Options,
)
