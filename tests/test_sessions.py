"""One session for many plans: the outputs are those of the converted models, to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from softq.conversion import convert
from softq.methods import METHODS
from softq.plans import Plan
from softq.runner import OnnxRunner
from softq.sweeps.evaluate.sessions import OnnxSessions
from softq.sweeps.planner import Planner, Selection
from tests.test_methods import ALL

VIT = Path(__file__).parent.parent / "models/mnist_vit/mnist_vit.onnx"
CALIBRATION = Path(__file__).parent.parent / "models/mnist_vit/calibration.npz"
WIDTHS = (2, 3, 4, 5, 8)


def images() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    with np.load(CALIBRATION) as arrays:
        return arrays["images"][:8]


def outputs(plan: Plan, sessions: OnnxSessions) -> tuple[bytes, bytes]:
    """Return the outputs through a shared session, and those of the converted model."""
    feed = {"images": images()}
    shared, alone = sessions.runner(plan), OnnxRunner.open(convert(VIT, plan=plan).model, threads=1)
    assert [spec.name for spec in shared.inputs] == ["images"]
    assert shared.outputs == alone.outputs
    return tuple(next(iter(one(feed).values())).tobytes() for one in (shared, alone))  # pyright: ignore


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", [name for name in ALL if METHODS.get(name).drop_in])
def test_every_width_of_a_method(name: str) -> None:
    spec = METHODS.get(name).options.specs().get("bits")
    planner = Planner(VIT, Selection())
    sessions = OnnxSessions(planner.model, 1)
    found: list[bytes] = []
    for bits in WIDTHS:
        if spec is not None and not spec.low <= bits <= spec.high:
            continue
        options = {} if spec is None else {"bits": bits}
        shared, alone = outputs(planner.everywhere((name, options)), sessions)
        assert shared == alone, bits
        found.append(shared)
    assert len(set(found)) > 1 or spec is None or len(found) == 1


def test_widths_share_a_session() -> None:
    planner = Planner(VIT, Selection())
    sessions = OnnxSessions(planner.model, 1)
    opened = []
    for method, bits in (("uniform", 2), ("uniform", 8), ("deferred-log", 4), ("deferred-log", 7), ("uniform", 3)):
        sessions.runner(planner.everywhere((method, {"bits": bits})))
        opened.append(id(sessions._open[-1]))  # pyright: ignore[reportPrivateUsage]
    assert [opened[0] == opened[1], opened[2] == opened[3], opened[1] == opened[2], opened[0] == opened[4]] == [
        True, True, False, False
    ]  # fmt: skip
    assert len(sessions._open) == 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("r", ["site", "head"])
def test_fitted_numbers_and_mixed_widths(r: str) -> None:
    planner = Planner(VIT, Selection(), CALIBRATION)
    sessions = OnnxSessions(planner.model, 1)
    for widths in ((4, 4, 4, 4), (4, 3, 2, 4), (8, 4, 6, 8)):
        sites = planner.sites("deferred-log")
        plan = planner.plan({
            site: ("deferred-log", {"bits": bits, "r": r}) for site, bits in zip(sites, widths, strict=True)
        })  # fmt: skip
        shared, alone = outputs(plan, sessions)
        assert shared == alone, widths


def test_a_site_in_a_function_keeps_its_numbers() -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        g (float[2, 4, 5, 6] q, float[2, 4, 6, 7] k, float[2, 4, 7, 3] v) => (float[2, 4, 5, 3] y) {
            y = own.attend(q, k, v)
        }
        <domain: "own", opset_import: ["" : 18]>
        attend (q, k, v) => (y) { s = MatMul(q, k)  p = Softmax<axis = -1>(s)  y = MatMul(p, v) }""")
    onnx.checker.check_model(model)
    planner = Planner(ir.from_proto(model), Selection())
    sessions = OnnxSessions(planner.model, 1)
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 4, 5, 6), "k": (2, 4, 6, 7), "v": (2, 4, 7, 3)}
    feed = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for bits in (2, 4, 8):
        plan = planner.everywhere(("deferred-log", {"bits": bits}))
        shared, alone = sessions.runner(plan), OnnxRunner.open(convert(model, plan=plan).model, threads=1)
        np.testing.assert_array_equal(shared(feed)["y"], alone(feed)["y"])
