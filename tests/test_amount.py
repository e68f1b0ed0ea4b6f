"""What is left of a test's cases in the quick run."""

from __future__ import annotations

from itertools import product

from tests.amount import spread


def test_every_value_of_every_parameter_is_in_a_spread() -> None:
    values = [{("method", method), ("opset", opset)} for method, opset in product(range(40), range(9))]
    for seed in "abcdef":
        kept = spread(values, 60, seed)
        assert len(kept) == 60
        assert set[object]().union(*(values[number] for number in kept)) == set[object]().union(*values)
        assert kept == spread(values, 60, seed)
    assert spread(values, 60, "a") != spread(values, 60, "b")


def test_a_spread_is_no_more_than_there_is() -> None:
    assert spread([{1}, {2}], 5, "") == {0, 1}
    assert len(spread([{1}, {2}, {3}], 2, "")) == 2
