"""Finding attentions in a lowered model: a product, what happens to each element or row of it, and a product.

Between the products stand elementwise functions, in any number and order, and row programs of any method; what else
they read (masks, biases) may have any shape. Where the scores are no such product, a row program is the first. The
scores and everything made of them are used by nothing else but the row program's scalars, which may be used behind
the second product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm

from softq.compiler.backend import Backend, KernelOperator
from softq.compiler.fusion import bindings
from softq.compiler.fusion.tir_patterns import blocks_of, elementwise_in, exchanges_heads, repeats, same_rows, widened
from softq.compiler.ops.linear import MatMulOp
from softq.compiler.ops.row_program import RowProgramOp
from softq.compiler.steps.attention import Attention
from softq.compiler.tir.symbolic import equal, is_number, key, product, same_shape

Chain: TypeAlias = "tuple[Any, list[Any], list[int]]"
"""The first product, None where the scores are given, the bindings behind it up to a value, and which argument
of each comes from the one before."""


def find_attentions(
    module: tvm.IRModule, operators: Mapping[str, KernelOperator], backend: Backend
) -> tuple[dict[int, Attention], set[int]]:
    """Return the attentions by the variable of their result, and the variables that are computed inside them.

    Args:
        module: The lowered module.
        operators: What the kernels of our own compute, by name.
        backend: What gives the kernels of its functions, and says which attentions are kernels of their own.
    """
    finder = _Finder(module, operators, backend)
    found: dict[int, Attention] = {}
    inside: set[int] = set()
    for binding in finder.bindings.values():
        if finder.product_of(binding) is not None:
            attention = finder.attention(binding)
            if attention is not None and backend.supports_attention(module, operators, attention):
                found[key(attention.last.var)] = attention
                inside |= finder.inside(attention)
    return found, inside


@dataclass
class _Finder:
    module: tvm.IRModule
    operators: Mapping[str, KernelOperator]
    backend: Backend

    def __post_init__(self) -> None:
        self.bindings, self.users = bindings.bindings_of(self.module), bindings.users_of(self.module)
        self._order = {at: position for position, at in enumerate(self.bindings)}

    def product_of(self, binding: Any) -> MatMulOp | None:
        """Return the product that a binding is, if a block of its rows can be computed alone."""
        operator = bindings.operator_of(binding, self.operators)
        if not isinstance(operator, MatMulOp):
            return None
        zeros = binding.value.args[1].fields[2:]
        return operator if all(isinstance(zero, tvm.ir.GenericConst) for zero in zeros) else None

    def attention(self, second: Any) -> Attention | None:
        """Return the attention whose second product this is."""
        left, right = second.value.args[1].fields[:2]
        product = self.product_of(second)
        assert product is not None
        if product.transposed or key(right) not in self.bindings or len(right.ty.shape.values) < 3:
            return None
        chain = self._trace(left, rows=False)
        if chain is None:
            return None
        scores, stages, inputs = chain
        first = stages[0].value.args[1].fields[0] if scores is None else scores.var
        queries, keys = (None, None) if scores is None else scores.value.args[1].fields[:2]
        if scores is not None and key(keys) not in self.bindings:
            return None
        if min(len(x.ty.shape.values) for x in (queries, keys, first) if x is not None) < 3:
            return None
        same = same_rows if scores is None else _has_same_shape
        if not same(left.ty, first.ty):
            return None
        finish, finish_input, to_bsnh = self._find_finish(second, stages)
        if finish is not None and not self._scalars_are_used_after(finish, [*stages, second]):
            finish = None
        if finish is None and not self._scalars_are_used_after(second, stages):
            return None
        unwidened = self._before_widening(right)
        values, of_keys = self._before_repeating(unwidened)
        if scores is not None:
            repeated, of_values = keys, of_keys
            keys, of_keys = self._before_repeating(repeated)
            if of_keys != of_values:
                (keys, of_keys), values = (repeated, 1), unwidened
        operands, heads, bsnh = [queries, keys, values], 1, [False] * 3
        for i, operand in enumerate(operands):
            if operand is None:
                continue
            source, found = self._bsnh_source(operand)
            # Queries that share keys would be rows of more than one head.
            folds = i > 0 or of_keys == 1
            if found is not None and (heads == 1 or equal(found, heads)) and folds:
                operands[i], heads, bsnh[i] = source, found, True
        return Attention(
            operands[0], scores, tuple(stages), tuple(inputs), second, *operands[1:], of_keys, heads, tuple(bsnh),
            finish, finish_input, to_bsnh,
        )  # fmt: skip

    def _find_finish(self, second: Any, stages: list[Any]) -> tuple[Any, int, bool]:
        """Return the function of a product's result, the argument, and whether it exchanges heads and rows."""
        value, binding = second.var, self._only_user(second.var)
        while bindings.is_view(binding) and same_rows(value.ty, binding.var.ty):
            value, binding = binding.var, self._only_user(binding.var)
        if not bindings.is_function(binding):
            return None, 0, False
        function, given = self.module[binding.value.args[0]], list(binding.value.args[1].fields)
        position = next(i for i, x in enumerate(given) if bindings.is_variable(x) and x.same_as(value))
        for to_bsnh in (False, True):
            if not _has_same_shape(value.ty, binding.var.ty, to_bsnh):
                continue
            if elementwise_in(function, position, to_bsnh) and self._keeps_rows(function, given, stages, to_bsnh):
                return (binding, position, to_bsnh) if self._is_rowwise(binding) else (None, 0, False)
        return None, 0, False

    def _only_user(self, value: Any) -> Any:
        users = self.users[key(value)]
        return self.bindings.get(users[0]) if len(users) == 1 else None

    def _trace(self, value: Any, rows: bool) -> Chain | None:
        """Return the first product, the stages between it and a value, and which arguments lead there."""
        binding = self.bindings.get(key(value))
        if binding is None or len(self.users[key(value)]) != 1:
            return None
        item = bindings.item_of(binding)
        if item is not None:
            return self._trace_row_program(*item)
        if bindings.is_view(binding):
            source = binding.value.args[0]
            return self._trace(source, rows) if same_rows(source.ty, binding.var.ty) else None
        if bindings.is_function(binding):
            return self._trace_elementwise(binding, rows)
        if isinstance(bindings.operator_of(binding, self.operators), RowProgramOp):
            return self._begin(binding)
        return (binding, [], []) if rows and self.product_of(binding) is not None else None

    def _trace_row_program(self, weights_and_scalars: Any, position: int) -> Chain | None:
        """Return the chain of a row program of several results, of which the first is read once."""
        binding = self.bindings.get(key(weights_and_scalars))
        if position != 0 or not isinstance(bindings.operator_of(binding, self.operators), RowProgramOp):
            return None
        items = [bindings.item_of(self.bindings.get(user)) for user in self.users[key(weights_and_scalars)]]
        if [item[1] for item in items if item is not None].count(0) != 1 or None in items:
            return None
        return self._begin(binding)

    def _begin(self, binding: Any) -> Chain:
        """Return the chain up to a row program, which is the first of it where its scores are given."""
        chain = self._trace(binding.value.args[1].fields[0], True)
        return (None, [binding], [0]) if chain is None else (chain[0], [*chain[1], binding], [*chain[2], 0])

    def _trace_elementwise(self, binding: Any, rows: bool) -> Chain | None:
        function = self.module[binding.value.args[0]]
        given = list(binding.value.args[1].fields)
        for position, argument in enumerate(given):
            if not bindings.is_variable(argument) or is_number(argument):
                continue
            keeps = elementwise_in(function, position) and _has_same_shape(argument.ty, binding.var.ty, longer=True)
            if keeps and self._is_rowwise(binding):
                chain = self._trace(argument, rows)
                if chain is not None and self._keeps_rows(function, given, chain[1]):
                    return self._extend(chain, binding, position)
        return None

    def _is_rowwise(self, binding: Any) -> bool:
        """Say whether a function is one kernel whose work items are rows of its result."""
        function = self.module[binding.value.args[0]]
        nests = bindings.row_nests(self.backend, binding.value.args[0].name_hint, function)
        if len(nests) != 1 or not all(isinstance(buffer, int) for buffer in nests[0].buffers):
            return False
        return equal(nests[0].items, product(function.params[-1].shape[:-1]))

    def _keeps_rows(self, function: Any, given: list[Any], stages: list[Any], to_bsnh: bool = False) -> bool:
        """Say whether a function reads the scalars of a row program in their own rows only."""
        made = {key(b.var) for b in stages}
        for position, argument in enumerate(given):
            source = self.bindings.get(key(argument)) if bindings.is_variable(argument) else None
            while bindings.is_view(source) and same_rows(source.value.args[0].ty, source.var.ty):
                source = self.bindings.get(key(source.value.args[0]))
            item = bindings.item_of(source)
            if item is not None and key(item[0]) in made and not elementwise_in(function, position, to_bsnh):
                return False
        return True

    @staticmethod
    def _extend(chain: Chain | None, binding: Any, position: int) -> Chain | None:
        return None if chain is None else (chain[0], [*chain[1], binding], [*chain[2], position])

    def _scalars_are_used_after(self, second: Any, stages: list[Any]) -> bool:
        """Say whether the scalars of the row programs are used behind the product only, or between the products."""
        made = {key(b.var) for b in stages}
        wanted = [u for at in made for u in self.users[at]]
        while wanted:
            at = wanted.pop()
            if at in made or at == key(second.var) or at == 0:
                continue
            binding = self.bindings[at]
            if bindings.item_of(binding) is not None or bindings.is_view(binding):
                wanted += self.users[at]
            elif self._order[at] < self._order[key(second.var)]:
                return False
        return True

    def _before_widening(self, value: Any) -> Any:
        """Return the matrices of 16 bits that a value is made of by widening, if such ones are read; else the value."""
        binding = self._function_behind(value) if self.backend.widens_values else None
        if binding is None:
            return value
        given = binding.value.args[1].fields
        blocks = blocks_of(self.module[binding.value.args[0]])
        if len(given) != 1 or blocks is None or len(blocks) != 1:
            return value
        same = same_shape(given[0].ty.shape.values[-2:], value.ty.shape.values[-2:])
        return given[0] if same and widened(blocks[0]) is not None else value

    def _bsnh_source(self, value: Any) -> tuple[Any, Any]:
        """Return the [batch, rows, heads, width] that a value [..., rows, width] is made of, and the heads, or None."""
        source = self._function_behind(value)
        if source is None or not self._same_matrices(value, source):
            return value, None
        given = source.value.args[1].fields
        function = self.module[source.value.args[0]]
        if len(given) != 1 or not exchanges_heads(function, self.backend.widens_values):
            return value, None
        return given[0], source.var.ty.shape.values[1]

    def _before_repeating(self, value: Any) -> tuple[Any, int]:
        """Return what a value repeats and how often, each matrix in a row; by default itself."""
        source = self._function_behind(value)
        group = 1 if source is None else repeats(self.module[source.value.args[0]])
        if group == 1 or not self._same_matrices(value, source):
            return value, 1
        return source.value.args[1].fields[0], group

    def _function_behind(self, value: Any) -> Any:
        """Return the binding of the TIR function that a value is made by, seen through views, or None."""
        source = bindings.behind_views(value, self.bindings)
        return source if bindings.is_function(source) else None

    @staticmethod
    def _same_matrices(value: Any, source: Any) -> bool:
        return same_shape(value.ty.shape.values[-2:], source.var.ty.shape.values[-2:])

    def inside(self, attention: Attention) -> set[int]:
        """Return the variables that nothing outside an attention needs."""
        firsts = () if attention.scores is None else (attention.scores,)
        made = {key(b.var) for b in (*firsts, *attention.stages)}
        if attention.finish is not None:
            made.add(key(attention.product.var))
        wanted = [u for at in made for u in self.users[at]]
        while wanted:
            at = wanted.pop()
            if at not in self.bindings or at in made or at == key(attention.last.var):
                continue
            item = bindings.item_of(self.bindings[at])
            if bindings.is_view(self.bindings[at]) or (item is not None and item[1] == 0):
                made.add(at)
                wanted += self.users[at]
        # Copies of operands that only this attention reads.
        products = {key(b.var) for b in (*firsts, attention.product)}
        operands = [(b, i, x) for b in firsts for i, x in enumerate((attention.queries, attention.keys))]
        operands.append((attention.product, 1, attention.values))
        for user, position, taken in operands:
            value = user.value.args[1].fields[position]
            while not value.same_as(taken) and set(self.users[key(value)]) <= made | products:
                made.add(key(value))
                binding = self.bindings[key(value)]
                value = binding.value.args[0] if bindings.is_view(binding) else binding.value.args[1].fields[0]
        return made


def _has_same_shape(a: Any, b: Any, to_bsnh: bool = False, longer: bool = False) -> bool:
    """Say whether two types have the same shape, the second one with heads and rows exchanged, or rows of any length.

    A block holds rows of one shape: rows of another do not fit, even if the total number is the same.
    """
    mine, other = list(a.shape.values), list(b.shape.values)
    if to_bsnh and len(other) == 4:
        other[1:3] = other[2:0:-1]
    return same_shape(mine[:-1], other[:-1]) if longer else same_shape(mine, other)
