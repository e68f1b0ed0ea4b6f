"""One pass over the row: its chunks, element by element, and what the threads of a row then tell each other."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from softq.codegen.common.patterns import group, inner_nodes, order_steps
from softq.codegen.gpu.dialect.text import BOOL, F32, literal
from softq.codegen.gpu.rows.accumulators import Accumulator, exchange, find_nans
from softq.codegen.gpu.rows.emission import Emission, KernelContext
from softq.codegen.gpu.rows.load_store import Output, Scores, mask_bit, mask_type, read_mask, write
from softq.codegen.gpu.rows.online_softmax import ExponentialSum, OnlineSum
from softq.codegen.gpu.rows.tiling import Tiling
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, body_of, result_of, size_of


@dataclass
class RowContext:
    """What all passes over a row share.

    Attributes:
        kernel: What all places share.
        scores: How scores are read.
        masked: Whether a mask is read.
        outputs: The output rows by name.
        shuffles: Whether the threads of a warp see each other's registers.
        held: Where values for later passes stand.
    """

    kernel: KernelContext
    scores: Scores
    masked: bool
    outputs: Mapping[str, Output]
    shuffles: bool
    held: dict[Node, str] = field(default_factory=dict[Node, str])
    _words: str = "raw[0]"

    @property
    def tiling(self) -> Tiling:
        """The kernel's shape."""
        return self.scores.tiling

    def keep_scores(self) -> None:
        """Read the row into registers and shared memory, if it stays there."""
        text, tiling = self.kernel.text, self.tiling
        if not tiling.chunks:
            return
        self._declare()
        if tiling.shared:
            # First, so that they arrive while others are read. Each thread reads what it copied itself: no barrier.
            text.line(f"SHARED_OF_LAUNCH(kept, {self.scores.shared_bytes // 4});")
            with self._chunks(True):
                self.scores.keep(text, "v")
                self._read_mask("v")
            text.line("COPIES_END();")
        with self._chunks(False):
            self.scores.read(text, "raw[v]")
            self._read_mask("v")
        if tiling.shared:
            text.line("COPIES_ARRIVED_BUT(0);")
        if tiling.holds:
            # Each of them is taken out of its word once.
            x, name = self.scores.element("raw[v]")
            text.line(f"{name} held_scores[{tiling.chunks}][{tiling.chunk}];")
            text.each(f"held_scores[v][e] = {x};", v=tiling.chunks, e=tiling.chunk)

    def hold(self, nodes: Sequence[Node]) -> None:
        """Make room for values that later passes need."""
        for node in nodes:
            name = self.kernel.text.name("held")
            self.kernel.text.line(f"{self.kernel.type_of(node)} {name}[{self.tiling.chunks}][{self.tiling.chunk}];")
            self.held[node] = f"{name}[v][e]"

    def load(self, place: Emission, node: Node) -> None:
        """Bind a value that stands somewhere."""
        if node.op != "input":
            place.bind(node, self.held[node], self.kernel.type_of(node))
        elif node.attrs["name"] == "scores":
            x, name = self.scores.element(self._words)
            place.bind(node, "held_scores[v][e]" if self.tiling.holds else x, name)
            place.keep(node, place.arg(node))
        else:
            place.bind(node, mask_bit(self.tiling, "v" if self.tiling.chunks else "0"), BOOL)

    @contextlib.contextmanager
    def chunks(self, shared: bool) -> Generator[None]:
        """Write the loop over the chunks of a part and what is done for each."""
        text, tiling = self.kernel.text, self.tiling
        if tiling.chunks:
            self._words = "words" if shared else "raw[v]"
            with self._chunks(shared):
                if shared:
                    self.scores.take(text, "v", self._words)
                yield
            return
        step = tiling.group * tiling.chunk
        unroll = "" if tiling.group == 1 else "UNROLL_4"
        with text.block(f"for (i32 at = lane * {tiling.chunk}; at < length; at += {step})", unroll=unroll):
            self._declare()
            self.scores.read(text, self._words)
            self._read_mask("0")
            yield

    @contextlib.contextmanager
    def _chunks(self, shared: bool) -> Generator[None]:
        """Write the loop over the chunks of a part: registers have no numbers, so that theirs is unrolled."""
        text, tiling = self.kernel.text, self.tiling
        start, end = (tiling.registers, tiling.chunks) if shared else (0, tiling.registers)
        with text.block(f"for (i32 v = {start}; v < {end}; v++)", unroll="UNROLL_4" if shared else "UNROLL"):
            text.line(f"const i32 at = (v * {tiling.group} + lane) * {tiling.chunk};")
            with text.block("if (at < length)"):
                yield

    @contextlib.contextmanager
    def elements(self) -> Generator[None]:
        """Write the loop over the elements of a chunk."""
        text, tiling = self.kernel.text, self.tiling
        whole = tiling.aligned or tiling.chunk == 1
        with text.loops(e=tiling.chunk), contextlib.nullcontext() if whole else text.block("if (at + e < length)"):
            yield

    def _declare(self) -> None:
        count = max(self.tiling.registers, 1)
        self.kernel.text.line(f"{self.scores.word} raw[{count}][{self.scores.words}];")
        if self.masked:
            self.kernel.text.line(f"{mask_type(self.tiling)} open = 0;")

    def _read_mask(self, v: str) -> None:
        if self.masked:
            read_mask(self.kernel.text, self.tiling, v)


def write_loop(
    row: RowContext, phase: Phase, scalars: Emission, live: str, sums: Sequence[ExponentialSum] = ()
) -> None:
    """Write a pass; the results of its reductions are scalars then.

    Args:
        row: What all passes share.
        phase: What the pass computes.
        scalars: Where the row's scalars are.
        live: The condition under which results are written, empty if always.
        sums: Sums of a later pass that this one takes along.
    """
    kernel, text = row.kernel, row.kernel.text
    for node in phase.setup:
        scalars.compute(node)
    reductions = find_nans([Accumulator(kernel, node) for node in phase.reductions if node.op != "scan"])
    scans = [_Scan(nodes, scalars) for nodes in group([*phase.rows, *phase.reductions])]
    tops = {r.node: r for r in reductions}
    online = [OnlineSum(kernel, row.tiling, one, tops[one.top]) for one in sums]
    row.hold(phase.stored)
    outputs = [row.outputs[name] for name in phase.outputs]
    if phase.reductions or phase.stored or outputs:
        # The chunks in shared memory have a loop of their own.
        for shared in (False, True) if row.tiling.shared else (False,):
            with row.chunks(shared):
                for out in outputs:
                    start = " = {0, 0}" if out.nibbles and not row.tiling.aligned else ""
                    text.line(f"{out.held} out_{out.name}[{row.tiling.chunk}]{start};")
                for one in online:
                    one.begin_chunk()
                with row.elements():
                    place = Emission(kernel, scalars, "(at + e)")
                    for node in phase.loads:
                        row.load(place, node)
                    for step in order_steps(phase.rows, {node: scan for scan in scans for node in scan.nodes}):
                        if isinstance(step, Node):
                            place.compute(step)
                        else:
                            step.step(place)
                    for r in reductions:
                        r.add(place)
                    for one in online:
                        one.add(place)
                    for node in phase.stored:
                        text.line(f"{row.held[node]} = {place.arg(node)};")
                    for out in outputs:
                        text.line(f"out_{out.name}[e] = {out.value(place)};")
                for one in online:
                    one.end_chunk()
                for out in outputs:
                    write(text, out, row.tiling, live)
    exchange(text, row.tiling, reductions, row.shuffles)
    for r in reductions:
        r.bind(scalars)
    row.hold(phase.groups)
    for node in phase.groups:
        _find_group_maxima(row, node, scalars)
    for scan in scans:
        scan.finish()
    for node in phase.scalars:
        scalars.compute(node)
    for one in online:
        one.rescale(scalars)
    exchange(text, row.tiling, [one.total for one in online], row.shuffles)
    for one in online:
        one.total.bind(scalars)


def _find_group_maxima(row: RowContext, node: Node, scalars: Emission) -> None:
    """Write what holds the greatest element of each group for all its elements; threads exchange theirs in memory.

    A group is in the same chunk of neighbouring threads; a row with fewer threads has one chunk in each, and one group.
    """
    kernel, text, tiling = row.kernel, row.kernel.text, row.tiling
    lanes = min(max(size_of(node) // tiling.chunk, 1), tiling.group)
    memory, best, by = (text.name(word) for word in ("of_thread", "best", "by"))
    text.line(f"SHARED {F32} {memory}[{tiling.threads}];")
    # All threads come to the barriers, those without elements too.
    with text.block(f"for (i32 v = 0; v < {tiling.chunks}; v++)", unroll="UNROLL"):
        text.line(f"const i32 at = (v * {tiling.group} + lane) * {tiling.chunk};")
        text.line(f"{F32} {best} = {literal(-math.inf, F32)};")
        with text.block("if (at < length)"), row.elements():
            place = Emission(kernel, scalars, "(at + e)")
            row.load(place, node.args[0])
            text.line(f"{best} = GREATER({best}, {place.arg(node.args[0])});")
        text.line(f"{memory}[THREAD] = {best};")
        text.line("BARRIER();")
        with text.block(f"for (i32 {by} = 0; {by} < {lanes}; {by}++)"):
            text.line(f"{best} = GREATER({best}, {memory}[THREAD - lane % {lanes} + {by}]);")
        text.line("BARRIER();")
        with text.loops(e=tiling.chunk):
            text.line(f"{row.held[node]} = {best};")


class _Scan:
    """One scan in its pass: all nodes with the same step and the same arguments."""

    def __init__(self, nodes: Sequence[Node], scalars: Emission) -> None:
        self.nodes = nodes
        self._scalars = scalars
        self._body, self._args = body_of(nodes[0]), nodes[0].args
        self._inner = [node for node in inner_nodes(self._body, self._args) if node.op not in ("table", "const")]
        self._states: list[tuple[str, str]] = []
        kernel = scalars.kernel
        for holder, start in zip(self._body.states, self._args, strict=False):
            name, text = kernel.type_of(holder), kernel.text.name("state")
            kernel.text.line(f"{name} {text} = {scalars.arg(start, name)};")
            self._states.append((text, name))

    def step(self, place: Emission) -> None:
        """Take in the element of a place, and bind the rows that the scan gives there."""
        body, kernel = self._body, place.kernel
        inner = Emission(kernel, place)
        for holder, (text, name) in zip(body.states, self._states, strict=True):
            inner.bind(holder, text, name)
        for holder, row in zip(body.elements, self._args[len(body.states) :], strict=False):
            inner.bind(holder, place.arg(row, kernel.type_of(holder)), kernel.type_of(holder))
        for node in self._inner:
            inner.compute(node)
        for node in self.nodes:
            at = result_of(node) - len(body.states)
            if at >= 0:
                place.keep(node, inner.arg(body.outputs[at], kernel.type_of(node)))
        # All of them from the old states: a step may exchange two.
        after = [kernel.text.define(name, inner.arg(node, name), "next")
                 for node, (_, name) in zip(body.next, self._states, strict=True)]  # fmt: skip
        for (text, _), new in zip(self._states, after, strict=True):
            kernel.text.line(f"{text} = {new};")

    def finish(self) -> None:
        """Bind the last states."""
        for node in self.nodes:
            if result_of(node) < len(self._states):
                self._scalars.bind(node, *self._states[result_of(node)])
