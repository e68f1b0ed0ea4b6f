"""What is installed with hashes is what softq asks for, in the versions that it was tested with."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sbom import BUNDLED, VENDOR, bundled

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("cluster", "detection", "report", "sign", "text", "tvm")


def entries(name: str) -> dict[str, tuple[Requirement, int]]:
    """Return each package of a file with the number of its hashes."""
    text = "".join(line for line in (ROOT / name).read_text("utf-8").splitlines(True) if not line.startswith("#"))
    found: dict[str, tuple[Requirement, int]] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        what, *hashes = entry.split(" --hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), entry
        requirement = Requirement(what.strip())
        found[canonicalize_name(requirement.name)] = (requirement, len(hashes))
    return found


def test_every_package_has_its_version_and_hashes() -> None:
    tested, locked = entries("constraints.txt"), entries("requirements.txt")
    for name, (requirement, hashes) in locked.items():
        assert hashes > 0, name
        assert requirement.specifier == tested[name][0].specifier, "make lock"


def test_nothing_that_is_asked_for_is_left_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locked = entries("requirements.txt")
    asked = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    for wanted in map(Requirement, asked):
        ((specifier,),) = [[s.version for s in locked[canonicalize_name(wanted.name)][0].specifier]]
        assert wanted.specifier.contains(specifier), f"{wanted}: make lock"
    assert not {"torch", "onnxscript", "nvidia-cuda-nvcc"} & set(locked)


def test_the_list_of_parts_names_what_is_bundled() -> None:
    assert {path.name for path in VENDOR.glob("*.js")} == set(BUNDLED)
    assert re.search(r'"pkg:npm/d3@\d+\.\d+\.\d+"', json.dumps(bundled()))
