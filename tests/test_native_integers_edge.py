"""Products and convolutions of 8-bit integers on small processors, by dot products and without: to the bit NumPy's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, parser

pytest.importorskip("tvm")
pytest.importorskip("ziglang")

import softq
from softq.artifact.machine import Cpu
from softq.codegen.cpu.machines import AARCH64, ARMV7, RISCV64
from tests.emulators import emulator

PROCESSORS = {
    "neon": ("aarch64", "aarch64"),
    "dotprod": ("aarch64", "aarch64,features=+dotprod"),
    "i8mm": ("aarch64", "aarch64,features=+dotprod+i8mm"),
    "cortex-a76": ("aarch64", "aarch64,mcpu=cortex-a76"),
    "armv7": ("armv7", "armv7"),
    "riscv64": ("riscv64", "riscv64"),
    "riscv64v": ("riscv64v", "riscv64,features=+m+a+f+d+c+v"),
}
"""The emulator and the target."""

SYMBOLS = {"dotprod": "softq_dot_signed", "i8mm": "softq_dot_bytes", "cortex-a76": "softq_dot_signed"}
OTHERWISE = "softq_dot_words"

ROWS, INNER, COLUMNS = 23, 37, 21
WINDOWS = (COLUMNS // 3, INNER, 3)
"""The right operands as kernels."""


def right_operands() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the constant right operands, the unsigned one first."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (INNER, COLUMNS)), rng.integers(-128, 128, (INNER, COLUMNS))


def products() -> ModelProto:
    """Return products of every pair of types, by constant and by computed right operands, then convolutions."""
    unsigned, signed = right_operands()
    constants = ", ".join(
        f"{dtype}[{INNER}, {COLUMNS}] {name} = {{{str(array.ravel().tolist())[1:-1]}}}"
        for name, dtype, array in (("du", "uint8", unsigned), ("ds", "int8", signed))
    )
    pairs = [(a, b) for a in ("x", "xs") for b in ("du", "ds", "xt", "xst")]
    zeros = {"x": "zu", "xs": "zs", "du": "wu", "ds": "ws", "xt": "wu", "xst": "ws"}
    lines = [f"p{i} = MatMulInteger({a}, {b}, {zeros[a]}, {zeros[b]}) f{i} = Reshape(p{i}, flat)"
             for i, (a, b) in enumerate(pairs)]  # fmt: skip
    return parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (uint8[m, {INNER}] x) => (int32[t] y)
    <{constants}, uint8 zu = {{131}}, int8 zs = {{-5}}, uint8 wu = {{250}}, int8 ws = {{-128}}, int32 half = {{128}},
     int64[1] flat = {{-1}}, int64[1] first = {{0}}, int64[3] windows = {{{WINDOWS[0]}, {INNER}, 3}}>
    {{
        wide = Cast <to = 6> (x)
        less = Sub(wide, half)
        xs = Cast <to = 3> (less)
        xt = Transpose(x)
        xst = Transpose(xs)
        {" ".join(lines)}
        line = Unsqueeze(xt, first)
        signed_line = Unsqueeze(xst, first)
        ku = Reshape(du, windows)
        ks = Reshape(ds, windows)
        c0 = ConvInteger <pads = [1, 1]> (line, ku, zu, wu)
        c1 = ConvInteger <pads = [1, 1], strides = [2]> (signed_line, ks, zs, ws)
        g0 = Reshape(c0, flat)
        g1 = Reshape(c1, flat)
        y = Concat <axis = 0> ({", ".join(f"f{i}" for i in range(len(pairs)))}, g0, g1)
    }}
    """)


def expected(x: NDArray[np.uint8]) -> NDArray[np.int32]:
    unsigned, signed = right_operands()
    wide = x.astype(np.int64)
    found = []
    for a in (wide - 131, wide - 128 + 5):
        for b in (unsigned - 250, signed + 128, wide.T - 250, wide.T - 128 + 128):
            found.append((a @ b).ravel())
    for line, kernels, step in ((wide - 131, unsigned - 250, 1), (wide - 128 + 5, signed + 128, 2)):
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(line.T, ((0, 0), (1, 1))), 3, 1)[:, ::step]
        found.append(np.einsum("mck,cpk->mp", kernels.reshape(WINDOWS), windows).ravel())
    return np.concatenate(found).astype(np.int32)


def attention() -> ModelProto:
    """Return an attention of bytes between QuantizeLinear and DequantizeLinear, queries, keys and values in one."""
    split = "\n".join(f"{n}d = DequantizeLinear({n}, s, z)" for n in "qkv")
    return parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (uint8[2, n, 57] x) => (uint8[2, n, 19] y)
    <float s = {{0.03}}, uint8 z = {{128}}, float t = {{0.11}}, float sp = {{0.0039215689}}, uint8 zp = {{0}},
     int64[3] parts = {{19, 19, 19}}>
    {{
        q, k, v = Split <axis = 2> (x, parts)
        {split}
        kt = Transpose <perm = [0, 2, 1]> (kd)
        scores = MatMul(qd, kt)
        c = QuantizeLinear(scores, t, z)
        d = DequantizeLinear(c, t, z)
        p = Softmax <axis = -1> (d)
        pc = QuantizeLinear(p, sp, zp)
        pd = DequantizeLinear(pc, sp, zp)
        o = MatMul(pd, vd)
        y = QuantizeLinear(o, s, z)
    }}
    """)


@pytest.mark.slow  # An emulator, and a library of C compiled for it.
@pytest.mark.parametrize("name", PROCESSORS)
def test_products(name: str, tmp_path: Path) -> None:
    processor, target = PROCESSORS[name]
    built = softq.build(products(), tmp_path / "built", target=target).folder
    assert f"{SYMBOLS.get(name, OTHERWISE)}_sums".encode() in (built / "kernels.o").read_bytes()
    for rows in (1, ROWS, 70):
        x = np.random.default_rng(rows).integers(0, 256, (rows, INNER)).astype(np.uint8)
        found = np.frombuffer(emulator(processor).run(built, x.tobytes(), [rows]), np.int32)
        np.testing.assert_array_equal(found, expected(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_attention(name: str, tmp_path: Path) -> None:
    processor, target = PROCESSORS[name]
    model = softq.convert(attention(), method="deferred-log").model
    built = softq.build(model, tmp_path / "built", target=target).folder
    here = softq.load(softq.build(model, tmp_path / "here", target="cpu").folder)
    for length in (1, 33, 130):
        x = np.clip(np.random.default_rng(length).normal(128, 40, (2, length, 57)), 0, 255).astype(np.uint8)
        found = np.frombuffer(emulator(processor).run(built, x.tobytes(), [length]), np.uint8).reshape(2, length, 19)
        np.testing.assert_array_equal(found, here({"x": x})["y"])
        assert len(np.unique(found)) > 10 or length == 1


@pytest.mark.parametrize(
    ("machine", "features"),
    [
        (AARCH64.machine("aarch64", "cortex-a53", ""), ()),
        (AARCH64.machine("aarch64", "cortex-a53", "+dotprod"), ("dotprod",)),
        (AARCH64.machine("aarch64", "neoverse-n1", ""), ("fullfp16", "rdm", "dotprod")),
        (ARMV7.machine("armv7", "cortex-a7", ""), ("neon", "vfp4")),
        (RISCV64.machine("riscv64", "generic-rv64", "+v"), ("v",)),
    ],
)
def test_what_a_processor_must_have(machine: Cpu, features: tuple[str, ...]) -> None:
    assert machine.requires == features
