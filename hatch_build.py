"""A wheel for one platform, if `$SOFTQ_OPERATORS` is a folder that `python -m softq.prebuilt` wrote: it holds that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class OperatorsHook(BuildHookInterface[Any]):
    """Puts the library of operators into a wheel and names the platform; without a library the wheel is for any."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, and the tag of the platform that they were built for: Linux with glibc 2.17 or newer."""
        given = os.environ.get("SOFTQ_OPERATORS")
        if given is None or version == "editable":
            return
        folder = Path(self.root, given)
        path = folder / "manifest.json"
        facts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if facts.get("kind") != "softq operators":
            raise ValueError(f"SOFTQ_OPERATORS is {given!r}, expected the folder that python -m softq.prebuilt wrote")
        architecture = facts["machine"]["triple"].partition("-")[0]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{architecture}"
        for name in ("manifest.json", *facts["files"]):
            build_data["force_include"][str(folder / name)] = f"softq/prebuilt/operators/{name}"
