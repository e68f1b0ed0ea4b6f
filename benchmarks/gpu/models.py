"""Attentions of built models, one launch each, beside torch's scaled_dot_product_attention.

A model of one attention is converted and built as `softq build` does it, and its launches are started on torch's
memory. That takes what building takes: softq[tvm].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.attention import HEADS, LENGTHS, batch_of, errors, operations
from benchmarks.gpu.results import Result, compared
from softq.artifact.device.starting import Start
from softq.codegen.gpu.attention import Codes, codes_of
from softq.errors import SoftqError
from softq.methods import METHODS

Array = NDArray[np.generic]

WIDTHS = (64, 128)
SIZES = [(1, 1, 70), (2, 8, 33), (1, 9, 64), (2, 65, 131)]
"""Samples, queries and keys that are compared with float64 without being timed."""

_RIVAL = "torch attention"
_BITS = 4


@dataclass(frozen=True)
class Work:
    """An attention to build.

    Attributes:
        name: As tables name it.
        method: What its softmax becomes.
        half: Whether it is of float16, else of float32.
        bound: Greatest relative error from float64, of the attention with the same codes if there are any.
        aim: The ratio that is aimed at, or None.
    """

    name: str
    method: str
    half: bool
    bound: float
    aim: float | None = None

    @property
    def dtype(self) -> str:
        """NumPy's and torch's name of its type."""
        return "float16" if self.half else "float32"

    def codes(self) -> Codes | None:
        """Return the codes of its weights, if it has any."""
        method = METHODS.get(self.method)
        if self.method == "exact":
            return None
        return codes_of(method.program(method.resolve(method.configure({"bits": _BITS}), False)))


WORKS = (
    Work("built, 4-bit codes, float16", "deferred-log", True, 0.02, 1.3),
    Work("built, 4-bit codes, float32", "deferred-log", False, 0.02),
    Work("built, exact, float32", "exact", False, 1e-4),
)


def measure(card: Any, lengths: Sequence[int], elements: int, tune: bool) -> Iterator[Result]:
    """Yield each model's result for each length; the error is the relative one from the exact attention in float64."""
    for work in WORKS:
        for width in WIDTHS:
            built = Built(card, work, width)
            for length in lengths or LENGTHS:
                yield from measured(card, built, length, batch_of(length, width, elements))


def wrong(card: Any, work: Work, width: int, sizes: Sequence[tuple[int, int, int]] = SIZES) -> str:
    """Return what is wrong with a model at odd sizes, one line; empty if nothing is."""
    built = Built(card, work, width)
    for batch, queries, keys in sizes:
        shapes = [(batch, HEADS, rows, width) for rows in (queries, keys, keys)]
        one = [card.torch.randn(shape, device=card.device).to(built.type) for shape in shapes]
        found = built.open(one)()
        error = max(built.errors(one, found))
        if not error <= (0.5 if work.codes() else work.bound) or not min(built.errors(one, found)) <= work.bound:
            return f"{batch} x {queries} x {keys}: an error of {error:.1e}"
    return ""


class Built:
    """A model of one attention, compiled for a card."""

    def __init__(self, card: Any, work: Work, width: int) -> None:
        self.card, self.work, self.width, self.scale = card, work, width, width**-0.5
        self.type = getattr(card.torch, work.dtype)
        self._program = _program(card, work, width)
        (text,) = self._program.sources.values()
        self._functions = card.kernels(text.removeprefix(card.dialect.prelude()))

    def open(self, one: Sequence[Any]) -> Any:
        """Return what starts the model on tensors and returns the result's tensor, which is the same each time."""
        from softq.artifact.device.executor import Executor
        from softq.artifact.device.steps import from_json, to_json

        device = _Memory(self.card, self._functions)
        executor = Executor(from_json(to_json(self._program)), np.zeros(0, np.uint8), device)
        given: Mapping[str, Array] = {name: x.cpu().numpy() for name, x in zip("qkv", one, strict=True)}
        executor(given)

        def start() -> Any:
            executor.start_again()
            return device.read_last.view(self.type).reshape(one[0].shape)

        return start

    def errors(self, one: Sequence[Any], found: Any) -> tuple[float, float]:
        """Return the relative errors from the attention of the codes, if there are any, and from the exact one."""
        codes = self.work.codes()
        return errors(self.card.torch, codes, one, found, self.scale, False)


class _Memory:
    """Torch's memory and the card's kernels as a device for the executor."""

    def __init__(self, card: Any, functions: Any) -> None:
        self._card, self._functions = card, functions
        self.shared_bytes: int = card.shared_bytes
        self.read_last: Any = None  # what was read last: the result

    def allocate(self, size: int) -> Any:
        return self._card.torch.empty(size, dtype=self._card.torch.uint8, device=self._card.device)

    def free(self, memory: Any) -> None:
        pass

    def write(self, memory: Any, array: Array) -> None:
        held = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory[: held.size].copy_(self._card.torch.from_numpy(held.copy()))

    def read(self, memory: Any, array: Array) -> None:
        self.read_last = memory[: array.nbytes]
        array.reshape(-1).view(np.uint8)[:] = self.read_last.cpu().numpy()

    def launch(self, module: str, start: Start, blocks: int, arguments: Sequence[Any]) -> None:
        function = self._functions(start.symbol, start.shared)
        self._card.launch(function, blocks, start.threads, arguments, start.shared)


def _program(card: Any, work: Work, width: int) -> Any:
    from onnx import numpy_helper, parser

    import softq
    from softq.codegen.gpu.program import device_program, machine_of
    from softq.modelfile import as_model

    kind = "float16" if work.half else "float"
    operands = ", ".join(
        f"{kind}[batch, {HEADS}, {rows}, {width}] {name}" for name, rows in zip("qkv", "mnn", strict=True)
    )
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        attention ({operands}) => ({kind}[batch, {HEADS}, m, {width}] out) {{
            turned = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, turned)
            scores = Mul (products, scale)
            p = Softmax <axis = -1> (scores)
            out = MatMul (p, v)
        }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.array(width**-0.5, work.dtype), "scale"))
    converted = softq.convert(model, method=work.method, bits=None if work.codes() is None else _BITS)
    program = device_program(as_model(converted.model), machine_of(card.arch), card.dialect)
    if len(program.program.steps) != 1:
        raise SoftqError(f"{work.name} with heads of {width} is not one launch")
    return program


def measured(card: Any, built: Built, length: int, batch: int) -> Iterator[Result]:
    torch, work = card.torch, built.work
    shape = (batch, HEADS, length, built.width)
    size = batch * HEADS * length * built.width * (2 if work.half else 4)
    count = max(2, -(-3 * card.cache_bytes // (4 * size)) + 1)
    sets = [[torch.randn(shape, device=card.device).to(built.type) for _ in range(3)] for _ in range(count)]
    calls = {work.name: [built.open(one) for one in sets]}
    of_codes, error = built.errors(sets[-1], calls[work.name][-1]())
    assert of_codes <= work.bound, f"{work.name}: {of_codes:.1e} from float64; the bound is {work.bound:.1e}"
    attention = torch.nn.functional.scaled_dot_product_attention

    def theirs(one: Sequence[Any]) -> Any:
        return lambda: attention(*one)

    calls[_RIVAL] = [theirs(one) for one in sets]
    _, other = built.errors(sets[-1], calls[_RIVAL][-1]())
    times = card.times(calls)
    for name, found, aim in ((work.name, error, work.aim), (_RIVAL, other, None)):
        title = f"{name}, {work.dtype}" if name == _RIVAL else name
        yield compared(
            times, name, _RIVAL, work=f"{title}, heads of {built.width}", place=f"{batch}x{HEADS}x{length}",
            error=found, rate=operations(batch, length, built.width), aim=aim,
        )  # fmt: skip
