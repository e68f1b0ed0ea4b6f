"""Write the library of operators of a family of processors: `python -m softq.prebuilt OUT --family x86-64`."""

from __future__ import annotations

import argparse

from softq.artifact.manifest import OPERATOR_LIBRARY
from softq.prebuilt.building import LEVELS, build_library

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--family", required=True, choices=list(LEVELS))
    parser.add_argument("--slim", action="store_true", help="no source and no kernels beside the library")
    given = parser.parse_args()
    folder = build_library(given.out, given.family, slim=given.slim)
    parser.exit(message=f"{folder}: {(folder / OPERATOR_LIBRARY).stat().st_size:,} bytes\n")
