# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""What is done to each element of a product before anything else reads it: biases, activations, residual sums.

Any elementwise function of TVM's is such an epilogue if it is one nest whose result has the product's elements in their
order, and which reads the product and everything else at the element's own place, by its column, or as one number. The
product's kernel applies it to what it has just written, while that is in the cache.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import tvm
from tvm import relax, s_tir, tirx
from tvm_ffi.structural import structural_map

from softq.compiler.ops import KernelCall
from softq.compiler.tir.expressions import copied, found
from softq.compiler.tir.loop_nests import elements_of
from softq.compiler.tir.symbolic import equal, is_number, key, plain, product, simplified

if TYPE_CHECKING:
    from softq.codegen.cpu.backend import Kernels
    from softq.compiler.tir.loop_nests import Nest

Where = Literal["same", "column", "one"]
"""Where an epilogue reads a tensor: at the element's own place, at its column, or at its only element."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an epilogue reads.

    Attributes:
        position: Of the argument of the elementwise function.
        where: Where it is read.
        dtype: Its type.
        var: What stands for the element that is read.
    """

    position: int
    where: Where
    dtype: str
    var: tirx.Var


@dataclass(frozen=True)
class Epilogue:
    """A function of an element of a product and of elements of other tensors.

    Attributes:
        name: Name of TVM's function.
        element: What stands for the product's element.
        operands: What else is read.
        value: The result.
    """

    name: str
    element: tirx.Var
    operands: tuple[Operand, ...]
    value: Any

    @property
    def suffix(self) -> str:
        """What tells the kernels of products with it from others."""
        where = "_".join(f"{o.position}{o.where}" for o in self.operands)
        return re.sub(r"\W", "_", f"{self.name}_{where}")

    def apply(self, element: Any, load: Callable[[int, Operand], Any]) -> Any:
        """Return the result for an element; `load` gives what an operand, by its number, has there."""
        values = {operand.var: load(i, operand) for i, operand in enumerate(self.operands)}
        return copied(self.value, {self.element: element, **values})


@dataclass(frozen=True)
class Finished:
    """A product with the function that is its epilogue.

    Attributes:
        product: The binding of the product.
        epilogue: What is done to its elements.
    """

    product: Any
    epilogue: Epilogue


def find(
    module: tvm.IRModule, calls: Mapping[str, KernelCall], kernels: Kernels, taken: set[int]
) -> tuple[dict[int, Finished], set[int]]:
    """Return the products with epilogues by the variable of the function's result, and the variables in between.

    Args:
        module: The lowered module.
        calls: What the kernels of our own compute, by name.
        kernels: What gives the kernels of its functions.
        taken: Variables that are computed in another way.
    """
    main = module["main"]
    bindings = {key(binding.var): binding for block in main.body.blocks for binding in block.bindings}
    uses = Counter(key(v) for b in bindings.values() for v in _variables(b.value))
    uses.update(key(v) for v in _variables(main.body.body))
    finished: dict[int, Finished] = {}
    inside: set[int] = set()
    for at, binding in bindings.items():
        if at in taken or getattr(getattr(binding.value, "op", None), "name", "") != "relax.call_tir":
            continue
        # The last argument first: of two products the later one takes what is made of both.
        given = [(i, x) for i, x in enumerate(binding.value.args[1].fields) if isinstance(x, relax.Var)]
        for position, argument in reversed(given):
            chain = list(_views(argument, bindings))
            if any(uses[v] != 1 or v in taken for v in chain) or not chain:
                continue
            source = bindings[chain[-1]]
            if not _is_product(source, calls, kernels):
                continue
            epilogue = _epilogue(module, binding, position, source, kernels)
            if epilogue is not None and kernels.finishes(epilogue, str(binding.var.ty.dtype)):
                finished[at] = Finished(source, epilogue)
                inside.update(chain)
                break
    return finished, inside


def _variables(expr: Any) -> Iterator[Any]:
    yield from found(expr, relax.Var)


def _views(value: Any, bindings: Mapping[int, Any]) -> Iterator[int]:
    """Yield a variable and those whose memory it shows."""
    while isinstance(value, relax.Var) and key(value) in bindings:
        yield key(value)
        expr = bindings[key(value)].value
        if getattr(getattr(expr, "op", None), "name", "") != "relax.reshape":
            return
        value = expr.args[0]


def _is_product(binding: Any, calls: Mapping[str, KernelCall], kernels: Kernels) -> bool:
    value = binding.value
    if getattr(getattr(value, "op", None), "name", "") != "relax.call_dps_packed":
        return False
    return isinstance(calls[str(value.args[0].global_symbol)], kernels.finished)


def _epilogue(module: tvm.IRModule, binding: Any, position: int, source: Any, kernels: Kernels) -> Epilogue | None:
    if not isinstance(binding.var.ty, relax.TensorType):
        return None
    given, out = list(binding.value.args[1].fields), list(binding.var.ty.shape.values)
    there = list(source.var.ty.shape.values)
    if len(binding.value.args) > 2 or any(map(is_number, given)) or not out or not equal(out[-1], there[-1]):
        return None
    if not equal(product(out), product(there)):
        return None
    name = str(binding.value.args[0].name_hint)
    try:
        nests = kernels.nests(name, module[binding.value.args[0]], True)
    except s_tir.schedule.ScheduleError:
        return None
    dtype = str(source.var.ty.dtype)
    return _read(nests[0], name, position, len(given), dtype) if len(nests) == 1 else None


def _read(nest: Nest, name: str, position: int, result: int, product_type: str) -> Epilogue | None:
    """Return the epilogue that a nest is, whose parameter at a position is the product."""
    parts = elements_of(nest)
    if parts is None:
        return None
    store, owner, column = parts.store, parts.owner, parts.column.loop_var
    own = parts.row.loop_var * parts.column.extent + column
    if owner.get(key(store.buffer)) != result or not _equal(store.indices, own):
        return None
    element = tirx.Var("element", product_type)
    operands: list[Operand] = []
    fits = True

    def replaced(load: Any) -> Any:
        nonlocal fits
        at, dtype = owner.get(key(load.source)), str(load.ty.dtype)
        if _equal(load.indices, own):
            where: Where = "same"
        elif _equal(load.indices, column):
            where = "column"
        else:
            where = "one"
            fits &= all(plain(index) == 0 for index in load.indices)
        if at == position and where == "same" and dtype == product_type:
            return element
        fits &= isinstance(at, int) and at != position and at != result
        for operand in operands:
            if (operand.position, operand.where) == (at, where):
                return operand.var
        operands.append(Operand(int(at) if isinstance(at, int) else -1, where, dtype, tirx.Var("operand", dtype)))
        return operands[-1].var

    value = structural_map(store.value, (tvm.ir.TensorLoad, replaced))
    known = {key(element), *(key(o.var) for o in operands), *(key(let.var) for let in found(value, tirx.Let))}
    if not fits or any(key(var) not in known for var in found(value, tirx.Var)):
        return None
    return Epilogue(name, element, tuple(operands), value)


def _equal(indices: Any, expr: Any) -> bool:
    return len(indices) == 1 and plain(simplified(indices[0] - expr)) == 0
