"""Methods that are no drop-in: refused on a plain softmax, unless the user allows them, by every way that there is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import softq
from softq.cli import main
from softq.errors import UsageError
from softq.methods import METHODS
from softq.modelfile import as_model
from softq.passes.replace import Replace
from softq.plans import load_plan
from softq.sweeps.settings import parse_methods
from tests.attention import attention

HOME = Path(__file__).parent.parent / "models/mnist_vit"
VIT, IMAGES = str(HOME / "mnist_vit.onnx"), str(HOME / "data.npz")
OTHER = "taylor"
REFUSAL = f"is a softmax, and {OTHER} is another function, for models that were trained with it; --allow-substitute"
MEASURE = ["--data", IMAGES, "--metric", "top1-accuracy", "--methods", OTHER, "--samples", "20", "--threads", "1"]


def softq_cli(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, arguments)
    return found.exit_code, " ".join(found.output.split())


def test_convert_refuses_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    code, said = softq_cli("convert", VIT, str(out), "--method", OTHER)
    assert (code, said.count("softq:")) == (2, 1)
    assert REFUSAL in said
    assert not out.exists()
    code, _ = softq_cli("convert", VIT, str(out), "--method", OTHER, "--allow-substitute")
    assert code == 0
    assert {f.name.split("_")[0] for f in onnx.load(out).functions} == {"Taylor"}


@pytest.mark.parametrize(
    "command", [["sweep", "--bits", "4", "--out", "DIR"], ["sensitivity", "--out", "DIR"],
                ["plan", "--out", "DIR.json", "--max-drop", "1"]], ids=lambda c: c[0],
)  # fmt: skip
def test_what_measures_refuses_before_it_measures(command: list[str], tmp_path: Path) -> None:
    arguments = [word.replace("DIR", str(tmp_path / "out")) for word in command[1:]]
    code, said = softq_cli(command[0], VIT, *MEASURE, *arguments)
    # A method without a width has no bits to save, whatever it is: a plan says that first.
    assert code == 2
    assert REFUSAL in said or (command[0] == "plan" and "none has a width" in said)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_search_for_a_plan_refuses_methods_with_a_width(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    get = type(METHODS).get

    def changed(self: object, name: str) -> object:
        found = get(self, name)  # pyright: ignore[reportArgumentType]
        return replace(found, drop_in=False) if self is METHODS else found

    monkeypatch.setattr(type(METHODS), "get", changed)
    words = [word if word != OTHER else "uniform" for word in MEASURE]
    code, said = softq_cli("plan", VIT, *words, "--out", str(tmp_path / "plan.json"), "--max-drop", "1")
    assert (code, "uniform is another function" in said) == (2, True)


def test_a_sweep_measures_what_is_allowed(tmp_path: Path) -> None:
    code, said = softq_cli("sweep", VIT, *MEASURE, "--out", str(tmp_path / "out"), "--allow-substitute", "--json")
    assert code == 0
    assert f'"method": "{OTHER}"' in said


def test_a_plan_does_not_settle_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    code, _ = softq_cli("convert", VIT, str(tmp_path / "a.onnx"), "--method", OTHER, "--allow-substitute",
                        "--save-plan", str(plan))  # fmt: skip
    assert code == 0
    assert {site["method"] for site in json.loads(plan.read_text())["sites"]} == {OTHER}
    code, said = softq_cli("convert", VIT, str(tmp_path / "b.onnx"), "--plan", str(plan))
    assert (code, REFUSAL in said) == (2, True)
    code, _ = softq_cli("convert", VIT, str(tmp_path / "b.onnx"), "--plan", str(plan), "--allow-substitute")
    assert code == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(UsageError, match="another function"):
        softq.convert(VIT, plan=load_plan(plan))


def test_the_library_and_the_pass_refuse_too() -> None:
    model = attention()
    with pytest.raises(UsageError, match=r"site raw is a softmax, and taylor is another function"):
        softq.convert(model, method=OTHER)
    assert softq.convert(model, method=OTHER, allow_substitute=True).plan.sites
    work = as_model(model)
    with pytest.raises(UsageError, match="another function"):
        Replace(OTHER)(work)
    Replace(OTHER, allow_substitute=True)(work)
    assert [f.name.split("_")[0] for f in work.functions.values()] == ["Taylor"]


def test_a_model_without_a_site_to_convert_is_not_refused() -> None:
    head = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[2, 4] x) => (float[2, 4] y) { y = Relu (x) }""")
    assert softq.convert(head, method=OTHER).plan.sites == ()


def test_all_means_methods_that_serve_any_model() -> None:
    assert OTHER not in parse_methods("all")
    assert not [name for name in parse_methods("all") if not METHODS.get(name).drop_in]
