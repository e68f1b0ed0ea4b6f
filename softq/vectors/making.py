"""Golden vectors of one program: its rows, what the interpreter makes of them, and what a kernel may differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq._version import __version__
from softq.errors import UsageError
from softq.methods import METHODS, Method, Options
from softq.rowprog import DType, Program, run, to_text
from softq.rowprog.program import table_of
from softq.rowprog.ranges import prove
from softq.vectors.rows import Row, choose
from softq.vectors.tolerance import bounds, loose_outputs

Array = NDArray[np.generic]

DEFAULT_LENGTHS = (0, 1, 2, 3, 16, 61)
"""None, one, a pair, an odd few, a vector register, and one that no register divides."""

SCORES = (DType.F32, DType.I8, DType.U8, DType.I16)
SCHEMA = 1
_MOST_SCORES = 2**22
"""Beyond, the header would be tens of megabytes."""
_SPECIAL_ROWS = 32
"""Rows of a length beside the random ones, about; telling distances aside, whose number falls with the length."""


@dataclass(frozen=True)
class Vectors:
    """Golden vectors.

    Attributes:
        program: What was run.
        manifest: What they are and how to compare: plain values.
        arrays: Rows lie one behind the other: row r is `scores[offset[r] : offset[r] + length[r]]`, and so are `valid`
            and every output per element; outputs per row have one value per row. `kind` is an index into the manifest's
            kinds, `has_nan` says that an element that takes part is NaN. `NAME_low` and `NAME_high` are the bounds of
            an output that need not be equal to the bit; `given_NAME` is a run-time parameter, `table_I` the I-th table
            of the program's text, which shortens it.
    """

    program: Program
    manifest: Mapping[str, object]
    arrays: Mapping[str, Array]

    @property
    def decisive(self) -> str:
        """The output that is specified even where an element is NaN: it is NaN then."""
        return "normalizer" if self.program.is_pair else "probabilities"


def vectors(
    method: str,
    settings: Mapping[str, object] | None = None,
    *,
    fitted: Mapping[str, float] | None = None,
    scores: str = "f32",
    masked: bool = False,
    lengths: Sequence[int] = DEFAULT_LENGTHS,
    rows: int = 10,
    seed: int = 0,
) -> Vectors:
    """Return golden vectors of a method; the same arguments give the same ones.

    Args:
        method: Name of the method.
        settings: Its options by name, as text or numbers; the others keep their defaults.
        fitted: Numbers for the options that calibration would fit, one per site.
        scores: Type of the scores: f32, i8, u8 or i16; NumPy's names (int8) are taken, too.
        masked: Whether the kernel takes a mask.
        lengths: Elements of a row; rows of each are made.
        rows: Random rows of each length; the special ones come on top.
        seed: Seed of the random numbers.

    Raises:
        UsageError: an argument is wrong, or the method does not take it.
        ProofError: a length is above the longest row for which nothing overflows.
    """
    chosen = METHODS.open(method)
    kind = scores_type(scores, SCORES)
    lengths = _lengths(lengths, rows)
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; allowed is 0 to {2**32 - 1}")
    options, params, numbers = configured(chosen, settings or {}, fitted or {}, kind)
    program = chosen.program(options, scores=kind, masked=masked)
    proof = prove(program, max_length=lengths[-1])
    found = choose(program, params, lengths, rows, seed)
    arrays = _arrays(program, found, params)
    return Vectors(
        program,
        {
            "schema": SCHEMA,
            "softq": __version__,
            "method": chosen.name,
            "summary": chosen.summary,
            "source": chosen.source,
            "options": options.to_json(),
            "fitted": numbers,
            "scores": kind.value,
            "masked": masked,
            "lengths": list(lengths),
            "random_rows": rows,
            "seed": seed,
            "kinds": list(dict.fromkeys(row.kind for row in found)),
            "widest_integer_bits": proof.widest_bits,
            "outputs": {
                name: {
                    "type": node.dtype.value,
                    "kind": node.kind.value,
                    "compare": "bounds" if name in loose_outputs(program) else "bits",
                }
                for name, node in program.outputs.items()
            },
            "program": to_text(program),
        },
        arrays,
    )


def scores_type(name: str, allowed: Sequence[DType]) -> DType:
    """Return the type of scores that a name means.

    Raises:
        UsageError: it is none of those that are allowed.
    """
    found = DType.named(name)
    if found is None or found not in allowed:
        known = " or ".join(dtype.numpy.name for dtype in allowed)
        raise UsageError(f"scores are {name!r}; allowed is {known}")
    return found


def _lengths(lengths: Sequence[int], rows: int) -> tuple[int, ...]:
    chosen = tuple(sorted(set(lengths)))
    if not chosen or chosen[0] < 0:
        raise UsageError(f"lengths are {list(lengths)}; expected at least one, none below 0")
    if rows < 0:
        raise UsageError(f"rows is {rows}; allowed is 0 and more")
    if (rows + _SPECIAL_ROWS) * sum(chosen) > _MOST_SCORES:
        raise UsageError(
            f"{rows} random and about {_SPECIAL_ROWS} special rows of {', '.join(map(str, chosen))} elements are more "
            f"than {_MOST_SCORES:,} scores; ask for fewer or shorter ones"
        )
    return chosen


def configured(
    method: Method, settings: Mapping[str, object], fitted: Mapping[str, float], scores: DType
) -> tuple[Options, Mapping[str, Array], dict[str, float]]:
    """Return the options, the run-time parameters, and the numbers that are fitted.

    Of float scores these numbers make the parameters, as in a model; of integers, whose programs have none, they are
    constants: the options themselves.
    """
    options = method.resolve(method.configure(settings), bool(fitted))
    heads = [name for name, scope in options.fitted.items() if scope == "head"]
    if heads:
        raise UsageError(f"{method.name} {heads[0]} is fitted per head; vectors are of one head: {heads[0]}=site")
    if set(options.fitted) != set(fitted):
        wanted = " ".join(f"{name}=X" for name in options.fitted) or "nothing"
        given = " ".join(fitted) or "nothing"
        raise UsageError(f"{method.name} with these options has fitted numbers: {wanted}; given is {given}")
    specs, numbers = method.options.specs(), dict[str, int | float]()
    for name, value in fitted.items():
        number = specs[name].parse(f"{method.name} fitted {name}", value)
        if isinstance(number, str):
            raise UsageError(f"{method.name} fitted {name} is {number!r}; expected a number")
        numbers[name] = number
    if not scores.is_float:
        return replace(options, **numbers), {}, numbers
    return options, method.parameters(options, numbers) if numbers else {}, numbers


def _arrays(program: Program, rows: Sequence[Row], params: Mapping[str, Array]) -> dict[str, Array]:
    lengths = np.array([row.scores.size for row in rows], np.uint32)
    kinds = list(dict.fromkeys(row.kind for row in rows))
    arrays: dict[str, Array] = {
        "length": lengths,
        "offset": (np.cumsum(lengths) - lengths).astype(np.uint32),
        "kind": np.array([kinds.index(row.kind) for row in rows], np.uint8),
        "scores": np.concatenate([row.scores for row in rows]),
    }
    if program.scores.is_float:
        arrays["has_nan"] = np.array([bool(np.any(np.isnan(row.scores[row.valid]))) for row in rows], np.uint8)
    if program.masked:
        arrays["valid"] = np.concatenate([row.valid for row in rows]).astype(np.uint8)
    arrays |= {f"given_{name}": np.asarray(value) for name, value in params.items()}
    tables = [node for node in program.nodes() if node.op == "table"]
    arrays |= {f"table_{i}": np.array(table_of(node), node.dtype.numpy) for i, node in enumerate(tables)}
    return arrays | _outputs(program, rows, params)


def _outputs(program: Program, rows: Sequence[Row], params: Mapping[str, Array]) -> dict[str, Array]:
    """Return every output and its bounds, rows one behind the other; rows of one length are computed together."""
    parts: dict[str, list[Array]] = {}
    by_length: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        by_length.setdefault(row.scores.size, []).append(number)
    for numbers in by_length.values():
        x = np.stack([rows[i].scores for i in numbers])
        valid = np.stack([rows[i].valid for i in numbers]) if program.masked else None
        out = run(program, x, valid=valid, params=params)
        for name, (low, high) in bounds(program, x, valid=valid, params=params).items():
            out |= {f"{name}_low": low, f"{name}_high": high}
        for name, values in out.items():
            into = parts.setdefault(name, [np.zeros(0, values.dtype)] * len(rows))
            for i, row in zip(numbers, values, strict=True):
                into[i] = row
    return {name: np.concatenate(values) for name, values in parts.items()}
