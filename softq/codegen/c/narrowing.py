"""Sizes and positions as 32-bit integers: on the processors that C is for, those of 64 bits take several instructions.

Kernels count in int64 because a model may have large tensors; a model in C has all of its memory below 2^31 bytes,
which whoever plans it checks. Parameters and loop variables become int32, and every expression that is made of them
and of constants alone. Numbers of 64 bits that stand in memory stay what they are.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_mutate

from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key

_WIDE, _NARROW = "int64", "int32"
_BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max,
    tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE,
)  # fmt: skip
_EXACT = {tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul}
_OF_BITS = (tirx.LShift, tirx.RShift, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor)
"""What they give hangs on the width, as no position does."""


@tvm.ir.transform.module_pass(opt_level=0)
def narrow_positions(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Let sizes and positions be int32."""
    return tvm.IRModule({v: _Narrowing().function(f) for v, f in module.functions.items()})


def _dtype(x: Any) -> str:
    return str(getattr(x.ty, "dtype", ""))


class _Narrowing:
    def __init__(self) -> None:
        self._vars: dict[int, tirx.Var] = {}

    def function(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        self._narrow_locals(function.body)
        params = [self._narrow(p) if _dtype(p) == _WIDE else p for p in function.params]
        callbacks = [
            (tirx.For, self._loop), (tirx.Bind, self._bind), (tirx.BufferStore, self._store), (tirx.Var, self._var),
            (tvm.ir.TensorLoad, self._load), (_BINARY, self._binary), (_OF_BITS, self._of_bits),
            (tirx.Select, self._select), (tirx.Cast, self._cast), (tirx.AllocBuffer, self._allocation),
            (tvm.ir.Call, self._call),
        ]  # fmt: skip
        body = structural_mutate(function.body, callbacks)
        return tirx.PrimFunc(params, body, function.ret_type, attrs=function.attrs)

    def _narrow_locals(self, body: Any) -> None:
        """Find the memory of the function's own that holds sizes and positions alone."""
        own = {key(a.buffer): a.buffer for a in found(body, tirx.AllocBuffer) if str(a.buffer.dtype) == _WIDE}
        for view in found(body, tirx.DeclBuffer):
            for var in found(view.data, tirx.Var):
                own.pop(key(var), None)
        stores = [store for store in found(body, tirx.BufferStore) if str(store.buffer.dtype) == _WIDE]
        changed = True
        while changed:
            changed = False
            for store in stores:
                if key(store.buffer) in own and not all(self._is_position(x, own) for x in _leaves(store.value)):
                    del own[key(store.buffer)]
                    changed = True
        for identity, buffer in own.items():
            self._vars[identity] = tirx.decl_buffer(buffer.shape, _NARROW, str(buffer.name), scope="local")

    def _is_position(self, x: Any, own: Mapping[int, Any]) -> bool:
        if isinstance(x, tvm.ir.TensorLoad):
            return key(x.source) in own
        return isinstance(x, (tirx.Var, tirx.IntImm))

    def _narrow(self, var: Any) -> tirx.Var:
        return self._vars.setdefault(key(var), tirx.Var(str(var.name), _NARROW))

    def _var(self, var: Any, mutator: Any) -> Any:
        return self._vars.get(key(var), var)

    def _loop(self, loop: tirx.For, mutator: Any) -> Any:
        first, extent = (_constant(mutator.mutate(x)) for x in (loop.min, loop.extent))
        var = loop.loop_var
        if _dtype(var) == _WIDE and _dtype(first) == _dtype(extent) == _NARROW:
            var = self._narrow(var)
        else:
            first, extent = (_widened(x, _dtype(var)) for x in (first, extent))
        return tirx.For(var, first, extent, loop.kind, mutator.mutate(loop.body), None, loop.annotations, None)

    def _bind(self, bind: tirx.Bind, mutator: Any) -> Any:
        value = mutator.mutate(bind.value)
        var = bind.var
        if _dtype(var) == _WIDE and _dtype(value) == _NARROW:
            var = self._narrow(var)
        return tirx.Bind(var, value)

    def _store(self, store: tirx.BufferStore, mutator: Any) -> Any:
        buffer = self._vars.get(key(store.buffer), store.buffer)
        value = mutator.mutate(store.value)
        value = _narrowed(value) if str(buffer.dtype) == _NARROW else _widened(value, str(buffer.dtype))
        return tirx.BufferStore(buffer, value, [self._index(i, mutator) for i in store.indices])

    def _allocation(self, allocation: tirx.AllocBuffer, mutator: Any) -> Any:
        buffer = self._vars.get(key(allocation.buffer))
        return allocation if buffer is None else tirx.AllocBuffer(buffer)

    def _load(self, load: Any, mutator: Any) -> Any:
        return tirx.BufferLoad(
            self._vars.get(key(load.source), load.source), [self._index(i, mutator) for i in load.indices]
        )

    def _index(self, index: Any, mutator: Any) -> Any:
        return _constant(mutator.mutate(index))

    def _binary(self, x: Any, mutator: Any) -> Any:
        a, b = mutator.mutate(x.a), mutator.mutate(x.b)
        if type(x) in _EXACT and _dtype(x) == _WIDE and isinstance(a, tirx.IntImm) and isinstance(b, tirx.IntImm):
            # The result of two constants may need 64 bits.
            return _constant(tirx.IntImm(_WIDE, _EXACT[type(x)](int(a), int(b))))
        return type(x)(*_alike(a, b))

    def _of_bits(self, x: Any, mutator: Any) -> Any:
        return type(x)(*(_widened(mutator.mutate(part), _dtype(x)) for part in (x.a, x.b)))

    def _select(self, x: tirx.Select, mutator: Any) -> Any:
        return tirx.Select(
            mutator.mutate(x.condition), *_alike(mutator.mutate(x.true_value), mutator.mutate(x.false_value))
        )

    def _cast(self, x: tirx.Cast, mutator: Any) -> Any:
        value = mutator.mutate(x.value)
        return value if _dtype(value) == _dtype(x) else tirx.Cast(_dtype(x), value)

    def _call(self, x: tvm.ir.Call, mutator: Any) -> Any:
        name = str(getattr(x.op, "name", ""))
        if name == "prim.if_then_else":
            condition, yes, no = map(mutator.mutate, x.args)
            return tirx.if_then_else(condition, *_alike(yes, no))
        if name == "tirx.call_extern":
            # The sizes that the other kernel takes are int32, too.
            given = [_narrowed(mutator.mutate(arg)) for arg in x.args[1:]]
            return tvm.ir.Call(x.op, [x.args[0], *given], ret_ty=x.ty)
        return mutator.default_mutate(x)


def _leaves(x: Any) -> Iterator[Any]:
    """Yield what the numbers of an expression of 64 bits are made of: anything but sums, products and choices."""
    if isinstance(x, _BINARY) and _dtype(x) == _WIDE:
        for part in (x.a, x.b):
            yield from _leaves(part)
    elif isinstance(x, tirx.Select):
        for part in (x.true_value, x.false_value):
            yield from _leaves(part)
    elif isinstance(x, tvm.ir.Call) and str(getattr(x.op, "name", "")) == "prim.if_then_else":
        for part in x.args[1:]:
            yield from _leaves(part)
    else:
        yield x


def _constant(x: Any) -> Any:
    """Return a constant of 64 bits as one of 32, if it is one."""
    small = isinstance(x, tirx.IntImm) and _dtype(x) == _WIDE and -(1 << 31) <= int(x) < 1 << 31
    return tirx.IntImm(_NARROW, int(x)) if small else x


def _narrowed(x: Any) -> Any:
    x = _constant(x)
    return tirx.Cast(_NARROW, x) if _dtype(x) == _WIDE else x


def _widened(x: Any, name: str) -> Any:
    """Return a value in the type that is asked for, which holds it."""
    if name != _WIDE or _dtype(x) != _NARROW:
        return x
    return tirx.IntImm(_WIDE, int(x)) if isinstance(x, tirx.IntImm) else tirx.Cast(_WIDE, x)


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two operands in one type: constants follow the other one."""
    if {_dtype(a), _dtype(b)} <= {_NARROW, _WIDE} and _dtype(a) in (_NARROW, _WIDE):
        if all(isinstance(x, tirx.IntImm) or _dtype(x) == _NARROW for x in (a, b)):
            a, b = _constant(a), _constant(b)
        if _dtype(a) != _dtype(b):
            a, b = _widened(a, _WIDE), _widened(b, _WIDE)
    return a, b
