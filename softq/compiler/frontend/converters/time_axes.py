"""Operators along the time axis of batches: reversal of sequences, caches that are written, and counts of n-grams."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.selections import compute
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.errors import RefusalError


def _reverse_sequence(node: Node) -> list[relax.Expr]:
    time, batch = int(node.attributes.get("time_axis", 0)), int(node.attributes.get("batch_axis", 1))

    def reversed_parts(x: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            step, length = at[time], lengths[at[batch]].astype("int64")
            # A length beyond the axis would read outside it.
            back = tirx.max(tirx.min(length, x.shape[time]) - 1 - step, 0)
            where = [*at]
            where[time] = tirx.Select(step < length, back, step)
            return x[tuple(where)]

        return te.compute(x.shape, element, name="reversed_parts")

    return [compute(node, "reversed_parts", reversed_parts, node.tensor(0), node.tensor(1))]


def _tensor_scatter(node: Node) -> list[relax.Expr]:
    dims = node.shape(0)
    axis, circular = node.axis(node.attributes.get("axis", -2), len(dims)), node.attributes.get("mode") == "circular"

    def written(cache: Any, update: Any, *first: Any) -> Any:
        length = cache.shape[axis]

        def element(*at: Any) -> Any:
            place = at[axis] - (first[0][at[0]].astype("int64") if first else tirx.IntImm("int64", 0))
            place = tirx.floormod(place, length) if circular else place
            inside = tirx.all(place >= 0, place < update.shape[axis])
            return tirx.if_then_else(inside, update[(*at[:axis], place, *at[axis + 1 :])], cache[at])

        return te.compute(cache.shape, element, name="written")

    return [compute(node, "written", written, *(node.tensor(i) for i in range(3) if node.has(i)))]


def _tf_idf(node: Node) -> list[relax.Expr]:
    x, given = node.tensor(0), node.attributes
    if "pool_int64s" not in given:
        raise RefusalError(f"TfIdfVectorizer {node.name!r} has a pool of strings, which a built model has not")
    pool, places = [int(v) for v in given["pool_int64s"]], [int(v) for v in given["ngram_indexes"]]
    weights, mode = list(given.get("weights", [])), str(given["mode"])
    if len(set(places)) < len(places) or (weights and mode != "TF" and places != sorted(places)):
        raise RefusalError(f"TfIdfVectorizer {node.name!r}: its n-grams do not have a place of their own each")
    found: list[relax.Expr] = []
    columns: list[int] = []
    ends = [*given["ngram_counts"], len(pool)]
    entry = 0
    for size, (begin, end) in enumerate(itertools.pairwise(ends), 1):
        grams = np.array(pool[begin:end], np.int64).reshape(-1, size)
        if given["min_gram_length"] <= size <= given["max_gram_length"] and len(grams):
            found.append(_occurrences(node, x, grams, 0 if size == 1 else int(given["max_skip_count"])))
            columns += places[entry : entry + len(grams)]
        entry += len(grams)
    width = max(places) + 1
    source = np.full(width, -1, np.int64)
    source[columns] = np.arange(len(columns))
    dims = list(x.ty.shape.values)
    if not found:
        return [node.emit(relax.op.zeros(relax.ShapeExpr([*dims[:-1], width]), "float32"))]
    every = found[0] if len(found) == 1 else node.emit(relax.op.concat(found, -1))
    scale = np.ones(width, np.float32)
    if weights and mode != "TF":
        scale[places] = weights
    tensors = [every, constant(source), constant(scale)]

    def placed(every: Any, source: Any, scale: Any) -> Any:
        def element(*at: Any) -> Any:
            number = every[(*at[:-1], tirx.max(source[at[-1]], 0))]
            if mode == "IDF":
                number = tirx.min(number, 1)
            value = number.astype("float32") * scale[at[-1]]
            return tirx.Select(source[at[-1]] < 0, tirx.const(0.0, "float32"), value)

        return te.compute([*every.shape[:-1], width], element, name="placed")

    return [compute(node, "placed", placed, *tensors)]


def _occurrences(node: Node, x: relax.Expr, grams: Any, most: int) -> relax.Expr:
    """Return how often each n-gram stands in each row, with up to so many elements left out between two of it."""
    size = grams.shape[1]

    def occurrences(x: Any, grams: Any) -> Any:
        length = x.shape[-1]
        skip, first = te.reduce_axis((0, most + 1), "skip"), te.reduce_axis((0, length), "first")

        def element(*at: Any) -> Any:
            tests = [first + (size - 1) * (skip + 1) < length]
            for i in range(size):
                place = tirx.min(first + i * (skip + 1), length - 1)
                tests.append(x[(*at[:-1], place)].astype("int64") == grams[at[-1], i])
            return te.sum(tirx.all(*tests).astype("int64"), axis=[skip, first])

        return te.compute([*x.shape[:-1], grams.shape[0]], element, name="occurrences")

    return compute(node, "occurrences", occurrences, x, constant(grams))


CONVERTERS: Mapping[str, Converter] = {
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
    "TfIdfVectorizer": _tf_idf,
}
