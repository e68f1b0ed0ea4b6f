"""Attentions in C: rows of scratch are addressed from where it begins, and results are those of onnxruntime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq
from tests.test_firmware import COMPILERS

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")
MODEL = """<ir_version: 10, opset_import: ["": 21]>
f (float[2, 3, {rows}, 8] q, float[2, 3, 10, 8] k, float[2, 3, 10, 8] v, float[2, 1, {rows}, 10] mask)
    => (float[2, 3, {rows}, 8] y)
<float scale = {{0.35}}>
{{ t = Transpose<perm = [0, 1, 3, 2]>(k)  s = MatMul(q, t)  c = Mul(s, scale)  {masked}  p = Softmax<axis = -1>(x)
   y = MatMul(p, v) }}"""


@pytest.mark.parametrize(
    ("rows", "masked", "target"),
    [
        (1, "x = Identity(c)", "cortex-m,cpu=m4"),
        (7, "x = Add(c, mask)", "c"),
        (13, "x = Add(c, mask)", "cortex-m,cpu=m4"),
    ],
)
def test_scratch_is_addressed_from_its_beginning(rows: int, masked: str, target: str, tmp_path: Path) -> None:
    model = parser.parse_model(MODEL.format(rows=rows, masked=masked))
    softq.build(model, tmp_path / "m", target=f"{target},name=m")
    text = (tmp_path / "m" / "m_kernels.c").read_text()
    assert "m_softq_attention" in text
    places = re.findall(r"&scratch\[([^]]*)\]", text)
    assert places
    assert not [place for place in places if "-" in place], "an address before the memory is no address in C"
    rng = np.random.default_rng(rows)
    shapes = {"q": (2, 3, rows, 8), "k": (2, 3, 10, 8), "v": (2, 3, 10, 8), "mask": (2, 1, rows, 10)}
    given = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted: Any = session.run(None, given)[0]
    with softq.load(tmp_path / "m") as built:
        found: Any = next(iter(built(given).values()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * float(np.abs(wanted).max()))
