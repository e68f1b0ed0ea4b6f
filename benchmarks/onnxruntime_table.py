"""The tables of docs/onnxruntime.md, from what `benchmarks.onnxruntime` measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.onnxruntime import HEADS, LENGTH, LENGTHS, OPTIMIZED, PEAK, WIDTH
from benchmarks.onnxruntime_models import MODELS

_TITLES = {
    "softmax": (f"Softmax and MatMul, {HEADS} heads of {LENGTH} x {LENGTH} scores, {WIDTH} values", "both"),
    **{f"attention {n}": (f"attention, {n} tokens, {HEADS} heads of {WIDTH}", "attention") for n in LENGTHS},
    "vit": ("the ViT of models/mnist_vit, one image", "vit"),
    "minilm": ("MiniLM, one sentence of its data", "minilm"),
    **{name: (model.title, name) for name, model in MODELS.items()},
}


def document(found: Mapping[str, Any]) -> str:
    """Return the tables of docs/onnxruntime.md; of two threads only if both had a processor."""
    machine, measured = found["machine"], found["milliseconds"]
    free = all(each["2"][PEAK] < 0.7 * each["1"][PEAK] for each in measured.values() if PEAK in each["1"])
    threads = ("1", "2") if free else ("1",)
    head = ["model", "", "one thread", "of", "two threads", "of"][: 2 + 2 * len(threads)]
    clocks = ", with two the least by the clock" if free else "; others ran here, so that two threads were not free"
    lines = [
        f"From `{found['command']}` on {machine['processor']} ({machine['vectors']}; {machine['versions']}), up "
        f"to {found['rounds']} runs in turns, ms: with one thread medians of its processor time{clocks}. `of` is the "
        "share of the float model's time:",
        "",
        f"| {' | '.join(head)} |",
        "| --- " * len(head) + "|",
    ]
    for what, (title, float_model) in _TITLES.items():
        if what not in measured:
            continue
        each = measured[what]
        shown = [key for key in each["1"] if key == PEAK or key.split()[0] in (float_model, "own")]
        for number, name in enumerate(shown):
            cells = [f"{each[t][name]:.2f} | {each[t][name] / each[t][float_model]:.2f}" for t in threads]
            lines.append(f"| {'' if number else title} | {_label(name)} | {' | '.join(cells)} |")
    fused = [
        f"{name} ({', '.join(f'{n} {x}' for x, n in each.items()) or 'nothing'})"
        for name, each in found.get("fused", {}).items()
    ]
    times = measured["softmax"]["1"]
    share = times["product"] / times["both"]
    grown = [f"{size:.0f} MiB ({_label(name)})" for name, size in found["mebibytes"].items()]
    lines += [
        "",
        f"The product of the first model alone takes {times['product']:.2f} ms, {share:.2f} of it, with one thread.",
        *([f"What onnxruntime's optimizer fuses: {'; '.join(fused)}."] if fused else []),
        f"A process grows, in its first run of {LENGTHS[-1]} tokens, by {', '.join(grown)}.",
    ]
    return "\n".join(lines)


def _label(name: str) -> str:
    if name == PEAK:
        return name
    model, *method = name.split()
    if method == [OPTIMIZED]:
        return "float, by onnxruntime's optimizer"
    if not method:
        return "onnxruntime's MultiHeadAttention" if model == "own" else "float"
    return f"`{method[0]}`, {'without the library' if 'alone' in method else 'with it'}"
