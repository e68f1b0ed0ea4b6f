"""Which format for P: the number formats of accelerators beside softq's codes, at the bits that a weight takes.

    python -m benchmarks.formats [--only synthetic|models|plot] [--study NAME] [--models DIR] [--plot docs/formats.png]

Synthetic rows: normal scores of several lengths and spreads, V normal with a mean of 0 or 1; the relative error of P V
over 8 draws, with a 95% interval of its mean. Models: those that are committed, and those of the figures that were
built in a folder (`python -m models.minilm DIR`), on their evaluation data (`models.splits`), the built ones on some
samples of these, chosen by a seed. Options have their defaults, or are fitted: on a model's calibration data, on rows
beside those that are measured; nothing was chosen on evaluation data. Bits are those of a stored weight, scales of
blocks counted.

Writes benchmarks/formats.json after each setting; what a model gave before is taken from the cache beside the built
models. The tables of docs/formats.md are made from it, and the plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures.studies import STUDIES, versions
from benchmarks.formats.models import measure_model
from benchmarks.formats.rows import measure_rows
from benchmarks.formats.settings import COMMAND, SHARES, keep, load


def keep_study(found: dict[str, Any], study: Mapping[str, Any]) -> None:
    """Put what a study has so far into the results, in the order of the studies."""
    each = {one["name"]: one for one in (*found.get("models", []), study)}
    found["models"] = [each[name] for name in SHARES if name in each]
    keep(found)


def main() -> None:
    """Measure what is asked for, and draw if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["synthetic", "models", "plot"], help="this alone")
    parser.add_argument("--study", action="append", choices=list(SHARES), help="of the models, this alone")
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="where models were built")
    parser.add_argument("--plot", type=Path, help="where to draw the rows; the models beside it")
    given = parser.parse_args()
    given.models.mkdir(parents=True, exist_ok=True)
    found = load() | {"schema": 2, "command": COMMAND, "versions": versions()}
    if given.only in (None, "models"):
        for study in STUDIES:
            if study.name in (given.study or SHARES) and study.name in SHARES:
                if (study.place(given.models) / study.model).exists():
                    measure_model(study, given.models, partial(keep_study, found))
                else:
                    print(f"{study.name}: not built in {given.models}")
    if given.only in (None, "synthetic"):
        found["rows"] = measure_rows()
        keep(found)
    if given.plot is not None:
        from benchmarks.formats.plot import plot, plot_models

        plot(found, given.plot)
        plot_models(found, given.plot.with_stem(f"{given.plot.stem}-models"))


if __name__ == "__main__":
    main()
