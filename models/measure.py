"""Measures a model folder through onnxruntime and keeps the cards of the committed models true.

    python -m models.measure mnist_vit wikipedia_lm       measure, then write card.json and the README's figures
    python -m models.measure --folder OUT perplexity      measure a built model, print the figure

This needs numpy, onnx and onnxruntime only. The metrics are written out once more here on purpose: figures in the
cards should not depend on the package whose results they judge.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from models._common import BuildError, run_builder, sha256, write_json

HERE = Path(__file__).parent
_FIGURES = re.compile(r"(?<=<!-- figures -->\n).*(?=<!-- /figures -->)", re.S)
_BATCH = 100


def session(path: Path) -> onnxruntime.InferenceSession:
    """Returns a session of the model at `path` on one CPU thread, so that figures do not depend on the machine."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def samples(data: Path, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the arrays of an `.npz` file, or of each one in a folder, `batch` samples at a time."""
    for file in sorted(data.glob("*.npz")) if data.is_dir() else [data]:
        arrays = dict(np.load(file, allow_pickle=False))
        count = len(next(iter(arrays.values())))
        for start in range(0, count, batch):
            yield {name: array[start : start + batch] for name, array in arrays.items()}


Model = Path | Callable[[dict[str, np.ndarray]], np.ndarray]
"""An ONNX file, or what computes the first output from the inputs by name."""


def outputs(model: Model, data: Path, batch: int) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields the model's first output beside the arrays it came from."""
    compute = _compute(model) if isinstance(model, Path) else model
    for arrays in samples(data, batch):
        given = {name: array for name, array in arrays.items() if not name.startswith("label.")}
        yield np.asarray(compute(given)), arrays


def _compute(path: Path) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    run = session(path)
    names = [value.name for value in run.get_inputs()]
    return lambda given: np.asarray(run.run(None, {name: given[name] for name in names})[0])


def accuracy(model: Model, data: Path) -> float:
    """Returns the share of samples whose largest logit is their `label.digit`."""
    right = [logits.argmax(axis=-1) == arrays["label.digit"] for logits, arrays in outputs(model, data, _BATCH)]
    return float(np.concatenate(right).mean())


def perplexity(model: Model, data: Path) -> float:
    """Returns exp of the mean negative log likelihood; the logits at t predict token t + 1 of `label.tokens`."""
    return float(np.exp(np.concatenate(window_losses(model, data)).mean()))


def window_losses(model: Model, data: Path) -> list[np.ndarray]:
    """Returns for each window the negative log likelihoods of its tokens but the first, float64."""
    losses: list[np.ndarray] = []
    for logits, arrays in outputs(model, data, 1):
        tokens = arrays["label.tokens"][0, 1:]
        rows = logits[0, :-1].astype(np.float64)
        top = rows.max(axis=-1)
        log_sum = top + np.log(np.exp(rows - top[:, None]).sum(axis=-1))
        losses.append(log_sum - rows[np.arange(len(tokens)), tokens])
    return losses


def spearman(model: Model, data: Path) -> float:
    """Returns the rank correlation of the pairwise cosines with `label.similarity`, above the diagonal."""
    pairs = list(outputs(model, data, _BATCH))
    vectors = np.concatenate([vector for vector, _ in pairs]).astype(np.float64)
    wanted = np.concatenate([arrays["label.similarity"] for _, arrays in pairs])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    above = np.triu_indices(len(vectors), 1)
    return float(np.corrcoef(_ranks((vectors @ vectors.T)[above]), _ranks(wanted[above]))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Equal values share their mean rank."""
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[index]


METRICS: dict[str, Callable[[Model, Path], float]] = {
    "accuracy": accuracy,
    "perplexity": perplexity,
    "spearman": spearman,
}
COMMITTED = {"mnist_vit": "accuracy", "wikipedia_lm": "perplexity"}


def softmaxes(model: Path) -> int:
    """Returns the number of Softmax operators, those in model-local functions included."""
    proto = onnx.load(model, load_external_data=False)
    graphs = (proto.graph, *proto.functions)
    return sum(node.op_type == "Softmax" for graph in graphs for node in graph.node)


def card(folder: Path, name: str) -> dict[str, object]:
    """Returns what the card of the committed model `name` states, measured now from the files in `folder`."""
    model, data = folder / f"{name}.onnx", folder / "data.npz"
    files = sorted(
        path for path in folder.iterdir() if path.suffix in {".onnx", ".npz"} or path.name == "tokenizer.json"
    )
    return {
        COMMITTED[name]: round(METRICS[COMMITTED[name]](model, data), 4),
        "softmaxes": softmaxes(model),
        "initializer_floats": sum(
            int(np.prod(t.dims)) for t in onnx.load(model).graph.initializer if t.data_type == onnx.TensorProto.FLOAT
        ),
        "opset": next(entry.version for entry in onnx.load(model).opset_import if entry.domain == ""),
        "samples": len(np.load(data)[next(iter(np.load(data)))]),
        "files": {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files},
    }


def table(stated: dict[str, object]) -> str:
    """Returns the figures of a card as Markdown, as the README holds them."""
    files = stated["files"]
    assert isinstance(files, dict)
    lines = ["| figure | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in stated.items() if key != "files"]
    lines += ["", "| file | bytes | SHA-256 |", "|---|---|---|"]
    lines += [f"| {name} | {entry['bytes']} | `{entry['sha256']}` |" for name, entry in files.items()]
    return "\n".join(lines) + "\n"


def write_card(folder: Path, name: str) -> None:
    """Measures the committed model `name` in `folder` and writes card.json and the figures of README.md.

    Raises:
        BuildError: the README has no place for the figures.
    """
    stated = card(folder, name)
    write_json(folder / "card.json", stated)
    readme = folder / "README.md"
    if readme.exists():
        text, count = _FIGURES.subn(lambda _: table(stated), readme.read_text(encoding="utf-8"))
        if count != 1:
            raise BuildError(f"{readme.name} of {name}: expected one pair of figures marks, found {count}")
        readme.write_text(text, encoding="utf-8")
    print(f"{name}: {COMMITTED[name]} {stated[COMMITTED[name]]}", flush=True)


def main() -> int:
    """Returns the exit status of the command line."""
    parser = argparse.ArgumentParser(description="Measure models through onnxruntime at one thread.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="committed models, or with --folder a metric")
    parser.add_argument("--folder", type=Path, help="a built model: model.onnx and data.npz or data/")
    parser.add_argument("--data", default="data", help="the data's name in that folder (default: data)")
    chosen = parser.parse_args()

    def build() -> None:
        allowed = METRICS if chosen.folder else COMMITTED
        for name in chosen.names:
            if name not in allowed:
                raise BuildError(f"unknown name {name!r}; allowed: {', '.join(allowed)}")
            if chosen.folder:
                data = chosen.folder / chosen.data
                data = data if data.is_dir() else data.with_suffix(".npz")
                if not data.exists():
                    raise BuildError(f"{chosen.folder} has neither {chosen.data}.npz nor a folder {chosen.data}")
                print(f"{name} {METRICS[name](chosen.folder / 'model.onnx', data):.4f}")
            else:
                write_card(HERE / name, name)

    return run_builder(build)


if __name__ == "__main__":
    raise SystemExit(main())
