"""Modules of softq.torch as torch.onnx and torch.export write them, with the method inside."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnxruntime
import pytest

from softq.methods import METHODS

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import softq.torch as st  # noqa: E402
from softq.torch.curves import as_tensor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS = torch.tensor([[1.0, torch.nan, 2.0, 0.5], [torch.inf, 0.0, 1.0, 2.0], [-torch.inf, 1.0, 3.0, 2.5]])


def by_onnxruntime(module: Any, *inputs: Any) -> Any:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [one.name for one in session.get_inputs()]
    (out,) = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
    return out


@pytest.mark.parametrize("method", ["deferred-log", "exact", "uniform", "i-exp"])
def test_torch_onnx_writes_a_method(method: str) -> None:
    module = st.Softmax(method=method)
    scores = torch.cat([ROWS, torch.randn(5, 4, generator=torch.Generator().manual_seed(0)) * 3])
    np.testing.assert_allclose(by_onnxruntime(module, scores), module(scores).numpy(), rtol=1e-6, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.entries())
def test_torch_onnx_writes_every_method(method: str) -> None:
    module = st.Softmax(method=method)
    scores = torch.randn(4, 9, generator=torch.Generator().manual_seed(0)) * 3
    # Sums of floats come in another order.
    np.testing.assert_allclose(by_onnxruntime(module, scores), module(scores).numpy(), rtol=1e-5, atol=1e-7)


CURVE = {"r": (1.5, 2.5), "first": (0.4, 0.2), "shift": (0.0, 0.3), "slope": (0.2, 0.1)}


def learned(**more: Any) -> Any:
    return st.Attention(bits=3, fitted=CURVE, learn=("r", "first", "shift"), **dict.fromkeys(CURVE, "head"), **more)


@pytest.mark.parametrize("scope", ["site", "head"])
def test_the_operator_of_tables_has_the_shapes_that_it_says(scope: str) -> None:
    heads = {name: values if scope == "head" else values[0] for name, values in CURVE.items()}
    options: dict[str, Any] = dict.fromkeys(CURVE, scope)
    made = st.weighing(bits=3, fitted=heads, **options)
    numbers = [as_tensor(heads[name]).float() for name in made.curve.limits]
    torch.library.opcheck(torch.ops.softq.tables.default, (numbers, made.curve.key))


def test_torch_export_takes_a_module_that_learns() -> None:
    module, inputs = learned(), tuple(torch.randn(2, 2, 5, 8) for _ in range(3))
    exported = torch.export.export(module, inputs).module()
    assert torch.equal(exported(*inputs), module(*inputs))
    with torch.no_grad():
        before = module(*inputs)
        exported.get_parameter("r").mul_(1.5)
        module.get_parameter("r").mul_(1.5)
    assert not torch.equal(module(*inputs), before)
    assert torch.equal(exported(*inputs), module(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("backward", ["float", "quantized"])
def test_a_module_that_learns_compiles_without_a_break(backward: Any) -> None:
    module = learned(backward=backward)
    compiled = torch.compile(module, fullgraph=True)
    inputs = [torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3)]
    for _ in range(2):
        every = [*inputs, *module.parameters()]
        found, wanted = (
            [out := run(*inputs), *torch.autograd.grad(out.square().sum(), every)] for run in (compiled, module)
        )
        for mine, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
        # What was compiled has other tables for other numbers.
        with torch.no_grad():
            for number in module.parameters():
                number.mul_(1.25)
