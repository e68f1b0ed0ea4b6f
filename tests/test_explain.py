"""`softq explain`, and the schema of `softq inspect --json`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from onnx import parser

import softq
from softq.cli import main
from softq.site import inspection_schema

MODELS = Path(__file__).parent.parent / "models"
VIT = MODELS / "mnist_vit" / "mnist_vit.onnx"

MASKED = """
<ir_version: 8, opset_import: ["": 18]>
g (float[2,3,4,5] x, bool[2,1,4,5] m, float[5,6] v) => (float[2,3,4,6] y) <float low = {-inf}> {
    s = Where (m, x, low)
    p = Softmax (s)
    n = IsNaN (p)
    z = Constant <value: tensor = float {0}> ()
    q = Where (n, z, p)
    y = MatMul (q, v)
}
"""


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(str(ended.value.code))


@pytest.mark.parametrize("model", [VIT, MODELS / "wikipedia_lm" / "wikipedia_lm.onnx"], ids=lambda path: path.stem)
def test_what_inspect_prints_follows_its_schema(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = inspection_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert command("inspect", model, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    validator.validate(printed)
    printed["sites"][0]["verdict"]["action"] = "maybe"
    with pytest.raises(jsonschema.ValidationError, match="'maybe' is not one of"):
        validator.validate(printed)


def test_every_field_of_the_schema_is_described() -> None:
    def check(schema: dict[str, object], name: str) -> None:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        for key, value in properties.items():
            assert value.get("description"), f"{name}.{key}"

    properties = inspection_schema()["properties"]
    assert isinstance(properties, dict)
    check(properties["sites"]["items"], "site")


def test_the_story_of_a_masked_attention() -> None:
    told = softq.explain(parser.parse_model(MASKED), "p")
    assert (told.scores, told.weights, told.rows) == ("s", "q", 24)
    assert [name.split(" ")[1] for name in told.nodes] == ["(Where)", "(Softmax)", "(IsNaN)", "(Where)"]
    assert told.mask == "where; m (true where a position is kept) becomes the method's mask"
    assert (told.site.masked_row, told.site.guard) == ("zero", "isnan-where")
    assert told.cost is not None
    assert (told.cost.method, told.cost.length, told.cost.passes) == ("deferred-log", 5, 2)
    assert told.cost.per_element["lut"] == 2
    assert told.cost.per_row["row_sum"] == 1
    assert told.cost.table_entries == 256 + 16
    converted = softq.convert(parser.parse_model(MASKED)).model
    assert told.cost.function.removeprefix("softq::") in [function.name for function in converted.functions]


def test_another_method_costs_something_else() -> None:
    told = softq.explain(VIT, "softmax", method="deferred-log", settings={"bits": 2})
    assert told.cost is not None
    assert told.cost.table_entries == 256 + 4
    assert told.cost.length == 50


def test_it_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("explain", VIT, "softmax", "--bits", 3) == 0
    text = capsys.readouterr().out
    assert "verdict     convert: attention" in text
    assert "method      deferred-log bits=3" in text
    assert command("explain", VIT, "softmax", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["site"]["id"] == "softmax"
    assert printed["cost"]["passes"] == 2


def test_a_refused_softmax_has_no_cost() -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (double[n,3] x) => (double[n,3] y) { y = Softmax (x) }'
    told = softq.explain(parser.parse_model(text), "y")
    assert told.cost is None
    assert told.site.verdict.action == "refuse"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no softmax matches 'nothing'; there are: softmax, softmax_1"),
        (("softmax*",), "4 softmaxes match 'softmax*'"),
        (("softmax", "--method", "nope"), "unknown method 'nope'"),
        (("softmax", "--bits", "3", "--set", "bits=4"), "--bits 3 and --set bits=4 contradict each other"),
    ],
)
def test_bad_usage_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("explain", VIT, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_what_the_user_says_of_a_model_counts() -> None:
    text = MASKED.replace("bool[2,1,4,5] m", "float[2,1,4,5] m").replace("s = Where (m, x, low)", "s = Add (x, m)")
    model = parser.parse_model(text)
    assert "stays in the scores" in softq.explain(model, "p").mask
    assert softq.explain(model, "p", masks=["m"]).mask.startswith("additive; m (compared with a number)")
    with pytest.raises(softq.UsageError, match="nothing"):
        softq.explain(model, "p", masks=["nothing"])
    double = '<ir_version: 8, opset_import: ["": 18]> g (double[n,3] x) => (double[n,3] y) { y = Softmax (x) }'
    assert softq.explain(parser.parse_model(double), "y", allow_float32=True).cost is not None


def test_the_method_decides_about_logarithms() -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[n,3] x) => (float[n,3] y) { y = LogSoftmax (x) }'
    reasons = [softq.explain(parser.parse_model(text), "y", method=name).site.verdict.reason
               for name in ("exact", "deferred-log")]  # fmt: skip
    assert reasons[0] != reasons[1]
    assert "logarithm" in reasons[1]


def test_a_function_that_is_no_softmax_is_told_with_its_own_options() -> None:
    made = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[2, 3, 5, 4] q, float[2, 3, 4, 5] k, float[2, 3, 5, 4] v) => (float[2, 3, 5, 4] y)
        { x = MatMul (q, k)  r = Relu (x)  s = Mul (r, r)  y = MatMul (s, v) }""")
    told = softq.explain(made, "s", method="relu")
    assert told.site.verdict.action == "convert"
    assert told.cost is not None
    assert (told.cost.options["power"], told.cost.options["divisor"]) == (2, 1.0)
    assert softq.explain(made, "s").site.verdict.action == "keep"
