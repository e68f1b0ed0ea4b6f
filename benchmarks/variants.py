"""Every form that real models take: softmaxes found, and what converting them changes in the model's own task.

    python -m benchmarks.variants [--models DIR]

For each model: the softmaxes that there are (counted by hand), those found and converted, the task's metric in float,
with the method exact and with 4-bit deferred-log. All are converted, also where the policy would keep them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

import softq
from softq.modelfile import save


@dataclass(frozen=True)
class Variant:
    """One model.

    Attributes:
        folder: Its folder below the models', or a path to one of onnx's own test models.
        build: Module and arguments that build it; empty for one that comes with onnx.
        softmaxes: How many there are.
        metric: Its task's.
    """

    folder: str
    build: tuple[str, ...]
    softmaxes: int
    metric: str


_MINILM = ("eager", "opset11", "opset14", "sdpa18", "sdpa23", "fp16")
VARIANTS = (
    *(Variant(f"minilm-{name}", ("models.minilm", "--variant", name), 6, "spearman") for name in _MINILM),
    Variant("minilm-fused", ("models.third_party",), 6, "spearman"),
    Variant("minilm-int8", ("models.third_party",), 6, "spearman"),
    Variant("magika", ("models.third_party",), 1, "top1-accuracy"),
    Variant("light_resnet50.onnx", (), 1, "relative-error"),
)
METHODS = {"exact": {}, "deferred-log": {"bits": 4}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="folder of built models")
    given = parser.parse_args()
    onnxruntime.set_default_logger_severity(3)
    print("| model | forms | there are | found | converted | float | exact | 4-bit deferred-log |")
    print("|---|---|---|---|---|---|---|---|")
    for variant in VARIANTS:
        model, data = _built(variant, given.models)
        sites = softq.inspect(model, all_sites=True)
        forms = ", ".join(f"{count} {form}" for form, count in Counter(site.form for site in sites).items())
        cells: list[str] = []
        converted: set[int] = set()
        for method, settings in METHODS.items():
            result = softq.convert(model, method=method, settings=settings, all_sites=True)
            converted.add(len(result.plan.sites))
            out = model.with_name(f"variant.{method}.onnx")
            save(result.model, out, source=model)
            (metric,) = softq.check(model, out, data, metrics=[variant.metric], threads=1).metrics
            if not cells:
                cells.append("-" if metric.reference is None else f"{metric.reference:.5f}")
            cells.append(f"{metric.candidate:.5f}")
            out.unlink()
        count = "/".join(map(str, sorted(converted)))
        print(f"| {variant.folder} | {forms} | {variant.softmaxes} | {len(sites)} | {count} | {' | '.join(cells)} |")


def _built(variant: Variant, models: Path) -> tuple[Path, object]:
    if not variant.build:
        return _light(variant.folder, models)
    module, *arguments = variant.build
    folder = models / variant.folder
    target = models if module == "models.third_party" else folder
    subprocess.run([sys.executable, "-m", module, str(target), *arguments], check=True, stdout=subprocess.DEVNULL)
    return folder / "model.onnx", folder / "data.npz"


def _light(name: str, models: Path) -> tuple[Path, object]:
    """Return a model of onnx's own tests, at opset 9, whose default axis is not the last; its inputs are drawn."""
    import numpy as np

    source = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / name
    folder = models / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(source.read_bytes())
    graph = onnx.load(source).graph
    weights = {tensor.name for tensor in graph.initializer}
    (image,) = [value for value in graph.input if value.name not in weights]
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    np.savez(folder / "data.npz", **{image.name: np.random.default_rng(0).normal(size=shape).astype(np.float32)})
    return folder / "model.onnx", folder / "data.npz"


if __name__ == "__main__":
    main()
