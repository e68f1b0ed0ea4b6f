"""A module as a sweep measures it: itself as the float model, its trace with softq's modules for each plan.

Graph, weights, names of sites, inputs and outputs are those of the exported model (`softq.torch.conversion`); on it
options are fitted and rows are looked at, too. What is measured is computed by torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

import softq.conversion
from softq.calibration import input_specs, spec_of
from softq.data import Array, DataSource, TensorSpec, look_at, name_of
from softq.errors import InputError, RefusalError, SoftqError, UsageError, root_line
from softq.plans import Plan
from softq.runner import Written, check_threads
from softq.torch.conversion import replace_softmaxes
from softq.torch.loading import MOST_TEXT, load_module, make_example, match_inputs, silent
from softq.torch.tracing import Traced, evaluating, trace


@dataclass(frozen=True)
class TorchRunner:
    """A module as a `softq.runner.Runner`: arrays in and out, by the names of the exported model.

    Attributes:
        name: What messages call it.
        inputs: What it takes.
        outputs: What it gives; bfloat16, which NumPy has not, as float32.
        call: Takes tensors by name, and returns tensors in any nest.
        device: Where they have to be.
        threads: Threads of torch; as they are if None.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    call: Callable[..., Any]
    device: torch.device
    threads: int | None

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        """Return the named outputs, or all, for one batch.

        Raises:
            InputError: torch fails.
            RefusalError: a method cannot be computed there.
        """
        try:
            with torch.no_grad(), _threads(self.threads):
                found = self.call(**{name: torch.from_numpy(x).to(self.device) for name, x in inputs.items()})
        except SoftqError as error:
            raise RefusalError(str(error)) from error
        except Exception as error:  # whatever the module raises
            raise InputError(f"{self.name}: torch fails while running it: {root_line(error, MOST_TEXT)}") from error
        tensors = [x for x in tree_leaves(found) if isinstance(x, Tensor)]
        if len(tensors) != len(self.outputs):
            raise InputError(
                f"{self.name}: gives {len(tensors)} tensors; traced was one that gives {len(self.outputs)}"
            )
        arrays = dict(zip((spec.name for spec in self.outputs), tensors, strict=True))
        return {name: _array(arrays[name]) for name in (arrays if outputs is None else outputs)}


class TorchSessions:
    """Gives a runner for each plan of one module, which was traced once; weights are shared.

    Args:
        runner: Runs the module.
        traced: Its trace.
    """

    def __init__(self, runner: TorchRunner, traced: Traced) -> None:
        self._runner, self._traced = runner, traced

    def runner(self, plan: Plan) -> TorchRunner:
        """Return a runner of what the plan makes of the module.

        Raises:
            RefusalError: as in `softq.torch.convert`.
            ProofError: likewise.
        """
        softq.conversion.expose(self._traced.exported, plan)  # What is refused or not proved there is not here, either.
        try:
            module = replace_softmaxes(self._traced, plan)
        except UsageError as error:
            raise RefusalError(str(error)) from error
        return replace(self._runner, call=partial(_run, module))


@dataclass(frozen=True)
class OpenedModule:
    """A traced module, as `softq.sweeps.evaluate.framework.Opened` asks for it."""

    float_model: TorchRunner
    traced: Traced
    packages: Sequence[str] = ("torch",)

    @property
    def model(self) -> ir.Model:
        """The exported model."""
        return self.traced.exported

    @property
    def conditions(self) -> Mapping[str, object]:
        """Hashes of the traced operators, and of all that they read."""
        program = self.traced.program
        modules = [part for part in program.graph_module.modules() if isinstance(part, GraphModule)]
        code = hashlib.sha256("\0".join(part.code for part in modules).encode())
        return {"trace": code.hexdigest(), "state": _hash({**program.state_dict, **program.constants})}

    def runner(self) -> TorchRunner:
        """Return the module itself, in evaluation."""
        return self.float_model

    def sessions(self, model: ir.Model, most: int = 1) -> TorchSessions:
        """Return what runs what plans make of it; `model` is the exported one."""
        return TorchSessions(self.float_model, self.traced)

    def write(self, model: ir.Model, plan: Plan | None, folder: Path) -> Written:
        """Return what runs the module, or what a plan makes of it, as it is; it has no files."""
        return Written(self.float_model if plan is None else self.sessions(model).runner(plan), None)


def open_module(
    model: object, data: Sequence[DataSource], *, batch: int | None = None, threads: int | None = None
) -> OpenedModule:
    """Return a module traced for data, whose arrays are named as the parameters of its `forward`.

    Args:
        model: A `torch.nn.Module`, or `package.module:function` or `file.py:function` that returns one.
        data: What it will be given. Axes whose lengths differ from file to file may change, as does the first one.
        batch: Samples per run, if that is known: some modules take no other number.
        threads: Threads of torch.

    Raises:
        UsageError: there is no such function, or torch cannot trace or export the module.
        InputError: the function fails or returns something else, or the data do not fit `forward`.
    """
    check_threads(threads)
    name, module = load_module(model)
    headers = [match_inputs(name, module, name_of(source), part) for source in data for part in look_at(source)]
    place = next((x.device for x in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    call, shapes = make_example(headers, 2 if batch is None else max(batch, 1), place)
    with _threads(threads), evaluating(module), silent():
        traced = trace(module, (), call, shapes)
    inputs = _input_specs(traced, call)
    if sorted(spec.name for spec in inputs) != sorted(call):
        strange = ", ".join(spec.name for spec in inputs if spec.name not in call)
        raise UsageError(f"{name}: its ONNX model calls an input {strange}: forward has to return copies of its inputs")
    if batch is None and any(
        0 in shapes[spec.name] and spec.shape and isinstance(spec.shape[0], int) for spec in inputs
    ):
        raise UsageError(f"{name}: it was traced for 2 samples, and can be for one number alone; give --batch N")
    outputs = tuple(_output_spec(value) for value in traced.exported.graph.outputs)
    float_model = TorchRunner(name, inputs, outputs, partial(_evaluate, module), place, threads)
    return OpenedModule(float_model, traced)


def _input_specs(traced: Traced, names: Iterable[str]) -> tuple[TensorSpec, ...]:
    """Return what the exported model takes, with the lengths that tracing fixed, of which it need not say anything."""
    values = {node.name: node.meta["val"] for node in traced.program.graph.nodes if node.op == "placeholder"}
    fixed = {
        name: [int(text) if (text := str(axis)).isdigit() else None for axis in values[place].shape]
        for name, place in zip(names, traced.program.graph_signature.user_inputs, strict=True)
    }
    return tuple(
        spec if spec.shape is None or spec.name not in fixed else replace(
            spec, shape=tuple(a if b is None else b for a, b in zip(spec.shape, fixed[spec.name], strict=True))
        )
        for spec in input_specs(traced.exported)
    )  # fmt: skip


def _evaluate(module: nn.Module, **given: Tensor) -> Any:
    with evaluating(module):
        return module(**given)


def _run(module: GraphModule, **given: Tensor) -> Any:
    return module(**given)


def _output_spec(value: ir.Value) -> TensorSpec:
    spec = spec_of(value)
    return replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec


def _array(x: Tensor) -> Array:
    return (x.float() if x.dtype is torch.bfloat16 else x).detach().cpu().numpy()


def _hash(tensors: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, x in sorted(tensors.items()):
        if isinstance(x, Tensor):
            digest.update(f"{name}\0{x.dtype}{tuple(x.shape)}".encode())
            digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _threads(count: int | None) -> Generator[None]:
    """Let torch have so many threads meanwhile."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)
