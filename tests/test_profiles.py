"""Profiles: files, judgements, and conversions that are judged again and compared with the float model."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.errors import InputError, RefusalError, UsageError
from softq.profiles import convert_for, judge, load_profile, profile_names
from softq.profiles.checks import SUBJECTS
from softq.profiles.loading import FOLDER
from tests.forms import run as forms_run
from tests.forms_masked import MASKED
from tests.forms_written import CASES as WRITTEN
from tests.profile_cases import CASES, E4M3, INT8, Cases, alone, attention, feed_of, operator, run

FORMS = {**WRITTEN, **MASKED}


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


# Judgements


def test_every_profile_has_its_three_models() -> None:
    assert sorted(CASES) == profile_names()


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_profile_tells_its_three_models_apart(name: str) -> None:
    profile, cases = load_profile(name), CASES[name]
    models = (cases.taken, cases.after, cases.never)
    taken = [[one.taken for one in judge(model, profile)] for model in models]
    assert taken == [["as it is"], ["after convert"], ["no"]]
    broken = [ruling.subject for ruling in judge(cases.never, profile)[0].rulings if ruling.state != "met"]
    assert cases.broken in broken


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_a_conversion_promises_it_keeps(name: str) -> None:
    profile, cases = load_profile(name), CASES[name]
    converted = convert_for(cases.after, profile)
    onnx.checker.check_model(converted.model, full_check=True)
    assert [one.taken for one in judge(converted.model, profile)] == ["as it is"]
    assert [one.site for one in converted.converted] == [one.site for one in converted.sites]
    # One more conversion finds nothing to do.
    assert convert_for(converted.model, profile).model == converted.model


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_conversion_changes_weights_by_half_a_step(name: str) -> None:
    cases = CASES[name]
    converted = convert_for(cases.after, load_profile(name)).model
    feed = feed_of(cases.after)
    got, expected = run(converted, feed).astype(np.float64), run(cases.after, feed).astype(np.float64)
    if cases.after.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        # A weight moves by half a step of the codes at most (1/2 * 1/127; e4m3 has 3 bits, so 1/16 of a weight), and
        # there are 16 of them before values of at most 4.
        assert np.abs(got - expected).max() <= 16 * 4 / 254
    else:
        # Codes of the step that was there: half of the new step, and half of the old one twice.
        assert np.abs(got - expected).max() <= 2


def test_a_site_that_is_not_taken_stays_as_it_was() -> None:
    for name, cases in CASES.items():
        converted = convert_for(cases.never, load_profile(name))
        assert [one.taken for one in converted.sites] == ["no"]
        assert [node.op_type for node in converted.model.graph.node] == [n.op_type for n in cases.never.graph.node]


def test_each_softmax_of_a_model_is_judged_and_written_alone() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    three (int8[2, 16] a, int8[2, 16] b, double[2, 16] c) => (int8[2, 16] x, int8[2, 16] y, double[2, 16] z)
    <float step = {0.0625}, float unit = {0.00390625}, float other = {0.0078125}, int8 low = {-128}, int8 zero = {0}>
    {
        ad = DequantizeLinear(a, step)
        p = Softmax(ad)
        x = QuantizeLinear(p, unit, low)
        bd = DequantizeLinear(b, step)
        q = Softmax(bd)
        y = QuantizeLinear(q, other, zero)
        z = Softmax(c)
    }
    """)
    profile = load_profile("cmsis-nn")
    judged = {one.site: one.taken for one in judge(model, profile)}
    assert judged == {"p": "as it is", "q": "after convert", "z": "no"}
    converted = convert_for(model, profile).model
    assert {one.site: one.taken for one in judge(converted, profile)} == {"p": "as it is", "q": "as it is", "z": "no"}
    assert len(converted.graph.node) == len(model.graph.node) + 4  # two numbers, codes, and numbers of them


def test_require_names_the_rule_and_its_source() -> None:
    with pytest.raises(RefusalError, match=r"site p is not taken by vitis-ai: length is 1024.*pg338"):
        convert_for(CASES["vitis-ai"].never, load_profile("vitis-ai"), require=True)


def test_input_shapes_settle_a_length() -> None:
    profile, model = load_profile("finn"), CASES["finn"].never
    assert judge(model, profile)[0].taken == "no"
    assert judge(model, profile, input_shapes={"scores": (4, 16)})[0].taken == "as it is"


def test_codes_of_another_scale_are_told_as_numbers() -> None:
    ruling = judge(alone(result=("int8", 1 / 255, -128)), load_profile("litert"))[0].rulings
    found = next(one for one in ruling if one.state == "after convert")
    assert (found.subject, found.found) == ("output", "int8, scale 1/255, zero point -128")
    assert found.source.startswith("https://github.com/tensorflow/tensorflow/")


def test_an_operator_is_opened_into_products_and_softmax() -> None:
    # Codes of another type than those that are asked for stay: what they cut off is not there any more.
    assert judge(operator(), load_profile("tensorrt-fp8"))[0].taken == "no"
    converted = convert_for(operator(), load_profile("openvino")).model
    kinds = [node.op_type for node in converted.graph.node]
    assert kinds.count("MatMul") == 2
    assert kinds.count("Softmax") == 1
    assert "Attention" not in kinds
    got, expected = (run(model, feed_of(model)).astype(np.float64) for model in (converted, operator()))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [None, INT8, E4M3])
def test_a_factor_moves_to_the_queries_with_the_results_it_had(kind: int | None, tmp_path: Path) -> None:
    text = GOOD.replace('rule = "rank"\nmost = 2', 'rule = "operator"\noperators = ["Softmax"]')
    text = text.replace("[not_stated]", '[[attention]]\nrule = "pattern"\nfactor_in_front = true\n'
                        'says = "In front."\nsource = "manual"\n[not_stated]')  # fmt: skip
    text = text.replace('"length", "operator"', '"length", "rank"').replace('"pattern", "products"', '"products"')
    profile = load_profile(own(tmp_path, text))
    model = attention(kind, None, factor=True)
    assert judge(model, profile)[0].taken == "after convert"
    converted = convert_for(model, profile).model
    assert [node.op_type for node in converted.graph.node].count("Mul") == 1
    got, expected = (run(one, feed_of(model)).astype(np.float64) for one in (converted, model))
    # A quarter is exact in every type.
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.quick_cases(60)
@pytest.mark.parametrize("name", [*FORMS])
def test_every_form_is_opened_with_the_results_it_had(name: str, tmp_path: Path) -> None:
    text = GOOD.replace('rule = "rank"\nmost = 2', 'rule = "operator"\noperators = ["Softmax"]')
    axis = '[[softmax]]\nrule = "axis"\naxis = -1\nsays = "Last."\nsource = "manual"\n[not_stated]'
    text = text.replace('"axis", ', "").replace('"length", "operator"', '"length", "rank"')
    profile = load_profile(own(tmp_path, text.replace("[not_stated]", axis)))
    case = FORMS[name]
    model, feeds = case.model(case.opsets[-1]), case.feeds()
    converted = convert_for(model, profile)
    taken = [one.taken for one in converted.sites]
    # The logarithm of weights that are 0 is -inf, which that of scores is not: those stay.
    assert taken[0] != "no" or case.logarithm, [ruling for one in converted.sites for ruling in one.rulings]
    if taken[0] == "after convert":
        onnx.checker.check_model(converted.model, full_check=True)
        assert {one.taken for one in judge(converted.model, profile)} == {"as it is"}
    for got, expected in zip(forms_run(converted.model, feeds), forms_run(model, feeds), strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=max(case.rtol, 1e-5), atol=max(case.atol, 1e-6)
        )


def test_a_softmax_of_floats_needs_no_codes_in_litert() -> None:
    assert judge(alone(None, None), load_profile("litert"))[0].taken == "as it is"


def test_heads_of_another_size_are_not_taken() -> None:
    judged = judge(attention(3, (3, 1 / 127), head=48, half=True, coded_result=True), load_profile("tensorrt-int8"))[0]
    assert [one.subject for one in judged.rulings if one.state != "met"] == ["head-size"]


# Files


def own(folder: Path, text: str) -> str:
    path = folder / "my_npu.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


GOOD = """
name = "my-npu"
summary = "Mine"
release = "Manual 1"
[sources.manual]
title = "Manual"
url = "https://example.com"
version = "1"
read = 2026-11-24
[[softmax]]
rule = "rank"
most = 2
says = "Two axes."
source = "manual"
[not_stated]
softmax = ["axis", "dtype", "length", "operator", "output"]
attention = ["between", "head-size", "length", "pattern", "products"]
"""


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_names_the_release_it_was_read_from(name: str, tmp_path: Path) -> None:
    """In one field, with a number or a date; `inspect --for` and `profiles` print it."""
    release = load_profile(name).release
    assert re.search(r"\d", release)
    onnx.save(CASES[name].taken, tmp_path / "model.onnx")
    arguments = ("inspect", str(tmp_path / "model.onnx"), "--for", name)
    assert f"read from {release}." in " ".join(softq(*arguments).stdout.split())
    assert json.loads(softq(*arguments, "--json").stdout)["release"] == release
    assert json.loads(softq("profiles", name, "--json").stdout)["release"] == release


def test_cmsis_nn_takes_floats_where_it_is_built_with_them() -> None:
    """arm_softmax_f32 and _f16, which no default build has; the rule of the default build names them."""
    floats = alone(None, None)
    assert [one.taken for one in judge(floats, load_profile("cmsis-nn-float"))] == ["as it is"]
    (judged,) = judge(floats, load_profile("cmsis-nn"))
    assert (judged.taken, judged.needs_data) == ("after convert", True)
    assert any("ARM_NN_ENABLE_F32" in ruling.says for ruling in judged.rulings if ruling.subject == "dtype")


def test_a_file_of_ones_own_is_a_profile(tmp_path: Path) -> None:
    profile = load_profile(own(tmp_path, GOOD))
    assert (profile.name, profile.softmax[0].source.read) == ("my-npu", date(2026, 11, 24))
    assert [one.taken for one in judge(alone(), profile)] == ["no"]
    assert [one.taken for one in judge(alone(shape="3, 16"), profile)] == ["as it is"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("most = 2", "most = 2\nmots = 3", r"softmax, rule 1 \(rank\): mots is unknown; allowed is least, most"),
        ("most = 2", 'most = "2"', "most is '2', expected int"),
        ('source = "manual"', "", r"softmax, rule 1 \(rank\): source is None; there are: manual"),
        ('source = "manual"', 'source = "other"', "source is 'other'"),
        ('says = "Two axes."', "", "says is missing"),
        ('rule = "rank"', 'rule = "rang"', "rule is 'rang'; allowed is operator, rank"),
        ("read = 2026-11-24", 'read = "today"', "sources.manual: read is 'today', expected a date"),
        ("read = 2026-11-24", "", "sources.manual: read is missing"),
        ('"axis", ', "", "softmax: there is no rule on axis, and not_stated does not name it"),
        ('"axis", ', '"axis", "rank", ', "there is a rule on rank, which not_stated names too"),
        ('"axis", ', '"axis", "colour", ', "'colour' is unknown"),
        ('name = "my-npu"', 'name = "other"', "named 'other'; the file's name asks for 'my-npu'"),
        ('summary = "Mine"', "", "summary is missing"),
        ('release = "Manual 1"', "", "release is missing"),
        ('release = "Manual 1"', 'release = ""', "release is '', expected str"),
        ('summary = "Mine"', 'summary = "Mine"\nsumary = "x"', "sumary is unknown"),
        ("[not_stated]", '[sources.second]\ntitle = "t"\nurl = "u"\nversion = "v"\nread = 2026-01-01\n[not_stated]',
         "sources.second is the source of no rule"),
        ("[not_stated]", "[not_stated", "is no TOML"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_profile_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=message) as error:
        load_profile(own(tmp_path, GOOD.replace(old, new, 1)))
    assert "my_npu.toml" in str(error.value)


def test_an_unknown_profile_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"unknown profile 'litret'.*litert"):
        load_profile("litret")


def test_rules_name_their_documents_and_quote_nothing() -> None:
    for name in profile_names():
        profile = load_profile(name)
        for part in SUBJECTS:
            for rule in getattr(profile, part):
                assert rule.source.url.startswith("https://")
                assert rule.says.endswith(".")
        assert not re.search(r"[“”]", (FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


# The command line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cases:
    """The models of litert as taken.onnx, after.onnx and never.onnx in the current folder."""
    monkeypatch.chdir(tmp_path)
    cases = CASES["litert"]
    for name, model in (("taken", cases.taken), ("after", cases.after), ("never", cases.never)):
        onnx.save(model, f"{name}.onnx")
    return cases


def test_inspect_for_tells_rule_source_and_what_it_is_not(here: Cases) -> None:
    text = softq("inspect", "after.onnx", "--for", "litert").stdout
    assert "\np: after convert\n  output: int8, scale 1/255, zero point -128 (after convert)\n" in text
    assert "after convert" in text
    assert "scale 1/256 and zero point -128" in text
    assert "quantization_spec.md" in text
    assert "The rules are from documents, not from a device" in text
    found = json.loads(softq("inspect", "never.onnx", "--for", "litert", "--json").stdout)
    assert (found["profile"], found["sites"][0]["taken"]) == ("litert", "no")
    assert found["about"] == "The rules are from documents, not from a device."
    assert {ruling["state"] for ruling in found["sites"][0]["rulings"]} == {"met", "not met"}


def test_convert_for_writes_a_model_that_is_taken(here: Cases) -> None:
    result = softq("convert", "after.onnx", "out.onnx", "--for", "litert")
    assert result.exit_code == 0, result.output
    assert "converted 1 of 1 softmax for litert; wrote out.onnx" in result.stdout
    assert "1 softmax: 1 taken as is" in softq("inspect", "out.onnx", "--for", "litert").stdout
    dry = json.loads(softq("convert", "after.onnx", "dry.onnx", "--for", "litert", "--dry-run", "--json").stdout)
    assert dry["output"] is None
    assert not Path("dry.onnx").exists()


def test_a_gate_stops_at_what_is_not_taken(here: Cases) -> None:
    gate = ("--for", "litert", "--fail-on")
    assert softq("inspect", "taken.onnx", "after.onnx", *gate, "refused").exit_code == 0
    result = softq("inspect", "taken.onnx", "never.onnx", *gate, "refused")
    assert result.exit_code == 1
    assert "never.onnx has a softmax that is not taken" in result.stderr
    result = softq("inspect", "taken.onnx", "after.onnx", *gate, "none")
    assert result.exit_code == 1
    assert result.stderr.count("taken.onnx has no softmax that is taken after a conversion") == 1
    several = json.loads(softq("inspect", "taken.onnx", "after.onnx", "--for", "litert", "--json").stdout)
    assert [one["model"] for one in several["models"]] == ["taken.onnx", "after.onnx"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "--forms", "--for", "litert"), "--for is about a model"),
        (("inspect", "taken.onnx", "--for", "nothing"), "unknown profile 'nothing'"),
        (("inspect", "taken.onnx", "--for", "none.toml"), "profile none.toml: No such file"),
        (("inspect", "taken.onnx", "--for", "litert", "--method", "exact"), "leave out method"),
        (("convert", "taken.onnx", "out.onnx", "--for", "litert", "--bits", "4"), "leave out bits"),
        (("convert", "never.onnx", "out.onnx", "--for", "litert", "--require"), "is not taken by litert"),
        (("profiles", "nothing"), "unknown profile 'nothing'"),
    ],
)
def test_wrong_arguments_are_one_line(here: Cases, arguments: tuple[str, ...], message: str) -> None:
    result = softq(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("out.onnx").exists()


def test_profiles_are_listed_with_their_rules() -> None:
    text = softq("profiles").stdout
    assert all(name in text for name in CASES)
    text = softq("profiles", "ethos-u").stdout
    assert "softmax, rank: No tensor has more than 4 axes." in text
    assert "3.10.0 (read 2026-11-24)" in text
    found = json.loads(softq("profiles", "qnn-htp", "--json").stdout)
    assert found["not_stated"]["softmax"] == ["rank"]
    assert len(json.loads(softq("profiles", "--json").stdout)["profiles"]) == len(CASES)
