"""Searches what deferred-log's growing steps are without calibration data, and says what each width costs.

    python -m benchmarks.growing_steps [--rows MODEL DATA ...] [--normal] [--bits 2 3 4 5 6 7] [--write]

Rows come from the attentions of models on development data, from several of them together (`--rows` may stand again and
again), or are normal ones. Numbers are those of the least geometric mean, over models and over the sites of each, of
the error of P V: the root of the mean, over samples, of its squared error relative to P V. With `--write` they replace
those of `softq/methods/_steps_numbers.py`. The error is computed here from thresholds and weights, not by kernels.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from softq.calibration import Sampling, collect_rows, exact_weights, input_specs, without_masked_rows
from softq.data import open_data
from softq.graph.facts import Assumed
from softq.methods import METHODS, Sample, _steps_numbers
from softq.methods._steps import GREATEST_BYTE, PER_OCTAVE, R_EQUAL, Code, StepOptions, equal_steps
from softq.modelfile import load
from softq.passes.locate import locate
from softq.rowprog.library import LOG2_E

Array = NDArray[np.float64]
Sites = Sequence[Sequence["Rows"]]
"""Some rows of each site of a model."""

NORMAL = ((197, 2.0), (512, 3.0), (1024, 1.0))
"""Lengths and standard deviations of normal rows: a site each."""

_WEIGHT_BITS = 15
_TABLE = re.compile(r"(?<=OF_BYTES: Numbers = \{\n).*?(?=^\})", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Rows:
    """Rows of one sample.

    Attributes:
        octaves: Distance of each score from the maximum, [R, N]; infinite where masked.
        values: V, [N, D].
        exact: The exact product, [R, D].
        sums: For each distance in a byte, the sum of the rows of V at that distance, [R, D, 256]: by these an error
            costs the same for any length.
        counts: How many these are, [R, 256].
    """

    octaves: Array
    values: Array
    exact: Array
    sums: NDArray[np.float32]
    counts: NDArray[np.float32]

    @staticmethod
    def of(sample: Sample) -> Rows:
        """Return what is needed of a sample; of one without V, P itself."""
        scores = sample.scores.astype(np.float64)
        octaves = (scores.max(axis=-1, keepdims=True) - scores) * LOG2_E
        whole = np.minimum(np.rint(octaves * PER_OCTAVE), GREATEST_BYTE).astype(np.int64)
        p = exact_weights(sample.scores)
        values = np.eye(p.shape[-1]) if sample.values is None else sample.values.astype(np.float64)
        sums = np.zeros((len(scores), values.shape[-1], GREATEST_BYTE + 1), np.float32)
        for row, at in enumerate(whole):
            np.add.at(sums[row].T, at, values)
        counts = np.stack([np.bincount(at, minlength=GREATEST_BYTE + 1) for at in whole]).astype(np.float32)
        return Rows(octaves, values, p @ values, sums, counts)

    def error(self, code: Code, of_bytes: bool) -> float:
        """Return the squared error of P V relative to P V."""
        weights = np.array(code.to_integers(2 ** (_WEIGHT_BITS - 1)), np.float32)
        if of_bytes:
            table = weights[np.frombuffer(code.of_bytes(), np.uint8)]
            products, total = self.sums @ table, (self.counts @ table)[:, None]
        else:
            found = weights[np.searchsorted(code.thresholds, self.octaves, side="right")].astype(np.float64)
            products, total = found @ self.values, found.sum(axis=-1, keepdims=True)
        difference = products / np.maximum(total, 1) - self.exact
        return float(np.sum(difference**2) / max(np.sum(self.exact**2), 1e-300))


def mean_error(sites: Sites, code: Code, of_bytes: bool) -> float:
    """Return the geometric mean of the error of P V over sites."""
    each = [math.sqrt(np.mean([rows.error(code, of_bytes) for rows in site])) for site in sites]
    return math.exp(float(np.mean(np.log(np.maximum(each, 1e-12)))))


def normal_sites(rows: int = 64, width: int = 64) -> Sites:
    """Return normal rows with normal V."""
    rng = np.random.default_rng(0)
    samples = [Sample((rng.normal(size=(rows, n)) * sd).astype(np.float32),
                      rng.normal(size=(n, width)).astype(np.float32), 0) for n, sd in NORMAL]  # fmt: skip
    return [[Rows.of(sample)] for sample in samples]


def sites_of(model: str, data: str, sampling: Sampling) -> Sites:
    """Return rows of the attentions of a model on data, those of each site."""
    loaded = load(model)
    wanted = [site.id for site in locate(loaded) if site.takes_method]
    opened = open_data(data, input_specs(loaded), reject_nan=True)
    found = collect_rows(loaded, wanted, opened, False, Assumed(), sampling=sampling)
    kept = [[without_masked_rows(sample) for sample in samples] for samples in found.values()]
    return [[Rows.of(sample) for sample in samples if len(sample.scores)] for samples in kept]


def options_of(bits: int) -> StepOptions:
    """Return the options whose numbers are searched."""
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({"bits": bits, "distance": "byte"}), True)
    assert isinstance(options, StepOptions)
    return options


def search(bits: int, models: Sequence[Sites]) -> dict[str, float]:
    """Return r, first, shift and slope with the least error, geometric over models, rounded to three digits."""
    method, options = METHODS.get("deferred-log"), options_of(bits)
    assert method.fit is not None

    def error(numbers: Mapping[str, float]) -> float:
        return math.prod(mean_error(sites, options.code(numbers), True) for sites in models)

    found = {"slope": 0.0, **method.fit(options, [], error)}
    return {name: float(f"{found[name]:.3g}") for name in ("r", "first", "shift", "slope")}


def forms(bits: int, found: Mapping[str, float] | None) -> Iterator[tuple[str, Code, bool]]:
    """Yield the codes of a width, each with its name and whether it takes the distance in a byte."""
    top = 2**bits - 1
    yield "equal, r = 1", equal_steps(top, 1.0), False
    yield f"equal, r = {R_EQUAL[bits]:g}", equal_steps(top, R_EQUAL[bits]), False
    numbers: list[tuple[str, str, Mapping[str, float] | None]] = [
        ("growing", "float", _steps_numbers.OF_FLOATS.get(bits)),
        ("growing, byte", "byte", _steps_numbers.OF_BYTES.get(bits)),
        ("searched, byte", "byte", found),
    ]
    for name, distance, given in numbers:
        if given is not None:
            options = replace(options_of(bits), distance="byte" if distance == "byte" else "float")
            yield name, options.code(given), distance == "byte"


def table(bits: Sequence[int], models: Mapping[str, Sites], say: Callable[[str], None]) -> dict[int, dict[str, float]]:
    """Print the errors of each width and form by model, and return the numbers that were searched."""
    searched: dict[int, dict[str, float]] = {}
    say("| bits | steps | " + " | ".join(models) + " |\n" + "| --- " * (2 + len(models)) + "|")
    for width in bits:
        if width in _steps_numbers.OF_BYTES:
            searched[width] = search(width, list(models.values()))
        for name, code, of_bytes in forms(width, searched.get(width)):
            cells = [f"{mean_error(sites, code, of_bytes):.4f}" for sites in models.values()]
            say(f"| {width} | {name} | {' | '.join(cells)} |")
    return searched


def write(searched: Mapping[int, Mapping[str, float]]) -> None:
    """Replace the built-in numbers of these widths."""
    path = Path(_steps_numbers.__file__)
    every = {**_steps_numbers.OF_BYTES, **searched}
    entries = {bits: ", ".join(f'"{name}": {value!r}' for name, value in every[bits].items()) for bits in sorted(every)}
    lines = "".join(f"    {bits}: {{{entry}}},\n" for bits, entry in entries.items())
    path.write_text(_TABLE.sub(lambda _: lines, path.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Search, print and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs=2, action="append", default=[], metavar=("MODEL", "DATA"))
    parser.add_argument("--normal", action="store_true", help="normal rows, too")
    parser.add_argument("--bits", type=int, nargs="+", default=list(range(2, 9)))
    parser.add_argument("--maps", type=int, default=4, help="attention maps of each head")
    parser.add_argument("--write", action="store_true", help="replace the built-in numbers")
    given = parser.parse_args()
    models = {
        Path(model).resolve().parent.name: sites_of(model, data, Sampling(maps=given.maps))
        for model, data in given.rows
    }
    if given.normal or not models:
        models["normal"] = normal_sites()
    searched = table(given.bits, models, lambda line: print(line, flush=True))
    for bits, numbers in searched.items():
        print(bits, numbers)
    if given.write:
        write(searched)


if __name__ == "__main__":
    main()
