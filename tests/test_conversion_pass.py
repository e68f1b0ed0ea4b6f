"""The conversion as one pass: `convert`'s result, another model, and a truthful `modified`."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import CheckerPass

import softq
from softq.errors import UsageError
from softq.passes import NOTES_KEY
from tests.attention import attention, inputs, run


def test_it_is_convert() -> None:
    model = ir.from_proto(attention())
    before = ir.to_proto(model).SerializeToString()
    result = ir.passes.Sequential(softq.SoftqPass("log2", bits=3), CheckerPass(full_check=True))(model)
    assert result.modified
    assert ir.to_proto(model).SerializeToString() == before
    expected = softq.convert(attention(), method="log2", bits=3).model
    assert ir.to_proto(result.model).SerializeToString() == expected.SerializeToString()
    assert (run(ir.to_proto(result.model), inputs()) == run(expected, inputs())).all()


def test_options_of_convert() -> None:
    model = ir.from_proto(attention())
    result = softq.SoftqPass(bits=4, inline=True, sites=["raw"])(model)
    assert not result.model.functions
    assert "Softmax" not in [node.op_type for node in result.model.graph]


def test_a_plan_settles_everything() -> None:
    plan = softq.convert(attention(), method="log2", bits=3).plan
    result = softq.SoftqPass(plan=plan)(ir.from_proto(attention()))
    assert [name for _, name, _ in result.model.functions] == ["Log2_b3"]


def test_what_is_not_modified() -> None:
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) {y = Abs(x)}'
    )
    result = softq.SoftqPass()(ir.from_proto(plain))
    assert not result.modified
    assert result.model.meta[NOTES_KEY] == ("the model has no softmax: nothing to convert",)


def test_errors() -> None:
    with pytest.raises(UsageError, match="bits is 40"):
        softq.SoftqPass(bits=40)
    with pytest.raises(UsageError, match=r"unknown option 'everything' of softq\.convert; there are: calibration, sam"):
        softq.SoftqPass(everything=True)
    with pytest.raises(UsageError, match="sites is 'raw'; expected a list"):
        softq.SoftqPass(sites="raw")
    with pytest.raises(ir.passes.PassError) as caught:
        ir.passes.Sequential(softq.SoftqPass(sites=["nothing"]))(ir.from_proto(attention()))
    assert isinstance(caught.value.__cause__, UsageError)
