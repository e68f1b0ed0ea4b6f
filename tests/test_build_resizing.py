"""Resize in every mode, with scales and sizes that are known or that the run gives, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import softq
from tests.built import check

pytest.importorskip("tvm")

F32 = np.float32
X = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(F32)
RUN = [{"x": X}, {"x": X[:1, :, :5, :3]}]

FORMS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def nodes(attributes: list[str]) -> str:
    return " ".join(f"y{k} = Resize<{form}>(x, , s)" for k, form in enumerate(attributes))


def graph(attributes: list[str], shape: str, numbers: str) -> str:
    outputs = ", ".join(f"float[A{k}, B{k}, C{k}, D{k}] y{k}" for k in range(len(attributes)))
    return f"g (float[{shape}] x) => ({outputs}) <float[4] s = {{{numbers}}}> {{ {nodes(attributes)} }}"


def test_the_nearest_element_is_onnxruntimes(tmp_path: Path) -> None:
    forms = [f'coordinate_transformation_mode = "{f}", nearest_mode = "{r}"' for f in FORMS for r in ROUNDINGS]
    forms = [f'mode = "nearest", {form}' for form in forms]
    text = graph(forms, "2, 3, 8, 8", "1, 1, 1.5, 0.625")
    check(text, [{"x": X[:, :, :8]}], tmp_path, relative=0, absolute=0)


@pytest.mark.parametrize(("shape", "numbers"), [("N, 3, H, W", "1, 1, 3, 2"), ("2, 3, 9, 8", "1, 2, 1, 7")])
def test_elements_of_whole_scales_are_repeated(shape: str, numbers: str, tmp_path: Path) -> None:
    forms = [f'coordinate_transformation_mode = "{f}", nearest_mode = "{r}"' for f in FORMS for r in ROUNDINGS]
    forms = [form for form in forms if "align" not in form]
    check(graph(forms, shape, numbers), RUN if "N" in shape else RUN[:1], tmp_path, relative=0, absolute=0)


def test_linear_and_cubic_weights_are_onnxruntimes(tmp_path: Path) -> None:
    forms = [f'mode = "{m}", coordinate_transformation_mode = "{f}"' for f in FORMS for m in ("linear", "cubic")]
    forms.append('mode = "cubic", exclude_outside = 1, cubic_coeff_a = -0.5')
    check(graph(forms, "2, 3, 8, 8", "1, 1, 1.5, 0.625"), [{"x": X[:, :, :8]}], tmp_path, relative=1e-5, absolute=1e-5)


def test_antialiasing_takes_all_that_an_element_covers(tmp_path: Path) -> None:
    forms = [f'mode = "{m}", antialias = 1' for m in ("linear", "cubic")]
    forms.append('mode = "cubic", antialias = 1, exclude_outside = 1')
    check(graph(forms, "2, 3, 9, 8", "1, 1, 0.4, 1.6"), RUN[:1], tmp_path, relative=1e-5, absolute=1e-5)


def test_lengths_follow_from_scales_of_any_axes(tmp_path: Path) -> None:
    # 0.7 of 10 is 7 in float32 and less than that in the reals.
    forms = ['mode = "linear"', 'mode = "nearest"']
    feeds = [*RUN, {"x": np.concatenate([X, X], axis=2)[:, :, :10]}]
    check(graph(forms, "N, 3, H, W", "1, 1, 0.7, 2"), feeds, tmp_path, relative=1e-5, absolute=1e-5)


@pytest.mark.parametrize(
    ("parameter", "form", "values"),
    [
        ("float[4] s", "(x, , s)", [[1, 1, 2, 0.5], [1, 1, 0.6, 1.7]]),
        ("int64[4] s", "(x, , , s)", [[2, 3, 2, 5], [2, 3, 18, 7]]),
    ],
    ids=["scales", "sizes"],
)
def test_scales_and_sizes_may_be_computed(parameter: str, form: str, values: list[list[float]], tmp_path: Path) -> None:
    modes = ("nearest", "linear", "cubic")
    outputs = ", ".join(f"float[A{k}, B{k}, C{k}, D{k}] y{k}" for k in range(len(modes)))
    body = " ".join(f'y{k} = Resize<mode = "{mode}">{form}' for k, mode in enumerate(modes))
    dtype = F32 if "float" in parameter else np.int64
    feeds = [{"x": X, "s": np.array(v, dtype)} for v in values]
    text = f"g (float[2, 3, H, W] x, {parameter}) => ({outputs}) {{ {body} }}"
    check(text, feeds, tmp_path, relative=1e-5, absolute=1e-5)


def test_chosen_axes_may_keep_their_ratio(tmp_path: Path) -> None:
    check(
        """g (float[2, 3, H, W] x, int64[2] s) =>
            (float[A, B, C, D] y, float[E, F, G, I] z, float[J, K, L, M] u) {
            y = Resize<mode = "nearest", axes = [3, 2]>(x, , , s)
            z = Resize<mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "not_larger">(x, , , s)
            u = Resize<mode = "nearest", axes = [2, 3], keep_aspect_ratio_policy = "not_smaller">(x, , , s)
        }""",
        [{"x": X, "s": np.array(v)} for v in ([2, 5], [18, 7])],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
    )


def test_a_region_is_cropped_and_what_is_outside_gets_a_value(tmp_path: Path) -> None:
    form = 'coordinate_transformation_mode = "tf_crop_and_resize"'
    check(
        f"""g (float[2, 3, H, W] x, float[8] r, int64[4] s) => (float[A, B, C, D] y, float[E, F, G, I] z) {{
            y = Resize<mode = "nearest", {form}, extrapolation_value = 3.0>(x, r, , s)
            z = Resize<mode = "linear", {form}>(x, r, , s)
        }}""",
        [
            {"x": X, "r": np.array([0, 0, 0.2, -0.1, 1, 1, 0.8, 1.2], F32), "s": np.array(v)}
            for v in ([2, 3, 2, 5], [2, 3, 18, 7])
        ],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
    )


@pytest.mark.parametrize("operator", ["Upsample", "Resize"])
def test_older_operators_scale_alike(operator: str, tmp_path: Path) -> None:
    node = f'y = {operator}<mode = "nearest">(x, s)'
    text = f"g (float[2, 3, 9, 8] x) => (float[A, B, C, D] y) <float[4] s = {{1, 1, 2, 3}}> {{ {node} }}"
    check(text, RUN[:1], tmp_path, opset=9 if operator == "Upsample" else 10, relative=0, absolute=0)


@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_of_affine_maps_equal_the_references(aligned: int, tmp_path: Path) -> None:
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]> g (float[N, 2, 3] t, int64[4] s) => (float[A, B, C, D] y) {{
            y = AffineGrid<align_corners = {aligned}>(t, s)
        }}"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    theta = np.random.default_rng(1).standard_normal((2, 2, 3)).astype(F32)
    with softq.load(tmp_path / "built") as built:
        for lengths in ([2, 3, 4, 5], [2, 1, 6, 3]):
            feeds: dict[str, Any] = {"t": theta, "s": np.array(lengths)}
            wanted: Any = ReferenceEvaluator(model).run(None, feeds)
            np.testing.assert_allclose(np.asarray(built(feeds)["y"], F32), wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ('mode = "nearest", nearest_mode = "odd"', "no nearest element by 'odd'"),
        ('coordinate_transformation_mode = "odd"', "no coordinates 'odd'"),
        ('coordinate_transformation_mode = "align_corners"', "align_corners from 9 by 1.5 is 13.5 elements"),
        ('mode = "odd"', "has the mode odd, which has no kernel"),
    ],
)
def test_what_resize_does_not_have_is_refused(attributes: str, message: str, tmp_path: Path) -> None:
    text = graph([attributes], "2, 3, 9, 8", "1, 1, 1.5, 2")
    model: onnx.ModelProto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    with pytest.raises(softq.RefusalError, match=message):
        softq.build(model, tmp_path / "built", target="cpu")


def test_lengths_that_onnx_and_onnxruntime_see_differently_end_the_run(tmp_path: Path) -> None:
    text = graph(['coordinate_transformation_mode = "align_corners"'], "2, 3, H, 8", "1, 1, 0.5, 2")
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        assert built({"x": X[:, :, :6]})["y0"].shape == (2, 3, 3, 16)
        with pytest.raises(softq.SoftqError, match="the data give an axis -1"):
            built({"x": X})
