"""Plans: written, read back, and refused when they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import InputError, UsageError
from softq.methods import Fit, _steps_numbers
from softq.methods._steps import SHAPE
from softq.plan_making import plan_sites
from softq.plans import Plan, SitePlan, as_plan, load_plan, parse_plan, plan_schema
from softq.site import Site, Verdict

VIT = "models/mnist_vit/mnist_vit.onnx"


def site(name: str = "attention", shape: tuple[int | str | None, ...] = (1, 2, 8, 8)) -> Site:
    return Site(name, (), "Softmax", "softmax", -1, -3, "float32", shape, "none", "nan", "none", "attention", "MatMul",
                Verdict("convert", "attention"))  # fmt: skip


OPTIONS: dict[str, int | float | str] = {"bits": 2, "steps": "equal", "r": "head", "weight_bits": 16, "step": 0.0}


def plan() -> Plan:
    entry = SitePlan("attention", site().fingerprint, "deferred-log",
                     OPTIONS, {"r": (0.5, 1.25)})  # fmt: skip
    return Plan("0.1.0", "g" * 64, "w" * 64, (entry,))


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan().to_text())
    assert load_plan(path) == plan()
    assert load_plan(path).to_text() == plan().to_text()
    for given in (plan(), str(path), path, json.loads(path.read_text())):
        assert as_plan(given) == plan()
    with pytest.raises(InputError, match="plan is a list; expected an object"):
        as_plan([])  # pyright: ignore[reportArgumentType]


def test_a_plan_matches_its_graph_and_no_other() -> None:
    assert set(plan().match("g" * 64, [site()])) == {"attention"}
    with pytest.raises(InputError, match="made for another graph: gggggggggggggggg"):
        plan().match("h" * 64, [site()])
    with pytest.raises(InputError, match="there is no site 'attention'; the model has other"):
        plan().match("g" * 64, [site("other")])
    with pytest.raises(InputError, match=r"1x2x9x9.*the plan has.*1x2x8x8"):
        plan().match("g" * 64, [site(shape=(1, 2, 9, 9))])


def edited(*path: str | int, to: object) -> object:
    """The plan as JSON with one value replaced."""
    data = json.loads(plan().to_text())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "plan is a list; expected an object"),
        (edited("schema", to=2), "schema is 2; this softq reads 1"),
        (edited("graph", to=None), "graph is None; expected a text"),
        (edited("extra", to=1), "unknown extra"),
        (edited("sites", to=[{}]), r"sites\[0\] misses id, fingerprint, method, options, fitted$"),
        ({}, "plan misses schema, softq, graph, weights, max_length, sites$"),
        (None, "plan is null; expected an object"),
        (edited("sites", to=[json.loads(plan().to_text())["sites"][0]] * 2), "stands twice"),
        (edited("sites", 0, "fitted", "r", to="fast"), "fitted r is 'fast'; expected a number"),
        (edited("sites", 0, "options", "r", to=True), "option r is True; expected a number or a word"),
    ],
)
def test_a_damaged_plan_is_refused_by_name(data: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_plan(data)
    # What a schema cannot say: that no id stands twice.
    if "twice" not in message:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data, plan_schema())


def test_files_that_softq_writes_keep_to_the_schema(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(plan_schema())
    out, data = str(tmp_path / "out.onnx"), "models/mnist_vit/calibration.npz"
    for number, given in enumerate(
        (
            ["--bits", "4"],
            ["--bits", "2", "--set", "r=auto", "--calibration", data, "--calibration-draws", "2"],
            ["--bits", "2", "--set", "r=site", "--calibration", data],
            ["--method", "exact"],
        )
    ):
        path = tmp_path / f"{number}.json"
        done = CliRunner().invoke(main, ["convert", VIT, out, "--save-plan", str(path), *given])
        assert done.exit_code == 0, done.output
        jsonschema.validate(json.loads(path.read_text()), plan_schema())
    assert "spread" in json.loads((tmp_path / "1.json").read_text())["sites"][0]


@pytest.mark.parametrize(
    ("options", "fitted", "message"),
    [
        ({"bits": 4, "r": "head"}, {}, r"fitted numbers for \[\]; its options ask for \['r'\]"),
        ({"bits": 4, "r": "site"}, {"r": (1.0, 2.0)}, "expected one number a site"),
        ({"bits": 4, "r": "site"}, {"r": 1e9}, "fitted r is 1000000000.0; allowed is a number from 0.125 to 2048"),
        (
            {"bits": 2, "steps": "growing", "r": "head", "first": "head"},
            {"r": (1.0, 2.0), "first": (0.4,)},
            "another number of heads for each option: r 2, first 1",
        ),
        ({"bits": 40, "r": 1.0}, {}, "bits is 40; allowed is a whole number from 2 to 8"),
        ({"bot": 4}, {}, "no option 'bot'"),
    ],
)
def test_numbers_that_people_edit_are_checked(
    options: dict[str, int | float | str], fitted: dict[str, float | tuple[float, ...]], message: str
) -> None:
    with pytest.raises((InputError, UsageError), match=message):
        SitePlan("attention", "f", "deferred-log", options, fitted).configure()


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_plan(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_plan(tmp_path / "bad.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not JSON"):
        load_plan(tmp_path / "binary.json")


def test_fitting_without_data_is_refused() -> None:
    with pytest.raises(UsageError, match=r"r=site is fitted on data; give --calibration DATA, or a number for r"):
        plan_sites([site()], "deferred-log", {"r": "site"})


def test_defaults_follow_the_bits_and_the_data() -> None:
    def option(name: str, bits: int, *, calibrated: bool) -> object:
        fit = (lambda *_: Fit({"r": 0.6})) if calibrated else None
        return plan_sites([site()], "deferred-log", {"bits": bits}, fit)[0].options[name]

    def r(bits: int, *, calibrated: bool) -> object:
        return option("r", bits, calibrated=calibrated)

    growing = [b for b in range(2, 9) if option("steps", b, calibrated=False) == "growing"]
    assert growing == [2, 3, 4, 5, 6, 7]
    growing = [b for b in range(2, 9) if option("steps", b, calibrated=True) == "growing"]
    assert growing == [2, 3, 4, 5, 6, 7]
    rates = [r(b, calibrated=False) for b in range(2, 9)]
    assert rates == [*(_steps_numbers.OF_BYTES[b]["r"] for b in range(2, 8)), 16.0]
    for options in ({"steps": "equal"}, {"r": 1}):
        # Shifts are what is said by either word.
        chosen = plan_sites([site()], "deferred-log", {"bits": 4, **options})[0].options
        assert (chosen["steps"], chosen["r"], chosen["distance"]) == ("equal", 1.0, "float")
    assert {r(b, calibrated=True) for b in range(2, 9)} == {"site"}


@pytest.mark.parametrize("r", [23.0, "site"])
def test_a_plan_of_before_there_was_a_distance_is_of_floats(r: float | str) -> None:
    shape: dict[str, float | str] = {"first": 0.17, "shift": 0.7, "slope": 0.0} if r == 23 else dict.fromkeys(SHAPE, r)
    fitted = {} if r == 23 else {"r": 20.0, "first": 0.2, "shift": 0.5, "slope": 0.0}
    options = {"bits": 4, "steps": "growing", "r": r, **shape, "weight_bits": 15, "step": 0.0}
    structure = SitePlan("attention", "f", "deferred-log", options, fitted).configure().structure
    assert structure == ("b4_r23_f0p17_h0p7_growing" if r == 23 else "b4_rsite_msite_growing")
