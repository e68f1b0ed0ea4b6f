"""Operators that draw random numbers, which a built model has not."""

from __future__ import annotations

from collections.abc import Mapping

from softq.compiler.frontend.onnx_node import Converter

CONVERTERS: Mapping[str, Converter] = {}

REFUSED: Mapping[str, str] = dict.fromkeys(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "draws random numbers; a built model gives the same result each run: make what it draws an input",
)
