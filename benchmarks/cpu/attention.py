"""Float attention of 12 heads of 64 numbers: the whole of a built model against the fused operators of others."""

from __future__ import annotations

import ctypes
import multiprocessing
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import softq
from benchmarks.cpu.section import Result, Section, Settings
from benchmarks.cpu.timing import Call, ratio, take_turns

if TYPE_CHECKING:
    import onnx

Array = NDArray[np.generic]

HEADS, WIDTH = 12, 64
LENGTHS = {512: 0.97, 4096: 0.95}
"""Lengths, and the ratio that is aimed at."""

ROUNDS = {512: 41, 4096: 7}
MEMORY = 1 / 20
"""The share of the rival's memory that is aimed at, for the longest rows."""

ORT, TORCH = "onnxruntime MultiHeadAttention", "torch scaled_dot_product_attention"
WHOLE = "onnxruntime MatMul, Softmax, MatMul"
"""The rival that keeps all scores."""

BYTES = {
    "attention of bytes, 4-bit deferred-log, 15-bit weights": 15,
    "attention of bytes, 4-bit deferred-log, 8-bit weights": 8,
}
"""Bits of the weights by the work; queries, keys and values are int8."""

QUANTIZED = "attention of bytes, built from QuantizeLinear and DequantizeLinear, 4-bit deferred-log"
"""A whole graph: operands and result are uint8, and so are the probabilities on their way to the values."""

BYTES_LIMIT = 0.45
METHODS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "attention, exact": ("exact", {}),
    "attention, 4-bit deferred-log": ("deferred-log", {}),
    "attention, 4-bit deferred-log, rest=mean": ("deferred-log", {"rest": "mean"}),
}
"""Method and settings by the work."""


def measure(settings: Settings) -> Iterator[Result]:
    """Yield the results, shape by shape."""
    for length, limit in LENGTHS.items():
        place = f"{HEADS}x{length}x{WIDTH}"
        if not settings.wants(place):
            continue
        chosen = {work: made for work, made in METHODS.items() if settings.wants(place, work)}
        given = inputs(length)
        with tempfile.TemporaryDirectory() as folder:
            for work, (method, options) in chosen.items():
                build(model(length), method, options, Path(folder) / work, settings.cpu)
            if settings.wants(place, QUANTIZED):
                build(quantized(length), "deferred-log", {}, Path(folder) / "quantized", settings.cpu)
            for threads in settings.threads:
                rivals = {
                    ORT: Onnxruntime(model(length).SerializeToString(), threads)(given),
                    TORCH: _torch(given, threads),
                }
                built = {work: Built(Path(folder) / work, threads)(given) for work in chosen}
                if settings.wants(place, QUANTIZED):
                    codes = {n: _codes(length, seed) for seed, n in enumerate("qkv")}
                    built[QUANTIZED] = Built(Path(folder) / "quantized", threads)(codes)
                if threads == 1:
                    built |= {w: _bytes(length, b, settings.cpu) for w, b in BYTES.items() if settings.wants(place, w)}
                times = take_turns({**rivals, **built}, settings.rounds or ROUNDS[length])
                for work in built:
                    for rival in rivals:
                        aim = (BYTES_LIMIT if work in (*BYTES, QUANTIZED) else limit) if rival == ORT else None
                        yield ratio(times, work, rival, work=work, place=place, threads=threads, limit=aim)
            if length == max(LENGTHS):
                models = {ORT: (model(length), None), WHOLE: (whole(length), MEMORY)}
                for work in chosen:
                    mine = peak(partial(Built, Path(folder) / work, 1), length)
                    for rival, (graph, aim) in models.items():
                        other = peak(partial(Onnxruntime, graph.SerializeToString(), 1), length)
                        share = mine / other
                        yield Result(work, rival, place, 1, aim, mine, other, share, share, share, share, "B")


def inputs(length: int) -> dict[str, Array]:
    """Return queries, keys and values as [1, length, heads x width]."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, length, HEADS * WIDTH), dtype=np.float32) for name in "qkv"}


def _codes(length: int, seed: int) -> Array:
    normal = np.random.default_rng(seed).normal(128, 1 / 0.03, (1, length, HEADS * WIDTH))
    return np.clip(np.rint(normal), 0, 255).astype(np.uint8)


def model(length: int) -> onnx.ModelProto:
    """Return onnxruntime's operator as a model."""
    import onnx

    shape = [1, length, HEADS * WIDTH]
    q, k, v, out = (
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("q", "k", "v", "out")
    )
    node = onnx.helper.make_node(
        "MultiHeadAttention", ["q", "k", "v"], ["out"], domain="com.microsoft", num_heads=HEADS
    )
    graph = onnx.helper.make_graph([node], "attention", [q, k, v], [out])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def whole(length: int) -> onnx.ModelProto:
    """Return the same attention as single operators."""
    import onnx

    split = "".join(
        f"{x}s = Reshape(@, split) {x}t = Transpose <perm = [0, 2, {rows}]> ({x}s)\n".replace("@", x)
        for x, rows in (("q", "1, 3"), ("k", "3, 1"), ("v", "1, 3"))
    )
    numbers = f"float[1, {length}, {HEADS * WIDTH}]"
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 18]>
    attention ({", ".join(f"{numbers} {x}" for x in "qkv")}) => ({numbers} out)
    <int64[4] split = {{1, {length}, {HEADS}, {WIDTH}}}, int64[3] flat = {{1, {length}, {HEADS * WIDTH}}},
     float scale = {{{WIDTH**-0.5}}}>
    {{
        {split}
        scores = MatMul(qt, kt)
        scaled = Mul(scores, scale)
        p = Softmax <axis = -1> (scaled)
        heads = MatMul(p, vt)
        turned = Transpose <perm = [0, 2, 1, 3]> (heads)
        out = Reshape(turned, flat)
    }}
    """)


def quantized(length: int) -> onnx.ModelProto:
    """Return the same attention of uint8 codes, with quantization where onnxruntime's quantizer has it."""
    import onnx

    split = "".join(
        f"""
        {x}r = Reshape({x}, split)
        {x}d = DequantizeLinear({x}r, step, zero)
        {x}t = Transpose <perm = [0, 2, {rows}]> ({x}d)
        {x}c = QuantizeLinear({x}t, step, zero)
        {x}h = DequantizeLinear({x}c, step, zero)
        """
        for x, rows in (("q", "1, 3"), ("k", "3, 1"), ("v", "1, 3"))
    )
    codes = f"uint8[1, {length}, {HEADS * WIDTH}]"
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 20]>
    attention ({", ".join(f"{codes} {x}" for x in "qkv")}) => ({codes} out)
    <int64[4] split = {{1, {length}, {HEADS}, {WIDTH}}}, int64[3] flat = {{1, {length}, {HEADS * WIDTH}}},
     float scale = {{{WIDTH**-0.5}}}, float step = {{0.03}}, uint8 zero = {{128}}, float of_scores = {{0.25}},
     float of_scaled = {{0.03}}, float of_p = {{0.00392156863}}, uint8 zero_p = {{0}}>
    {{
        {split}
        scores = MatMul(qh, kh)
        scores_c = QuantizeLinear(scores, of_scores, zero)
        scores_d = DequantizeLinear(scores_c, of_scores, zero)
        scaled = Mul(scores_d, scale)
        scaled_c = QuantizeLinear(scaled, of_scaled, zero)
        scaled_d = DequantizeLinear(scaled_c, of_scaled, zero)
        p = Softmax <axis = -1> (scaled_d)
        p_c = QuantizeLinear(p, of_p, zero_p)
        p_d = DequantizeLinear(p_c, of_p, zero_p)
        heads = MatMul(p_d, vh)
        heads_c = QuantizeLinear(heads, step, zero)
        heads_d = DequantizeLinear(heads_c, step, zero)
        turned = Transpose <perm = [0, 2, 1, 3]> (heads_d)
        turned_c = QuantizeLinear(turned, step, zero)
        turned_d = DequantizeLinear(turned_c, step, zero)
        whole = Reshape(turned_d, flat)
        out = QuantizeLinear(whole, step, zero)
    }}
    """)


def build(graph: onnx.ModelProto, method: str, settings: Mapping[str, str], folder: Path, cpu: str) -> None:
    """Build a model with a method in the softmax's place."""
    converted = softq.convert(graph, method=method, settings=settings)
    softq.build(converted.model, folder, target=f"cpu,mcpu={cpu}")


def peak(made: partial[Loaded], length: int) -> float:
    """Return the bytes by which a process of its own grows while it runs for the first time."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_growth, (made, length))


class Loaded(ABC):
    """What takes inputs and returns a call on them."""

    @abstractmethod
    def __call__(self, given: Mapping[str, Array]) -> Call: ...


class Built(Loaded):
    def __init__(self, folder: Path, threads: int) -> None:
        self._artifact = softq.load(folder, threads)

    def __call__(self, given: Mapping[str, Array]) -> Call:
        return lambda: self._artifact(given)


class Onnxruntime(Loaded):
    def __init__(self, text: bytes, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])

    def __call__(self, given: Mapping[str, Array]) -> Call:
        return lambda: self._session.run(None, dict(given))


def _bytes(length: int, weight_bits: int, cpu: str) -> Call:
    """Return a call of the kernels for bytes, packing included, on operands with a head's rows together."""
    from benchmarks.cpu.integer_attention import integer_attention
    from benchmarks.cpu.native import library, pointer
    from softq.codegen.cpu.machines import host
    from softq.rowprog import DType

    chosen = softq.METHODS.get("deferred-log")
    options = chosen.resolve(chosen.configure({"bits": 4, "weight_bits": weight_bits}), False)
    machine = host("cpu", cpu, "")
    kernels = integer_attention(chosen.program(options, scores=DType.F32), machine, length)
    loaded, columns, count = library(kernels.functions, machine), kernels.tile.columns, kernels.weights.count
    rng, block = np.random.default_rng(0), 48 if length <= 1024 else 24
    q, k, v = (rng.integers(-128, 128, (HEADS, length, WIDTH), np.int8) for _ in range(3))
    panels, over = -(-length // columns), -(-WIDTH // columns)
    key_panels, key_starts = (
        np.zeros((HEADS, panels, WIDTH, columns), np.int8),
        np.zeros((HEADS, panels, columns), "i4"),
    )
    value_panels = np.zeros((HEADS, over, -(-length // count), columns, count), kernels.weights.right)
    value_starts, out = np.zeros((HEADS, over, columns), np.int32), np.zeros((HEADS, length, WIDTH), np.float32)
    scales = np.array([1e-3, 1e-2, 1], np.float32)
    scratch = np.zeros(kernels.scratch_bytes(block, length, WIDTH), np.uint8)
    blocks = HEADS * -(-length // block)
    sizes = [length, length, WIDTH, WIDTH, block, HEADS, length, 0, blocks]
    works: list[tuple[str, list[Array], list[int]]] = [
        (
            "softq_pack_keys_i8",
            [k, key_panels, key_starts],
            [WIDTH, length, 1, WIDTH, length * WIDTH, 0, 0, HEADS * panels],
        ),
        (
            "softq_pack_values_i8",
            [v, value_panels, value_starts],
            [length, WIDTH, 1, WIDTH, length * WIDTH, 0, 0, HEADS * over],
        ),
        ("softq_attention_i8", [q, key_panels, key_starts, value_panels, value_starts, scales, out, scratch], sizes),
    ]
    prepared = [(loaded[name], [*map(pointer, a), *map(ctypes.c_int64, n)]) for name, a, n in works]

    def call() -> object:
        assert works
        return [function(*arguments) for function, arguments in prepared]

    return call


def _growth(made: partial[Loaded], length: int) -> float:
    call = made()(inputs(length))
    # Linux: the peak starts anew.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(name: str) -> float:
    """Return a number of bytes that Linux tells of this process's memory: VmRSS, VmHWM."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _torch(given: Mapping[str, Array], threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    split = [np.ascontiguousarray(given[n].reshape(1, -1, HEADS, WIDTH).transpose(0, 2, 1, 3)) for n in "qkv"]
    q, k, v = (torch.from_numpy(array) for array in split)
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


SECTION = Section(
    "attention",
    "Attention",
    "Whole attentions of 12 heads, queries, keys and values [1, N, 768] as their projections give them (for torch "
    "split into heads beforehand), through a built model. Those of bytes with weights of so many bits are kernels "
    "alone, with the packing of keys and values, on one thread. Memory is what a process of its own grows by in its "
    "first run, the result's array included.",
    measure,
)
