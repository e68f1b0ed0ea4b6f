"""Decoding token by token with a converted model, against the float model.

    python -m benchmarks.decoding [--models DIR] [--tokens 64]

Builds SmolLM2 with keys and values of the past as inputs, converts it (4-bit deferred-log, and the exact method, which
shows what the conversion alone changes), and lets each model go on from the first 64 tokens of the four evaluation
articles, one token at a time, the most probable one always. It prints, for each method,

* how many of the tokens are the float model's, until the first that differs and in all;
* how often it would choose the float model's token after the float model's tokens;
* the perplexity of the article's own next tokens, fed one at a time, beside the float model's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import softq
from softq.modelfile import save

Array = NDArray[np.generic]
METHODS: Mapping[str, Mapping[str, int | float | str]] = {"exact": {}, "deferred-log": {"bits": 4}}
PROMPT = 64


class Decoder:
    """A model with keys and values of the past as inputs, in one thread of onnxruntime."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        _, *self._past = self._session.get_inputs()

    def start(self, tokens: Array) -> tuple[Array, list[Array]]:
        """Return the log-probabilities of the next token and the keys and values, for a prompt [1, length]."""
        heads, width = (int(size) for size in (self._past[0].shape[1], self._past[0].shape[3]))
        return self.step(tokens, [np.zeros((1, heads, 0, width), np.float32)] * len(self._past))

    def step(self, tokens: Array, past: Sequence[Array]) -> tuple[Array, list[Array]]:
        """Return the same after further tokens."""
        feeds = {"input_ids": tokens} | {value.name: array for value, array in zip(self._past, past, strict=True)}
        logits, *present = self._session.run(None, feeds)
        row = np.asarray(logits)[0, -1].astype(np.float64)
        return row - row.max() - np.log(np.exp(row - row.max()).sum()), present

    def go_on(self, prompt: Array, count: int, forced: Sequence[int] | None = None) -> tuple[list[int], list[float]]:
        """Return the most probable token at each step, and the negative log likelihood of the one that was fed."""
        row, past = self.start(prompt)
        chosen: list[int] = []
        losses: list[float] = []
        for position in range(count):
            chosen.append(int(row.argmax()))
            fed = chosen[-1] if forced is None else forced[position]
            losses.append(-float(row[fed]))
            row, past = self.step(np.array([[fed]]), past)
        return chosen, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="folder of built models")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    given = parser.parse_args()
    folder = given.models / "smollm2"
    subprocess.run([sys.executable, "-m", "models.smollm2", str(folder), "--decoder"], check=True)
    decoders = {"float": Decoder(folder / "decoder.onnx")}
    for method, settings in METHODS.items():
        out = folder / f"decoder.{method}.onnx"
        converted = softq.convert(folder / "decoder.onnx", method=method, settings=settings).model
        save(converted, out, source=folder / "decoder.onnx")
        decoders[method] = Decoder(out)
    texts = [np.load(file)["input_ids"] for file in sorted((folder / "data").glob("*.npz"))]
    losses: dict[str, list[float]] = {name: [] for name in decoders}
    equal: dict[str, list[tuple[int, int, int]]] = {name: [] for name in METHODS}
    for text in texts:
        prompt, article = text[:, :PROMPT], text[0, PROMPT : PROMPT + given.tokens].tolist()
        reference, _ = decoders["float"].go_on(prompt, given.tokens)
        for name, decoder in decoders.items():
            losses[name] += decoder.go_on(prompt, given.tokens, article)[1]
            if name in METHODS:
                own, _ = decoder.go_on(prompt, given.tokens)
                after, _ = decoder.go_on(prompt, given.tokens, reference)
                same = [a == b for a, b in zip(own, reference, strict=True)]
                first = same.index(False) if False in same else len(same)
                equal[name].append((first, sum(same), int(np.equal(after, reference).sum())))
    total = given.tokens * len(texts)
    print(
        f"{len(texts)} prompts of {PROMPT} tokens, {given.tokens} generated; perplexity of {total} tokens of the texts"
    )
    print(f"{'float':<14}perplexity {np.exp(np.mean(losses['float'])):.4f}")
    for name, rows in equal.items():
        first, same, after = (sum(column) for column in zip(*rows, strict=True))
        print(
            f"{name:<14}perplexity {np.exp(np.mean(losses[name])):.4f}; equal until the first other token {first} of "
            f"{total}, in all {same}; after float's own tokens {after}"
        )


if __name__ == "__main__":
    main()
