"""Every method's row kernels on this computer's GPU against the interpreter, every form of the products of matrices and
attentions of built models against float64: what PoCL's tests say, on the device.

    python -m benchmarks.gpu.check [products] [models] [METHOD ...]

Programs of integers have to be equal to the bit, sums of floats within 1e-5, and what is rounded after such a sum may
differ by one step in one of 1,000 elements. Products of integers are equal to the bit, others within the rounding of
each step of a sum. Ends with 1 if a kernel does not keep that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu import models, products
from benchmarks.gpu.card import Card, NoGpuError
from softq.artifact.device.steps import TileForm
from softq.codegen.common.patterns import output_type
from softq.codegen.gpu.gemm import write_gemm
from softq.codegen.gpu.rows import RowKernel, row_kernel
from softq.codegen.gpu.rows.load_store import bytes_of
from softq.codegen.gpu.rows.tiling import choose_tiling
from softq.errors import SoftqError
from softq.methods import METHODS
from softq.rowprog import DType, Program, run
from softq.rowprog.types import Kind

LENGTHS = (1, 3, 17, 64, 197, 1024, 2048, 4097, 30_001, 40_000, 65_536, 70_001)
_ROWS = 9
_SPECIAL = np.array([[1, 2, 3, -1], [np.inf, 0, np.inf, 1], [-np.inf] * 4, [np.nan, 1, 2, 3], [0, np.nan, np.inf, 1],
                     [-np.inf, 5, np.inf, -5], [1e-45, 0, -1e-45, -0.0]], np.float32)  # fmt: skip

Array = NDArray[np.generic]


def main() -> int:
    try:
        card = Card(1)
    except (NoGpuError, SoftqError) as error:
        print(f"not run: {error}", file=sys.stderr)
        return 2
    print(card.description(), flush=True)
    wrong = 0
    wanted = sys.argv[1:] or ["products", "models", *METHODS.entries()]
    if "products" in wanted:
        for left, right in products.KINDS:
            if left == "bf16" and card.arch == "sm_75":
                continue  # whose tensor cores do not have it
            for turned in (False, True):
                said = wrong_products(card, left, right, turned)
                print(f"product {left:4} {right:4} {'k-n' if turned else 'n-k'} {said or 'right'}", flush=True)
                wrong += bool(said)
    if "models" in wanted:
        for work in models.WORKS:
            for width in models.WIDTHS:
                said = models.wrong(card, work, width)
                print(f"{work.name}, heads of {width} {said or 'right'}", flush=True)
                wrong += bool(said)
    for name in wanted:
        if name in ("products", "models"):
            continue
        for program in programs(name):
            found = differences(card, program, LENGTHS)
            print(
                f"{name:24} {program.scores.value:4} {'masked' if program.masked else '':7} {found or 'right'}",
                flush=True,
            )
            wrong += bool(found)
    print(f"{wrong} programs are wrong" if wrong else "all are right")
    return int(wrong > 0)


def wrong_products(card: Any, left: str, right: str, turned: bool, sizes: Sequence[products.Size] = products.SIZES
                   ) -> str:  # fmt: skip
    """Return what is wrong with the forms of a product, one line; empty if nothing is."""
    torch, made = card.torch, write_gemm("p", left, right, turned)
    functions = card.kernels("".join(made.texts))

    def run(form: TileForm, blocks: int, arguments: list[Any], result: Array) -> Array:
        given = [
            torch.from_numpy(np.ascontiguousarray(one).view(np.uint8).reshape(-1)).to(card.device)
            if isinstance(one, np.ndarray) else one for one in arguments
        ]  # fmt: skip
        card.launch(functions(form.symbol), blocks, form.threads, given)
        (at,) = [i for i, one in enumerate(arguments) if one is result]
        return given[at].cpu().numpy().view(result.dtype).reshape(result.shape)

    for size in sizes:
        for symbol, said in products.differences(made.forms, left, right, turned, size, run):
            if said:
                return f"{symbol}: {said}"
    return ""


def programs(name: str) -> list[Program]:
    """Return a method's programs with its defaults: of float scores and, if it takes them, of 8-bit ones."""
    method = METHODS.get(name)
    options = method.resolve(method.configure({}), False)
    found = [method.program(options, masked=masked) for masked in (False, True)]
    if method.integer_scores:
        known = {"step": 0.05} if any(option == "step" for option in vars(options)) else {}
        stepped = method.resolve(method.configure(known), False)
        found.append(method.program(stepped, scores=DType.I8))
    return found


def differences(card: Any, program: Program, lengths: Sequence[int]) -> str:
    """Return what of a program's kernels differs from the interpreter, one line; empty if nothing does."""
    in_order = any(node.op == "scan" for node in program.nodes())
    size = bytes_of(program.scores.value)
    names = list(program.outputs)
    chosen = {n: choose_tiling(n, size, in_order=in_order, shared_bytes=card.shared_bytes) for n in lengths}
    forms = list(dict.fromkeys(chosen.values()))
    kernels = [row_kernel(program, form, card.dialect, symbol=f"k{i}", max_length=max(lengths), outputs=names)
               for i, form in enumerate(forms)]  # fmt: skip
    functions = card.kernels("".join(kernel.text for kernel in kernels))
    for length in lengths:
        at = forms.index(chosen[length])
        scores, valid = _inputs(program, length)
        ours = run(program, scores, valid=valid)
        function = functions(kernels[at].symbol, kernels[at].shared_bytes)
        found = _run(card, program, kernels[at], function, scores, valid)
        for name, value in found.items():
            wanted = ours[name].astype(output_type(program, name).numpy)
            if name != "normalizer" and "normalizer" in ours:
                # What the weights of an undefined row are does not matter.
                seen = ~np.isnan(ours["normalizer"][:, 0].astype(np.float64))
                value, wanted = value[seen], wanted[seen]
            if said := _difference(program, value.astype(np.float64), wanted.astype(np.float64)):
                return f"{name} of rows of {length} ({kernels[at].tiling.name}): {said}"
    return ""


def _inputs(program: Program, length: int) -> tuple[Array, NDArray[np.bool_] | None]:
    rng = np.random.default_rng(length)
    if program.scores.is_float:
        scores = rng.normal(size=(_ROWS + len(_SPECIAL), length)) * rng.choice([0.3, 3.0, 20.0], (_ROWS + 7, 1))
        scores = scores.astype(np.float32)
        scores[_ROWS:] = np.tile(_SPECIAL, (1, -(-length // 4)))[:, :length]
    else:
        low, high = program.scores.low, program.scores.high
        scores = rng.integers(low, high + 1, (_ROWS, length)).astype(program.scores.numpy)
    if not program.masked:
        return scores, None
    keep = rng.random(scores.shape) < 0.7
    keep[2] = False
    return scores, keep


def _run(card: Any, program: Program, kernel: RowKernel, function: Any, scores: Array, valid: Array | None
         ) -> dict[str, Array]:  # fmt: skip
    torch, (rows, length) = card.torch, scores.shape
    arguments: list[Any] = [torch.from_numpy(scores.view(np.uint8)).to(card.device)]
    strides: list[Any] = []
    if valid is not None:
        arguments.append(torch.from_numpy(valid.view(np.uint8)).to(card.device))
        strides = [np.int64(rows * length), np.int64(rows * length), np.int64(length), np.int64(1)]
    results: dict[str, Any] = {}
    for name in kernel.outputs:
        row = program.outputs[name].kind is Kind.ROW
        size = rows * (length if row else 1) * bytes_of(kernel.stored[name])
        results[name] = torch.full((size,), 0x5A, dtype=torch.uint8, device=card.device)
    numbers = [np.int64(rows), np.int32(length), np.int32(1), np.int32(rows), *strides]
    blocks = -(-rows // kernel.tiling.rows)
    given = [*arguments, *results.values(), *numbers]
    card.launch(function, blocks, kernel.tiling.threads, given, kernel.shared_bytes)
    found: dict[str, Array] = {}
    for name, value in results.items():
        held = value.cpu().numpy().view(output_type(program, name).numpy)
        found[name] = held.reshape(rows, -1)
    return found


def _difference(program: Program, value: NDArray[np.float64], wanted: NDArray[np.float64]) -> str:
    same = (value == wanted) | (np.isnan(value) & np.isnan(wanted))
    if same.all():
        return ""
    near = same | (np.abs(value - wanted) <= 1e-5 * np.abs(wanted) + 1e-37)
    sums = any(node.op in ("row_sum", "scan", "log2") and node.dtype.is_float for node in program.nodes())
    steps = sums and not program.contract
    if sums and near.all():
        return ""
    if steps and np.mean(near) >= 0.999 and np.max(np.abs(value - wanted)[~near], initial=0) <= 1:
        return ""
    at = tuple(np.argwhere(~(near if sums else same))[0])
    count = f"{np.sum(~same)} of {same.size} differ"
    return f"{count}; at {tuple(map(int, at))} {value[at]!r}, the interpreter has {wanted[at]!r}"


if __name__ == "__main__":
    sys.exit(main())
