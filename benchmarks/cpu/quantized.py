"""Models that onnxruntime quantized, weights and activations both, built as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import softq
from benchmarks.cpu.models import METHODS, ONNXRUNTIME, artifact, session
from benchmarks.cpu.section import Result, Section, Settings
from benchmarks.cpu.timing import ratio, take_turns
from benchmarks.cpu.works import WORKS, Feeds, Work

ROUNDS = 21
SAMPLES = 4
"""Inputs on which the quantizer measures ranges; speed does not depend on them."""

FLOAT = "onnxruntime, the float model"


@dataclass(frozen=True)
class Kind:
    """How activations are quantized.

    Attributes:
        signed: Whether codes are int8; else uint8.
        symmetric: Whether zero points are 0.
    """

    signed: bool
    symmetric: bool


KINDS: Mapping[str, Kind] = {"uint8 with zero points": Kind(False, False), "int8, symmetric": Kind(True, True)}
PLACES = ("MNIST-ViT-1", "MNIST-ViT-64", "MiniLM-1x128")


def measure(settings: Settings) -> Iterable[Result]:
    """Yield the results, a model at a time."""
    for place in PLACES:
        if settings.wants(place):
            for name, kind in KINDS.items():
                yield from _measured(place, WORKS[place], name, kind, settings)


def _measured(place: str, work: Work, name: str, kind: Kind, settings: Settings) -> Iterable[Result]:
    chosen = {f"{m}, {name}": m for m in METHODS if settings.wants(place, f"{m}, {name}")}
    if not chosen:
        return
    feeds = work.feeds(np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as scratch:
        quantized = Path(scratch) / "quantized.onnx"
        quantize(work, quantized, kind)
        for i, method in enumerate(chosen.values()):
            model = softq.convert(quantized, method=METHODS[method][0], settings=METHODS[method][1]).model
            softq.build(model, Path(scratch) / str(i), target=f"cpu,mcpu={settings.cpu}")
        for threads in settings.threads:
            calls = {
                ONNXRUNTIME: session(quantized, feeds, threads),
                FLOAT: session(work.path(), feeds, threads),
                **{text: artifact(Path(scratch) / str(i), feeds, threads) for i, text in enumerate(chosen)},
            }
            times = take_turns(calls, settings.rounds or ROUNDS)
            for text in chosen:
                for rival in (ONNXRUNTIME, FLOAT):
                    yield ratio(times, text, rival, work=text, place=place, threads=threads, limit=None)


def quantize(work: Work, out: Path, kind: Kind) -> None:
    """Write the model as onnxruntime's static quantizer makes it, with QuantizeLinear and DequantizeLinear."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = [value.name for value in onnx.load(work.path(), load_external_data=False).graph.input]

    class Reader(CalibrationDataReader):
        """What the quantizer takes samples from."""

        def __init__(self) -> None:
            samples = (work.feeds(np.random.default_rng(i)) for i in range(SAMPLES))
            self._left = iter([{name: sample[name] for name in names} for sample in samples])

        def get_next(self) -> Feeds | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return next(self._left, None)

    prepared = out.with_name("prepared.onnx")
    quant_pre_process(str(work.path()), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(out),
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8 if kind.signed else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": kind.symmetric},
    )


SECTION = Section(
    name="quantized",
    title="Quantized models",
    text=(
        "Models that onnxruntime.quantization.quantize_static wrote (format QDQ, 8 bits, weights int8), converted and "
        "built, against onnxruntime with the same quantized model, and with the float one. Inputs are as above."
    ),
    measure=measure,
)
