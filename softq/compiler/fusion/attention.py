# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""Finding attentions in a lowered model: a product, what happens to each element or row of it, and a product.

Between the products stand elementwise functions, in any number and order, and row programs of any method; what else
they read (masks, biases) may have any shape. The scores and everything made of them are used by nothing else but the
row program's scalars, which may be used behind the second product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, s_tir

from softq.compiler.fusion.tir_patterns import (
    blocks_of,
    elementwise_in,
    exchanges_heads_and_rows,
    repeats,
    same_rows,
    widened,
)
from softq.compiler.ops import IntegerMatMulCall, KernelCall, MatMulCall, RowCall
from softq.compiler.tir.symbolic import equal, key, plain, product

if TYPE_CHECKING:
    from softq.codegen.cpu.backend import Kernels


@dataclass(frozen=True)
class Attention:
    """Bindings of `main` that are one attention.

    Attributes:
        queries: The matrices of queries.
        scores: The first product.
        between: Elementwise functions and row programs, in their order.
        followed: For each of them the position of the argument that comes from the one before.
        product: The second product.
        keys: The matrices of keys; the same ones serve `group` matrices of queries one after another.
        values: The matrices of values.
        group: How many.
        heads: Where queries, keys or values have their heads side by side, [batch, rows, heads, width], the heads of
            the keys; else 1.
        side_by_side: Whether queries, keys and values have.
        finish: The elementwise function of the second product's result, usually its division, or None.
        finished: The position of its argument that is that result.
        exchanged: Whether it puts the heads side by side.
    """

    queries: Any
    scores: Any
    between: tuple[Any, ...]
    followed: tuple[int, ...]
    product: Any
    keys: Any
    values: Any
    group: int
    heads: Any
    side_by_side: tuple[bool, bool, bool]
    finish: Any = None
    finished: int = 0
    exchanged: bool = False

    @property
    def last(self) -> Any:
        """The binding of the result."""
        return self.product if self.finish is None else self.finish


@dataclass
class _Graph:
    bindings: dict[int, Any] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    users: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def find(
    module: tvm.IRModule, calls: Mapping[str, KernelCall], kernels: Kernels
) -> tuple[dict[int, Attention], set[int]]:
    """Return the attentions by the variable of their result, and the variables that are computed inside them.

    Args:
        module: The lowered module.
        calls: What the kernels of our own compute, by name.
        kernels: What gives the kernels of its functions, and says which attentions are kernels of their own.
    """
    main = module["main"]
    graph = _Graph()
    for block in main.body.blocks:
        for binding in block.bindings:
            at = key(binding.var)
            graph.bindings[at], graph.order[at] = binding, len(graph.order)
            for used in _variables(binding.value):
                graph.users[key(used)].append(at)
    for used in _variables(main.body.body):
        graph.users[key(used)].append(0)
    finder = _Finder(module, calls, kernels, graph)
    found: dict[int, Attention] = {}
    inside: set[int] = set()
    for binding in graph.bindings.values():
        if finder.product_of(binding) is not None:
            attention = finder.attention(binding)
            if attention is not None and kernels.takes(module, calls, attention):
                found[key(attention.last.var)] = attention
                inside |= finder.inside(attention)
    return found, inside


def _variables(expr: Any) -> Iterator[Any]:
    if isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from _variables(item)
    elif isinstance(expr, relax.TupleGetItem):
        yield from _variables(expr.tuple_value)
    elif isinstance(expr, tvm.ir.Call):
        for item in expr.args:
            yield from _variables(item)
    elif isinstance(expr, relax.Var):
        yield expr


@dataclass
class _Finder:
    module: tvm.IRModule
    calls: Mapping[str, KernelCall]
    kernels: Kernels
    graph: _Graph

    def call_of(self, binding: Any) -> KernelCall | None:
        """Return the kernel of our own that a binding calls."""
        value = binding.value
        if isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == "relax.call_dps_packed":
            return self.calls[str(value.args[0].global_symbol)]
        return None

    def product_of(self, binding: Any) -> MatMulCall | IntegerMatMulCall | None:
        """Return the product that a binding is, if a block of its rows can be computed alone."""
        call = self.call_of(binding)
        if isinstance(call, IntegerMatMulCall):
            zeros = binding.value.args[1].fields[2:]
            return call if all(isinstance(zero, tvm.ir.GenericConst) for zero in zeros) else None
        return call if isinstance(call, MatMulCall) else None

    def attention(self, second: Any) -> Attention | None:
        """Return the attention whose second product this is."""
        left, right = second.value.args[1].fields[:2]
        call = self.product_of(second)
        assert call is not None
        if call.transposed or key(right) not in self.graph.bindings or len(right.ty.shape.values) < 3:
            return None
        chain = self._chain(left, rows=False)
        if chain is None:
            return None
        scores, between, followed = chain
        queries, keys = scores.value.args[1].fields[:2]
        if len(queries.ty.shape.values) < 3 or key(keys) not in self.graph.bindings or len(keys.ty.shape.values) < 3:
            return None
        here, there = list(left.ty.shape.values), list(scores.var.ty.shape.values)
        if len(here) != len(there) or not all(equal(a, b) for a, b in zip(here, there, strict=True)):
            return None
        finish, finished, exchanged = self._finish(second, between)
        if finish is not None and not self._behind(finish, [*between, second]):
            finish = None
        if finish is None and not self._behind(second, between):
            return None
        unwidened = self._unwidened(right)
        (keys, of_keys), (values, of_values) = self._repeated(keys), self._repeated(unwidened)
        if of_keys != of_values:
            (keys, of_keys), values = (scores.value.args[1].fields[1], 1), unwidened
        operands, heads, beside = [queries, keys, values], 1, [False] * 3
        for i, operand in enumerate(operands):
            source, found = self._side_by_side(operand)
            # Queries that share keys would be rows of more than one head. Values are read for every block again: in
            # long rows their distance costs more (page tables, cache sets) than a copy with the rows together.
            folds = (of_keys == 1, True, _is_short(right, self.kernels.spread))[i]
            if found is not None and (heads == 1 or equal(found, heads)) and folds:
                operands[i], heads, beside[i] = source, found, True
        return Attention(
            operands[0], scores, tuple(between), tuple(followed), second, *operands[1:], of_keys, heads, tuple(beside),
            finish, finished, exchanged,
        )  # fmt: skip

    def _finish(self, second: Any, between: list[Any]) -> tuple[Any, int, bool]:
        """Return the function of a product's result, the argument, and whether it exchanges heads and rows."""
        value, binding = second.var, None
        while binding is None or getattr(getattr(binding.value, "op", None), "name", "") == "relax.reshape":
            if binding is not None:
                if not same_rows(value.ty, binding.var.ty):
                    return None, 0, False
                value = binding.var
            users = self.graph.users[key(value)]
            binding = self.graph.bindings.get(users[0]) if len(users) == 1 else None
            if binding is None:
                return None, 0, False
        if getattr(getattr(binding.value, "op", None), "name", "") != "relax.call_tir":
            return None, 0, False
        function, given = self.module[binding.value.args[0]], list(binding.value.args[1].fields)
        position = next(i for i, x in enumerate(given) if isinstance(x, relax.Var) and x.same_as(value))
        for exchanged in (False, True):
            if elementwise_in(function, position, exchanged) and self._keeps_rows(function, given, between, exchanged):
                return (binding, position, exchanged) if self._is_rowwise(binding) else (None, 0, False)
        return None, 0, False

    def _chain(self, value: Any, rows: bool) -> tuple[Any, list[Any], list[int]] | None:
        """Return the first product, what lies between it and a value, and which arguments lead there."""
        binding = self.graph.bindings.get(key(value))
        if binding is None or len(self.graph.users[key(value)]) != 1:
            return None
        expr = binding.value
        if isinstance(expr, relax.TupleGetItem):
            return self._row(expr, rows)
        if not isinstance(expr, tvm.ir.Call):
            return None
        name = getattr(expr.op, "name", "")
        if name == "relax.reshape":
            return self._chain(expr.args[0], rows) if same_rows(expr.args[0].ty, binding.var.ty) else None
        if name == "relax.call_tir":
            return self._elementwise(binding, rows)
        call = self.call_of(binding)
        if isinstance(call, RowCall):
            return self._longer(self._chain(expr.args[1].fields[0], True), binding, 0)
        return (binding, [], []) if rows and self.product_of(binding) is not None else None

    def _row(self, item: Any, rows: bool) -> tuple[Any, list[Any], list[int]] | None:
        binding = self.graph.bindings.get(key(item.tuple_value))
        if binding is None or not isinstance(self.call_of(binding), RowCall) or item.index != 0:
            return None
        users = [self.graph.bindings.get(u) for u in self.graph.users[key(item.tuple_value)]]
        if [u.value.index for u in users if u is not None and isinstance(u.value, relax.TupleGetItem)].count(0) != 1:
            return None
        if not all(u is not None and isinstance(u.value, relax.TupleGetItem) for u in users):
            return None
        return self._longer(self._chain(binding.value.args[1].fields[0], True), binding, 0)

    def _elementwise(self, binding: Any, rows: bool) -> tuple[Any, list[Any], list[int]] | None:
        function = self.module[binding.value.args[0]]
        given = list(binding.value.args[1].fields)
        for position, argument in enumerate(given):
            if isinstance(argument, relax.Var) and elementwise_in(function, position) and self._is_rowwise(binding):
                chain = self._chain(argument, rows)
                if chain is not None and self._keeps_rows(function, given, chain[1]):
                    return self._longer(chain, binding, position)
        return None

    def _is_rowwise(self, binding: Any) -> bool:
        """Say whether a function is one kernel whose work items are rows of its result."""
        function = self.module[binding.value.args[0]]
        try:
            nests = self.kernels.nests(binding.value.args[0].name_hint, function, True)
        except s_tir.schedule.ScheduleError:
            return False
        if len(nests) != 1 or not all(isinstance(buffer, int) for buffer in nests[0].buffers):
            return False
        return equal(nests[0].items, product(function.params[-1].shape[:-1]))

    def _keeps_rows(self, function: Any, given: list[Any], between: list[Any], exchanged: bool = False) -> bool:
        """Say whether a function reads the scalars of a row program in their own rows only."""
        made = {key(b.var) for b in between}
        for position, argument in enumerate(given):
            item = self.graph.bindings.get(key(argument)) if isinstance(argument, relax.Var) else None
            while item is not None and getattr(getattr(item.value, "op", None), "name", "") == "relax.reshape":
                if not same_rows(item.value.args[0].ty, item.var.ty):
                    break
                item = self.graph.bindings.get(key(item.value.args[0]))
            if item is None or not isinstance(item.value, relax.TupleGetItem):
                continue
            if key(item.value.tuple_value) in made and not elementwise_in(function, position, exchanged):
                return False
        return True

    @staticmethod
    def _longer(chain: tuple[Any, list[Any], list[int]] | None, binding: Any, position: int) -> Any:
        return None if chain is None else (chain[0], [*chain[1], binding], [*chain[2], position])

    def _behind(self, second: Any, between: list[Any]) -> bool:
        """Say whether the scalars of the row programs are used behind the product only, or between the products."""
        made = {key(b.var) for b in between}
        wanted = [u for at in made for u in self.graph.users[at]]
        while wanted:
            at = wanted.pop()
            if at in made or at == key(second.var) or at == 0:
                continue
            expr = self.graph.bindings[at].value
            if isinstance(expr, relax.TupleGetItem) or getattr(expr.op, "name", "") == "relax.reshape":
                wanted += self.graph.users[at]
            elif self.graph.order[at] < self.graph.order[key(second.var)]:
                return False
        return True

    def _unwidened(self, value: Any) -> Any:
        """Return the matrices of 16 bits that a value is made of by widening, if such ones are read; else the value."""
        binding = self.graph.bindings.get(key(value)) if self.kernels.widens else None
        while binding is not None and getattr(getattr(binding.value, "op", None), "name", "") == "relax.reshape":
            binding = self.graph.bindings.get(key(binding.value.args[0]))
        if binding is None or getattr(getattr(binding.value, "op", None), "name", "") != "relax.call_tir":
            return value
        given = binding.value.args[1].fields
        blocks = blocks_of(self.module[binding.value.args[0]])
        if len(given) != 1 or blocks is None or len(blocks) != 1:
            return value
        same = [given[0].ty.shape.values[-2:], value.ty.shape.values[-2:]]
        if widened(blocks[0]) is None or not all(equal(a, b) for a, b in zip(*same, strict=True)):
            return value
        return given[0]

    def _side_by_side(self, value: Any) -> tuple[Any, Any]:
        """Return the [batch, rows, heads, width] that a value [..., rows, width] is made of, and the heads, or None."""
        source, last = self.graph.bindings.get(key(value)), value.ty.shape.values[-2:]
        while source is not None and getattr(getattr(source.value, "op", None), "name", "") == "relax.reshape":
            source = self.graph.bindings.get(key(source.value.args[0]))
        if source is None or getattr(getattr(source.value, "op", None), "name", "") != "relax.call_tir":
            return value, None
        if not all(equal(a, b) for a, b in zip(last, source.var.ty.shape.values[-2:], strict=True)):
            return value, None
        function = self.module[source.value.args[0]]
        given = source.value.args[1].fields
        if len(given) != 1 or not exchanges_heads_and_rows(function, self.kernels.widens):
            return value, None
        return given[0], source.var.ty.shape.values[1]

    def _repeated(self, value: Any) -> tuple[Any, int]:
        """Return what a value repeats and how often, each matrix in a row; by default itself."""
        source, last = self.graph.bindings.get(key(value)), value.ty.shape.values[-2:]
        while source is not None and getattr(getattr(source.value, "op", None), "name", "") == "relax.reshape":
            source = self.graph.bindings.get(key(source.value.args[0]))
        if source is None or getattr(getattr(source.value, "op", None), "name", "") != "relax.call_tir":
            return value, 1
        group = repeats(self.module[source.value.args[0]])
        if group == 1 or not all(equal(a, b) for a, b in zip(last, source.var.ty.shape.values[-2:], strict=True)):
            return value, 1
        return source.value.args[1].fields[0], group

    def inside(self, attention: Attention) -> set[int]:
        """Return the variables that nothing outside an attention needs."""
        made = {key(b.var) for b in (attention.scores, *attention.between)}
        if attention.finish is not None:
            made.add(key(attention.product.var))
        wanted = [u for at in made for u in self.graph.users[at]]
        while wanted:
            at = wanted.pop()
            if at not in self.graph.bindings or at in made or at == key(attention.last.var):
                continue
            expr = self.graph.bindings[at].value
            view = getattr(getattr(expr, "op", None), "name", "") == "relax.reshape"
            if view or (isinstance(expr, relax.TupleGetItem) and expr.index == 0):
                made.add(at)
                wanted += self.graph.users[at]
        # Copies of operands that only this attention reads.
        products = {key(attention.scores.var), key(attention.product.var)}
        operands = (
            (attention.scores, 0, attention.queries),
            (attention.scores, 1, attention.keys),
            (attention.product, 1, attention.values),
        )
        for user, position, taken in operands:
            value = user.value.args[1].fields[position]
            while not value.same_as(taken) and set(self.graph.users[key(value)]) <= made | products:
                made.add(key(value))
                expr = self.graph.bindings[key(value)].value
                value = expr.args[0] if expr.op.name == "relax.reshape" else expr.args[1].fields[0]
        return made


def _is_short(values: Any, most: int | None) -> bool:
    length = plain(values.ty.shape.values[-2])
    return most is None or (isinstance(length, int) and length <= most)
