"""Verdicts, plans and converted models."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.unchanged import corpus
from benchmarks.unchanged.interface import command
from benchmarks.unchanged.observe import FEW, Observer, Settings, bits_of, label, methods_of

BYTES_OF_DEFERRED_LOG = "bytes of deferred-log"
"""The kind of the bytes of models whose functions' bodies may be others, as long as they give the same bits."""


def conversions(observer: Observer) -> None:
    """Observe the verdicts of each model, and what each method makes of it, with functions and without."""
    for kept in observer.models:
        if kept.use.convert == corpus.NONE:
            continue
        asked = ["inspect", kept.relative, *(part for mask in kept.use.masks for part in ("--mask", mask))]
        observer.attempt("inspections", kept.name, partial(command, *asked, "--json", "--all"))
        observer.attempt("inspections", f"{kept.name} as text", partial(command, *asked))
        chosen = methods_of(kept.use.convert, quick=observer.quick)
        if kept.name == "attention" and not observer.quick:
            chosen = [*chosen, *_widths()]
        for method, settings in chosen:
            for inline in (False,) if kept.use.forms else (False, True):
                _convert(observer, kept, method, settings, inline)


def _widths() -> list[tuple[str, Settings]]:
    """Return every method that has bits with the fewest and the most."""
    told, _, _ = command("methods", "--json").rpartition("[exit code")
    found: list[tuple[str, Settings]] = []
    for method in json.loads(told)["methods"]:
        bits = method["bits"]
        found += [(method["name"], {"bits": bits[end]}) for end in ("low", "high") if end in bits]
    # Those that take part anyway.
    return [one for one in found if one not in FEW]


def _convert(observer: Observer, kept: corpus.Kept, method: str, settings: Settings, inline: bool) -> None:
    key = f"{kept.name} {label(method, settings)}{' inline' * inline}"
    ours = method == "deferred-log"
    work = partial(_converted, observer, kept, method, settings, inline, key)
    if not observer.attempt(BYTES_OF_DEFERRED_LOG if ours else "models", key, work) or not ours:
        return
    model = onnx.load("converted/model.onnx")
    if not inline:
        observer.see("functions", key, _functions(model))
    if kept.use.forms or kept.name in ("softmax", "attention", "mnist_vit", "softmax-int8"):
        observer.attempt("outputs of deferred-log", key, partial(_outputs, model, kept))


def _converted(observer: Observer, kept: corpus.Kept, method: str, settings: Settings, inline: bool, key: str) -> bytes:
    import softq
    import softq.modelfile

    result = softq.convert(
        kept.relative, method=method, settings=settings, all_sites=True, masks=kept.use.masks, inline=inline,
        allow_substitute=True,
    )  # fmt: skip
    if not inline:
        observer.see("plans", key, result.plan.to_text() + "".join(f"warning: {text}\n" for text in result.warnings))
    shutil.rmtree("converted", ignore_errors=True)
    Path("converted").mkdir()
    softq.modelfile.save(result.model, "converted/model.onnx")
    return b"".join(path.name.encode() + path.read_bytes() for path in sorted(Path("converted").iterdir()))


def _functions(model: onnx.ModelProto) -> str:
    """Return names, inputs, outputs, attributes and domains of a model's functions, and where they are called."""
    lines = [f"{x.domain}::{x.name} {list(x.input)} -> {list(x.output)} {list(x.attribute)}" for x in model.functions]
    lines += [f"{x.domain} {x.version}" for x in model.opset_import]
    for node in model.graph.node:
        if node.domain == "softq":
            lines.append(f"{node.op_type} {list(node.input)} -> {list(node.output)} {[str(a) for a in node.attribute]}")
    return "\n".join(lines) + "\n"


def _outputs(model: onnx.ModelProto, kept: corpus.Kept) -> bytes:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # an opset that it does not know
        return f"onnxruntime: {type(error).__name__}".encode()
    found: dict[str, corpus.Array] = {}
    for run, feed in enumerate(kept.feeds()):
        results = session.run(None, feed)
        found |= {f"{run}/{x.name}": np.asarray(y) for x, y in zip(session.get_outputs(), results, strict=True)}
    return bits_of(found)
