"""Functions in C++: every method's, compiled with the types that hls4ml brings, and layers of hls4ml.

Runs where hls4ml is installed: `make integrations`.
"""

# The tool is not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

hls4ml: Any = pytest.importorskip("hls4ml")
pytestmark = pytest.mark.integrations

from softq.errors import RefusalError, SoftqError, UsageError  # noqa: E402
from softq.integrations.hls4ml import replace_softmax  # noqa: E402
from softq.methods import METHODS  # noqa: E402
from softq.rowprog import run  # noqa: E402
from softq.rtl import hls, write_hls  # noqa: E402

TYPES = Path(hls4ml.__file__).parent / "templates" / "vivado" / "ap_types"
METHOD_NAMES = [name for name, method in METHODS.entries().items() if method.drop_in and method.integer_scores]
FLOAT = {"qlinear"}


def _settings(method: str, **more: object) -> Mapping[str, object]:
    return {"step": 0.06, **more} if "step" in METHODS.get(method).options.specs() else more


def _run(folder: Path, name: str) -> tuple[int, str]:
    command = ["g++", "-O1", "-std=c++14", "-w", "-isystem", TYPES, f"{name}_tb.cpp", "-o", "testbench"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./testbench"], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scores", ["i8", "u8"])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_gives_what_the_interpreter_gives(tmp_path: Path, method: str, scores: str, masked: bool) -> None:
    """Each method that can stand for softmax and takes integers, unless its program has floats."""
    if method in FLOAT:
        with pytest.raises(RefusalError, match="is a float"):
            hls(method, _settings(method), scores=scores, masked=masked)
        return
    made = hls(method, _settings(method), scores=scores, masked=masked, rows=20)
    write_hls(made, tmp_path)
    code, said = _run(tmp_path, made.function.name)
    assert (code, said) == (0, f"PASS: {len(made.rows)} rows, 0 wrong\n")


def test_a_wrong_table_is_found(tmp_path: Path) -> None:
    """The testbench fails where a table is another."""
    made = hls("deferred-log", _settings("deferred-log"), length=64, rows=2)
    write_hls(made, tmp_path)
    file = tmp_path / "deferred_log.h"
    text = file.read_text()
    assert "    0, 0, 0, 1, 1," in text
    file.write_text(text.replace("    0, 0, 0, 1, 1,", "    0, 0, 1, 1, 1,"))
    code, said = _run(tmp_path, "deferred_log")
    assert code == 1
    assert said.startswith("FAIL")


def _project(folder: Path, io: str, precision: str, backend: str = "Vitis", softmax: bool = True) -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 16]) for name in ("scores", "weights")]
    node = helper.make_node("Softmax" if softmax else "Relu", ["scores"], ["weights"], name="softmax")
    graph = helper.make_graph([node], "attention", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    config = hls4ml.utils.config_from_onnx_model(model, granularity="name", backend=backend)
    config["LayerName"]["scores"]["Precision"]["result"] = precision
    return hls4ml.converters.convert_from_onnx_model(
        model, hls_config=config, backend=backend, io_type=io, output_dir=str(folder)
    )


@pytest.mark.parametrize(
    ("io", "backend", "precision", "method", "output", "total"),
    [
        ("io_parallel", "Vitis", "fixed<8,4>", "ita", "uint8", 256),
        ("io_stream", "Vitis", "fixed<8,3>", "ita", "uint8", 256),
        ("io_parallel", "Vivado", "ufixed<6,3>", "shiftmax", "int16", 32768),
        ("io_stream", "Vivado", "fixed<5,5>", "hls4ml", "fixed", 1024),
    ],
)
def test_layer_gives_the_integers(
    tmp_path: Path, io: str, backend: str, precision: str, method: str, output: str, total: int
) -> None:
    """A project with a replaced softmax, compiled by g++."""
    project = _project(tmp_path / "project", io, precision, backend)
    assert replace_softmax(project, method, {"output": output}) == ["softmax"]
    project.compile()
    width, integer = (int(text) for text in precision[precision.index("<") + 1 : -1].split(","))
    low, high = (0, 1 << width) if precision.startswith("u") else (-1 << (width - 1), 1 << (width - 1))
    scores = np.random.default_rng(0).integers(low, high, (50, 3, 16))
    step = 2.0 ** (integer - width)
    given = np.asarray(project.predict((scores * step).astype(np.float32)), np.float64)
    made = hls(
        method,
        {"output": output, "step": step},
        scores="u8" if precision.startswith("u") else "i8",
        outputs=["weights"],
        length=16,
    )
    expected = run(made.program, scores.astype(made.program.scores.numpy))["weights"]
    np.testing.assert_array_equal(given.reshape(expected.shape) * total, expected)


@pytest.mark.parametrize(
    ("precision", "method", "settings", "error", "reason"),
    [
        ("fixed<16,6>", "ita", {"output": "uint8"}, RefusalError, "at most 8 bits"),
        ("fixed<8,4>", "index-softmax", {"output": "uint8"}, RefusalError, "power of two"),
        ("fixed<8,4>", "deferred-log", {}, RefusalError, "power of two"),
        ("fixed<8,4>", "ita", {"output": "uint9"}, UsageError, "uint9"),
    ],
)
def test_refuses(
    tmp_path: Path, precision: str, method: str, settings: dict[str, object], error: type[SoftqError], reason: str
) -> None:
    """What cannot be replaced is a line, and stays."""
    project = _project(tmp_path, "io_parallel", precision)
    with pytest.raises(error, match=reason):
        replace_softmax(project, method, settings)
    assert "Softmax" in [layer.class_name for layer in project.get_layers()]


def test_refuses_other_models(tmp_path: Path) -> None:
    """Other backends have other types; a model without softmax is a mistake."""
    with pytest.raises(UsageError, match="for Quartus"):
        replace_softmax(_project(tmp_path, "io_stream", "fixed<8,4>", "Quartus"), "ita", {"output": "uint8"})
    with pytest.raises(UsageError, match="no Softmax"):
        replace_softmax(_project(tmp_path, "io_parallel", "fixed<8,4>", softmax=False), "ita", {"output": "uint8"})
