"""Code of others in softq has its licence beside it, also what it bundles; the package's licence names each of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "softq/sweeps/report/vendor"

# Words that a bundled project leaves in the text, and the holder that its notice names.
BUNDLED = {
    "d3.min.js": {
        "d3js.org": "Mike Bostock", "schemeRdYlBu": "Cynthia Brewer, Mark Harrower", "easeElastic": "Robert Penner",
        "geoStream": "Charles Karney", "Delaunay": "Mapbox", "33306690738754716": "released into the public domain",
    },
    "plot.min.js": {
        "observablehq": "Observable, Inc.", "queryInterval": "Mikola Lysenko", "padStart": "2021 Mike Bostock",
    },
}  # fmt: skip
# A line of each licence's text, and its name in the package's licence.
LICENCES = {
    "Permission to use, copy, modify, and/or distribute": "ISC",
    "Permission is hereby granted, free of charge": "MIT",
    "Neither the name of the author": "BSD-3-Clause",
    "Licensed under the Apache License, Version 2.0": "Apache-2.0",
    "This is free and unencumbered software": "Unlicense",
}


def notices(file: Path) -> str:
    """Return the licences of a file of others, which lie beside it."""
    return (file.parent / f"{file.name.partition('.')[0]}.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(VENDOR.glob("*.js")), ids=lambda file: file.name)
def test_a_file_of_others_has_the_licences_of_all_that_it_holds(file: Path) -> None:
    code, text = file.read_text(encoding="utf-8"), notices(file)
    for word, holder in BUNDLED[file.name].items():
        assert word in code, f"{word}: {file.name} holds no such code any more"
        assert holder in text, f"{file.name} holds code that {holder} wrote"


def test_the_package_names_each_licence_and_brings_its_text() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {LICENCES[line] for file in VENDOR.glob("*.js") for line in LICENCES if line in notices(file)}
    assert set(project["license"].split(" AND ")) == found | {"Apache-2.0"}
    brought = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert set(VENDOR.glob("*.LICENSE")) <= brought
