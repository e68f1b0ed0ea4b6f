"""How fast what both checkouts build runs: artifacts of either, loaded in one process, take turns."""

from __future__ import annotations

import fnmatch
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import softq
from benchmarks.cpu.attention import inputs, model, quantized
from benchmarks.cpu.results import table
from benchmarks.cpu.rows import SHAPES, STEP, scores
from benchmarks.cpu.section import Result
from benchmarks.cpu.timing import ratio, take_turns
from benchmarks.unchanged.corpus import MODELS, Feed
from benchmarks.unchanged.observe import FEW, Settings, label
from benchmarks.unchanged.trees import Tree

_ROWS: tuple[tuple[str, Settings], ...] = (*FEW[:3], ("uniform", {}), ("i-exp", {}))
_BYTES: tuple[tuple[str, Settings], ...] = (*FEW[:2], ("tflite-int8", {}), ("xnn-qu8", {}))


@dataclass(frozen=True)
class Work:
    """A model to build with a method, or as it is, and what it is given."""

    place: str
    made: Callable[[], onnx.ModelProto]
    method: str | None
    settings: Settings
    given: Callable[[], Feed]


def works() -> Iterator[Work]:
    """Yield what is timed: the shapes and models of benchmarks.cpu as far as a built model reaches them."""
    for shape in SHAPES:
        rows, length = map(int, shape.split("x"))
        for method, settings in _ROWS:
            yield Work(shape, lambda r=rows, n=length: _softmax(r, n), method, settings, lambda r=rows, n=length: {
                "x": scores(r, n)[0]})  # fmt: skip
        for method, settings in _BYTES:
            yield Work(f"{shape} of int8", lambda r=rows, n=length: _softmax_of_bytes(r, n), method, settings,
                       lambda r=rows, n=length: {"x": scores(r, n)[1]})  # fmt: skip
    for method, settings in FEW:
        yield Work("attention 12x512x64", lambda: model(512), method, settings, lambda: inputs(512))
    codes = {n: np.random.default_rng(i).integers(60, 190, (1, 512, 768)).astype(np.uint8) for i, n in enumerate("qkv")}
    yield Work("attention of bytes 12x512x64", lambda: quantized(512), "deferred-log", {}, lambda: codes)
    for name, count in (("mnist_vit", 32), ("wikipedia_lm", 1)):
        for method, settings in ((None, {}), *FEW):
            yield Work(name, lambda n=name: onnx.load(MODELS / n / f"{n}.onnx"), method, settings,
                       lambda n=name, c=count: _data(n, c))  # fmt: skip


def _softmax(rows: int, length: int) -> onnx.ModelProto:
    shape = f"float[{rows}, {length}]"
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({shape} x) => ({shape} y) {{ y = Softmax (x) }}'
    )


def _softmax_of_bytes(rows: int, length: int) -> onnx.ModelProto:
    shape = f"[{rows}, {length}]"
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]> g (int8{shape} x) => (int8{shape} y)
        <float s = {{{STEP}}}, int8 z = {{0}}, float t = {{0.00390625}}, int8 u = {{-128}}> {{
            d = DequantizeLinear (x, s, z)
            p = Softmax (d)
            y = QuantizeLinear (p, t, u)
        }}""")


def _data(name: str, count: int) -> Feed:
    wanted = {value.name for value in onnx.load(MODELS / name / f"{name}.onnx").graph.input}
    with np.load(MODELS / name / "data.npz") as data:
        return {key: array[:count] for key, array in data.items() if key in wanted}


def measure(trees: Sequence[Tree], rounds: int, globs: Sequence[str]) -> list[Result]:
    """Print and return how long what the second checkout builds takes, beside the first one's.

    Args:
        trees: The two checkouts.
        rounds: How often each has its turn.
        globs: Which shapes or models to time; all if empty.
    """
    before, now = trees
    chosen = [one for one in works() if not globs or any(fnmatch.fnmatchcase(one.place, glob) for glob in globs)]
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="softq-speed-") as scratch:
        folder = Path(scratch)
        for number, one in enumerate(chosen):
            onnx.save(one.made(), folder / f"{number}.onnx")
        orders = [[f"{number}.onnx", one.method, one.settings] for number, one in enumerate(chosen)]
        (folder / "orders.json").write_text(json.dumps(orders), encoding="utf-8")
        for tree in trees:
            tree.run(["benchmarks.unchanged.speed", tree.name], folder)
        for number, one in enumerate(chosen):
            given = one.given()
            with (
                softq.load(folder / f"{before.name}-{number}") as old,
                softq.load(folder / f"{now.name}-{number}") as new,
            ):
                calls = {before.name: lambda a=old: a(given), now.name: lambda a=new: a(given)}  # noqa: B023
                _check(old(given), new(given), one)
                times = take_turns(calls, rounds, warm=True)
            result = ratio(times, now.name, before.name, work=label(one.method, one.settings), place=one.place)
            seconds = f"{result.rival_value * 1e3:9.3f} ms {result.value * 1e3:9.3f} ms"
            spread = f"{result.ratio:.3f} ({result.low:.3f}-{result.high:.3f}; least {result.least:.3f})"
            print(f"{result.place:>30}  {result.work:24} {seconds}  {spread}", flush=True)
            found.append(result)
    if found:
        ratios = [one.ratio for one in found]
        print(f"{table(found)}\nmedian {statistics.median(ratios):.3f}, greatest {max(ratios):.3f}")
    return found


def _check(old: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray], one: Work) -> None:
    for name, array in old.items():
        if array.tobytes() != new[name].tobytes():
            print(f"{one.place} {label(one.method, one.settings)}: {name} is another one", file=sys.stderr)


PLACES = {"rows": SHAPES, "attention": ("12x512x64",), "quantized": ()}
"""Sections of benchmarks.cpu whose kernels no built model has alone, and their shapes here; empty for all."""

_SECTION = """
import dataclasses, importlib.util, json, sys, types, tvm
if importlib.util.find_spec("torch") is None:  # a rival whose times are not looked at here
    class Nothing:
        def __getattr__(self, name): return self
        def __call__(self, *given, **named): return self
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].__getattr__ = lambda name: Nothing()
from benchmarks.cpu.section import Settings
from benchmarks.cpu.sections import SECTIONS
section, rounds, places = json.loads(sys.argv[1])
for result in SECTIONS[section].measure(Settings(rounds=rounds, places=tuple(places))):
    print("RESULT", json.dumps(dataclasses.asdict(result)), flush=True)
"""


def measure_sections(trees: Sequence[Tree], sections: Sequence[str], rounds: int) -> None:
    """Print what each piece of work of benchmarks.cpu takes in the second checkout, over what it takes in the first.

    Each checkout's own benchmark runs, in processes that take turns, and what is compared are its ratios to the same
    rivals, of which the median is taken.

    Args:
        trees: The two checkouts.
        sections: Names of sections.
        rounds: How often each call has its turn in its process; the processes themselves have two turns.
    """
    before, now = trees
    found: list[float] = []
    for section in sections:
        for place in PLACES[section] or ("",):
            asked = json.dumps([section, rounds, [place] if place else []])
            turns: dict[str, list[Result]] = {before.name: [], now.name: []}
            for tree in (before, now, now, before):
                lines = tree.own(["-c", _SECTION, asked]).splitlines()
                turns[tree.name] += [Result(**json.loads(x[7:])) for x in lines if x.startswith("RESULT ")]
            old, new = (_ratios(turns[tree.name]) for tree in trees)
            for key, ratios in new.items():
                quotients = [value / old[key][rival] for rival, value in ratios.items() if rival in old.get(key, {})]
                if quotients:
                    found.append(statistics.median(quotients))
                    print(f"{key[0]:>14}  {key[1]:64} {found[-1]:.3f}", flush=True)
    if found:
        print(f"median {statistics.median(found):.3f}, greatest {max(found):.3f}")


def _ratios(results: Sequence[Result]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the mean ratio to each rival by place and work."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in results:
        if not one.rival.startswith("torch"):
            work = f"{one.work}, memory" if one.unit == "B" else one.work
            found.setdefault((one.place, work), {}).setdefault(one.rival, []).append(one.ratio)
    return {key: {rival: statistics.fmean(values) for rival, values in x.items()} for key, x in found.items()}


def _build() -> None:
    """Build all orders in the current folder, with the softq of this process."""
    from benchmarks.unchanged.builds import build

    for number, (path, method, settings) in enumerate(json.loads(Path("orders.json").read_text(encoding="utf-8"))):
        build(path, method, settings, Path(f"{sys.argv[1]}-{number}"), "cpu")


if __name__ == "__main__":
    _build()
