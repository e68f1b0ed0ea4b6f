"""The tables of docs/quantizers.md, from what `python -m benchmarks.qdq` found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.qdq import MODELS, PLAIN


def document(facts: Mapping[str, Any]) -> str:
    """Return the tables of docs/quantizers.md."""
    first = facts["errors"][0]["errors"]
    places = [f"{row['keys']:,}, {row['deviation']}" for row in facts["errors"]]
    machine = facts["machine"]
    where = f"From `{facts['command']}` on {machine['processor']} ({machine['vectors']}; {machine['versions']})."
    lines = [f"{where} Relative error of P V:", ""]
    lines += [_line("keys, standard deviation of the scores", places), _line("---", ["---"] * len(places))]
    for name in first:
        lines.append(_line(name, [f"{row['errors'][name]:.3f}" for row in facts["errors"]]))
    lines.append(_line("asked for", [f"{row['asked']:.3f}" for row in facts["errors"]]))
    lengths = list(facts["times"])
    lines += [
        "",
        "Milliseconds of an attention of 12 heads of 64, one thread, and their share of quantize_static's:",
        "",
    ]
    lines += [_line("keys", lengths), _line("---", ["---"] * len(lengths))]
    for name in facts["times"][lengths[0]]:
        lines.append(_line(name, [_with_part(facts["times"][length], name) for length in lengths]))
    models = [facts["models"][key] | {"title": MODELS[key].title} for key in MODELS if key in facts["models"]]
    heads = [f"{found['title']}: {found['metric']}, {found['samples']} samples" for found in models]
    lines += ["", "Whole models, development data: the metric; milliseconds of a run, one thread, and the share.", ""]
    lines += [_line("", heads), _line("---", ["---"] * len(heads))]
    for name in models[0]["metrics"]:
        cells = [f"{_short(found['metrics'][name])}; {_with_part(found['milliseconds'], name)}" for found in models]
        lines.append(_line(name, cells))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join([name, *cells]) + " |"


def _short(metric: float) -> str:
    return f"{metric:,.0f}" if metric >= 1000 else f"{metric:.4g}"


def _with_part(times: Mapping[str, float], name: str) -> str:
    return f"{times[name]:.{0 if times[name] >= 100 else 1}f} ({times[name] / times[PLAIN]:.2f})"
