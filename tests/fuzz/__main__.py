"""The command: see the package."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.readers import READERS
from tests.fuzz.running import run_apart


def main() -> None:
    """Fuzz, and say what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    _, wrong = run_apart(given.readers or list(READERS), given.seconds, given.seed)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
