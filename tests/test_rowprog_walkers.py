"""Every walker over row programs has a rule for every operator, and says which one it lacks."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import numpy as np
import pytest

from softq.errors import SoftqError
from softq.rowprog import Trace, evaluation, run
from softq.rowprog.onnx import rules as onnx_rules
from softq.rowprog.onnx import to_model
from softq.rowprog.ops import OPS
from softq.rowprog.ranges import analysis, prove
from softq.rowprog.ranges import rules as ranges_rules

PORTABLE: dict[str, list[Iterable[str]]] = {
    "interpreter": [evaluation.RULES],
    "range analysis": [ranges_rules.RULES, ranges_rules.REDUCTIONS, analysis.OF_THE_WALK],
    "ONNX": [onnx_rules.RULES],
}
EMITTERS = ["softq.codegen.cpu.rows", "softq.codegen.gpu.rows"]


def lacks(tables: Iterable[Iterable[str]]) -> tuple[set[str], list[str]]:
    """Return the operators without a rule, and those with two or with none in the table of operators."""
    known = [op for table in tables for op in table]
    return set(OPS) - set(known), [op for op in known if op not in OPS or known.count(op) > 1]


@pytest.mark.parametrize("walker", PORTABLE)
def test_a_walker_has_one_rule_for_every_operator(walker: str) -> None:
    assert lacks(PORTABLE[walker]) == (set(), [])


@pytest.mark.parametrize("emitter", EMITTERS)
def test_an_emitter_of_kernels_has_one_rule_for_every_operator(emitter: str) -> None:
    if "cpu" in emitter:
        pytest.importorskip("tvm")
    rules, reductions = (importlib.import_module(f"{emitter}.{name}") for name in ("rules", "accumulators"))
    # Passes write loops and what stands between two passes.
    assert lacks([rules.RULES, reductions.REDUCTIONS, ["scan", "group_max"]]) == (set(), [])


def test_a_missing_rule_names_the_walker_and_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Trace("roots")
    program = t.program(probabilities=t.sqrt(t.scores))
    for rules, walk in (
        (evaluation.RULES, lambda: run(program, np.ones(3, np.float32))),
        (ranges_rules.RULES, lambda: prove(program)),
        (onnx_rules.RULES, lambda: to_model(program)),
    ):
        with monkeypatch.context() as without:
            without.delitem(rules, "sqrt")
            with pytest.raises(SoftqError, match=f"^{rules.walker} has no rule for the operator sqrt of"):
                walk()
