"""From a model to a program for a backend: the steps in their order, and the walk over the lowered model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import tvm
from onnx_ir.passes.common import RemoveInitializersFromInputsPass
from tvm import relax

from softq.artifact.program import Program
from softq.compiler.backend import Backend, Lowering, arguments_of
from softq.compiler.convolve_integers import ConvolveIntegers
from softq.compiler.fold_biases import FoldBiases
from softq.compiler.frontend.imported import Imported, import_model
from softq.compiler.frontend.importer import known_operators
from softq.compiler.frontend.preflight import check_read
from softq.compiler.fusion import bindings
from softq.compiler.fusion.attention import find_attentions
from softq.compiler.fusion.epilogue import FUSING, find_epilogues
from softq.compiler.legalize import elementwise, quantization
from softq.compiler.look_up_codes import LookUpCodes
from softq.compiler.multiply_words import MultiplyWords
from softq.compiler.normalize_codes import NormalizeCodes
from softq.compiler.ops.linear import MatMulOp
from softq.compiler.steps.builder import Builder, Value, tensor_types
from softq.compiler.steps.product import Epilogue
from softq.compiler.tir.symbolic import is_number, key
from softq.compiler.tvm_errors import find_failing, refusal_of, refusing
from softq.errors import RefusalError
from softq.modelfile import as_model
from softq.passes import NOTES_KEY
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.fold_recurrent_weights import FoldRecurrentWeights
from softq.passes.infer_shapes import InferShapes
from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from softq.passes.prepare import prepare
from softq.passes.split_products import SplitProducts
from softq.passes.widen_halves import WidenHalves
from softq.provenance import RowFunction, row_functions


def compile_model(
    model: ir.Model, backend: Backend, functions: Mapping[tuple[str, str], RowFunction] | None = None
) -> Program:
    """Return the program of a converted model, which is not changed, with the kernels of a backend.

    Args:
        model: The model.
        backend: What gives the kernels.
        functions: What its row functions compute, by domain and name; read from the model by default.

    Raises:
        RefusalError: an operator or a shape has no form in a built model; the message names it.
    """
    check_read(model, known_operators())
    opened = as_model(model)
    if ExpandFunctions()(opened).modified:  # Calls of softq's functions may stand in the model's own.
        InferShapes()(opened)
    if functions is None:
        functions = row_functions(opened)  # before anything touches their bodies
    RemoveInitializersFromInputsPass()(opened)  # In a built model they are constants.
    prepared = prepare(opened)
    widen = WidenHalves(sums=not backend.supports(MatMulOp, "float16"))
    integers = (FoldBiases(), MoveIntegers(), LookUpCodes(), NormalizeCodes(), MultiplyIntegers(), MultiplyWords())
    images = (ConvolveIntegers(),) if backend.fuses_integers else ()
    for step in (FoldRecurrentWeights(), *integers, *images, SplitProducts(), widen):
        step(prepared)
    with refusing("TVM cannot compile the model"):
        program = _lower(import_model(prepared, functions, backend.supports), backend)
    return replace(program, notes=prepared.meta.get(NOTES_KEY, ()))


def _lower(imported: Imported, backend: Backend) -> Program:
    module = _legalize(imported.module, backend)
    walk = _Walk(module, imported.operators, imported.weights, backend, Builder(backend.tir, backend.shares_slots))
    return walk.program(imported)


def _legalize(module: tvm.IRModule, backend: Backend) -> tvm.IRModule:
    """Return a module whose operators are calls of TIR functions, fused, and of kernels of our own."""
    own = {**elementwise.LEGALIZE, **backend.min_max, **quantization.legalize(backend.machine)}
    passes = [
        relax.transform.LegalizeOps(own, skip_ops=["relax.reshape"]),
        relax.transform.DeadCodeElimination(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(fuse_opt_level=2),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    try:
        return tvm.ir.transform.Sequential(passes)(module)
    except Exception as error:
        # TVM's own checks of an operator's arguments, in words of its own.
        name = find_failing(module, tvm.ir.transform.Sequential(passes))
        what = "the model" if name is None else repr(name)
        raise refusal_of(f"TVM cannot lower {what}") from error


class _Walk(Lowering):
    """The walk over `main`."""

    def program(self, imported: Imported) -> Program:
        main = self.module["main"]
        inputs: list[tuple[str, Value]] = []
        for position, param in enumerate(main.params):
            if position < len(imported.inputs):
                value = self.builder.typed(param.ty, "input", position)
                inputs.append(_named(imported, imported.inputs[position], value))
                self.values[key(param)] = value
                self.builder.dims.update(d for d in value.dims if isinstance(d, str))
            else:
                self.values[key(param)] = str(param.name)  # A weight: placed where it is used, as it is used.
        # Behind the model's own stands what measures dimensions.
        outputs = self.builder.outputs(self._results()[: len(imported.outputs)])
        named = [_named(imported, name, value) for name, value in zip(imported.outputs, outputs, strict=True)]
        return self.builder.program(inputs, named, imported.limits, self.backend.objects())

    def body(self, module: tvm.IRModule, values: Sequence[Any]) -> list[Value]:
        """Append the steps of a body in Relax whose inputs are these, and return its results."""
        legal = _legalize(module, self.backend)
        walk = _Walk(legal, self.operators, self.weights, self.backend, self.builder)
        for position, param in enumerate(legal["main"].params):
            walk.values[key(param)] = values[position] if position < len(values) else str(param.name)
        return walk._results()

    def _results(self) -> list[Value]:
        """Append all steps and return what `main` gives."""
        attentions, inside = find_attentions(self.module, self.operators, self.backend)
        fused, delayed = find_epilogues(self.module, self.operators, self.backend, {*attentions, *inside})
        for at, binding in bindings.in_order(self.module, self.operators).items():
            if at in delayed:
                continue
            with refusing(f"TVM cannot compile {str(binding.var.name)!r}"):
                if at in inside:
                    self._reserve_scalars(binding)
                elif at in fused:
                    self.values[at] = self._fused(binding, *fused[at])
                elif at in attentions:
                    self.values[at] = self.backend.attention(self, attentions[at])
                else:
                    self.values[at] = self._bound(binding)
        result = self.value(self.module["main"].body.body)
        return list(result) if isinstance(result, tuple) else [result]

    def _reserve_scalars(self, binding: Any) -> None:
        """Give the scalars of a row program that is computed inside an attention their memory: others use them."""
        if bindings.is_tuple(binding.var.ty):
            self.values[key(binding.var)] = (None, *(self.builder.new(ty) for ty in tensor_types(binding.var.ty)[1:]))

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        item = bindings.item_of(binding)
        if item is not None:
            return self.value(item[0])[item[1]]
        if isinstance(value, relax.Tuple):
            return tuple(self.value(f) for f in value.fields)
        if not isinstance(value, tvm.ir.Call):
            return self.value(value)
        if bindings.is_view(binding):
            source = self.value(value.args[0])
            typed = self.builder.typed(binding.var.ty, "arena", 0)
            return Value(typed.dims, source.dtype, source.place, source.at)
        if bindings.is_function(binding):
            return self._call_tir(binding, value)
        operator = bindings.operator_of(binding, self.operators)
        if operator is not None:
            return operator.lower(self, _arguments(value), binding.var.ty)
        raise RefusalError(f"TVM leaves the operator {bindings.callee(binding) or value.op}, which has no kernel")

    def _call_tir(self, binding: Any, call: Any) -> Any:
        given = arguments_of(call)
        outputs = [self.builder.new(ty) for ty in tensor_types(binding.var.ty)]
        # Skip empty outputs: TVM cannot divide by an axis of no elements.
        if not all(0 in value.dims for value in outputs):
            for step in self.tir_steps(call, [self.value(x) for x in given if not is_number(x)], outputs):
                self.builder.append(step)
        return tuple(outputs) if bindings.is_tuple(binding.var.ty) else outputs[0]

    def _fused(self, binding: Any, product: Any, epilogue: Epilogue) -> Value:
        """Return a product's elements after what is done to each of them."""
        given = binding.value.args[1].fields
        others = [self.value(given[operand.position]) for operand in epilogue.operands]
        operator = bindings.operator_of(product, self.operators)
        assert isinstance(operator, FUSING)
        if isinstance(operator, MatMulOp):
            return operator.lower(self, _arguments(product.value), binding.var.ty, epilogue, others)
        image = operator.lower(self, _arguments(product.value), product.var.ty, epilogue, others)
        return replace(image, dims=self.builder.typed(binding.var.ty, "arena", 0).dims)


def _named(imported: Imported, name: str, value: Value) -> tuple[str, Value]:
    """Return an input or output with its name and with the element type that it has outside."""
    return name, replace(value, dtype=imported.dtypes.get(name, value.dtype))


def _arguments(call: Any) -> list[Any]:
    return list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
