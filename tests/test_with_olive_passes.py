"""Olive's configuration and surgeon, where Olive is installed: `make integrations` runs this."""

from __future__ import annotations

import pytest

from softq.errors import UsageError
from tests.attention import attention

pytestmark = [pytest.mark.slow, pytest.mark.integrations]


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("olive")


def test_the_configuration_is_olives_own_and_one_pass() -> None:
    ours = pytest.importorskip("softq.integrations.olive")
    config = pytest.importorskip("olive.package_config").OlivePackageConfig
    own, made = config.load_default_config().passes, config.model_validate(ours.package_config())
    assert made.passes.keys() - own.keys() == {"softq"}
    assert own.keys() < made.passes.keys()
    assert made.import_pass_module("Softq") is ours.Softq


def test_the_surgeon() -> None:
    ours = pytest.importorskip("softq.integrations.olive")
    registry = pytest.importorskip("olive.passes.onnx.graph_surgeries").Surgeon.registry
    assert registry["softqsurgeon"] is ours.SoftqSurgeon
    made = ours.SoftqSurgeon("log2", bits=3, options={"inline": True})(attention())
    assert not made.functions
    assert "Softmax" not in [node.op_type for node in made.graph.node]
    with pytest.raises(UsageError, match="bits is 40"):
        ours.SoftqSurgeon(bits=40)
