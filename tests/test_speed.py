"""What the benchmark makes of its measurements; no test asserts a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.cpu.results import table
from benchmarks.cpu.section import Result, Settings
from benchmarks.cpu.timing import ratio, take_turns


def test_calls_take_turns_and_are_counted_once_a_round() -> None:
    order: list[str] = []

    def call(name: str) -> None:
        order.append(name)
        deadline = sum(range(20_000))  # long enough to be called once a round
        assert deadline

    times = take_turns({"a": lambda: call("a"), "b": lambda: call("b")}, 3)
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3}
    assert order[-6:] == ["a", "b", "b", "a", "a", "b"]
    assert order.count("a") == order.count("b")
    take_turns({"a": lambda: call("a"), "b": lambda: call("b")}, 2, warm=True)
    assert order[-8:] == ["a", "a", "b", "b", "b", "b", "a", "a"]


def test_a_ratio_is_that_of_the_medians_with_the_quartiles_round_by_round() -> None:
    times = {"ours": [1.0, 2.0, 9.0], "theirs": [4.0, 4.0, 12.0]}
    found = ratio(times, "ours", "theirs", work="w", place="p")
    assert (found.ratio, found.least) == (0.5, 0.25)
    assert (found.low, found.high) == (0.25, 0.75)


def test_a_line_of_the_table_is_a_work_a_rival_and_a_number_of_threads() -> None:
    one = Result("w", "r", "4x2", 1, 0.5, 1.0, 2.0, 0.5, 0.5, 0.5, 0.5)
    rows = [one, replace(one, place="8x2", ratio=0.03, low=0.02, high=0.04), replace(one, unit="B")]
    assert table(rows).splitlines() == [
        "| work | against | threads | 4x2 | 8x2 | aim |",
        "| --- | --- | --- | --- | --- | --- |",
        "| w | r | 1 | 0.50 | 0.03 (0.02-0.04) | 0.5 |",
        "| w: peak memory | r | 1 | 0.50 |  | 0.5 |",
    ]


@pytest.mark.parametrize(
    ("place", "work", "wanted"),
    [("a", "long name", True), ("a", None, True), ("b", "name", False), ("a", "x", False)],
)
def test_a_part_of_a_section_can_be_asked_for(place: str, work: str | None, wanted: bool) -> None:
    assert Settings(places=("a",), works=("name",)).wants(place, work) is wanted


def test_operations_are_those_of_products_and_convolutions() -> None:
    from onnx import parser

    from benchmarks.cpu.works import operations, weight_bytes
    from softq.modelfile import as_model

    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (float[n, 3, 8, 8] x, float[n, 5, 7] a) => (float[n, 5, 4] z, float[n, 6, 4, 4] y)
        <float[7, 4] w, float[6, 3, 2, 2] k> {
            z = MatMul(a, w)
            y = Conv<strides=[2, 2]>(x, k)
        }"""
    model = parser.parse_model(text)
    for value, shape in ((np.ones((7, 4), np.float32), "w"), (np.ones((6, 3, 2, 2), np.float32), "k")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, shape))
    loaded = as_model(model)
    assert operations(loaded, {"n": 2, "unused": 9}) == 2 * 2 * (5 * 4 * 7 + 6 * 4 * 4 * 3 * 2 * 2)
    assert weight_bytes(loaded) == 4 * (7 * 4 + 6 * 3 * 2 * 2)


def test_a_profile_names_the_kernel_of_each_step(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    import softq
    from benchmarks.cpu.profile import profile
    from benchmarks.cpu.works import WORKS

    work = WORKS["MNIST-ViT-1"]
    built = softq.build(softq.convert(work.path(), method="exact").model, tmp_path / "built", target="cpu")
    steps = profile(built.folder, work.feeds(np.random.default_rng(0)), 1, 2)
    assert all(seconds > 0 for _, seconds in steps)
    kernels = [kernel for kernel, _ in steps]
    assert {kernel for kernels in built.manifest["sites"].values() for kernel in kernels} <= set(kernels)
