"""The models that both checkouts get: those of models/, and those that the tests make, with inputs for each.

    python -m benchmarks.unchanged.corpus FOLDER

It writes FOLDER/NAME.onnx, FOLDER/NAME.npz (inputs as `RUN/NAME`) and FOLDER/index.json.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[np.generic]
Feed = Mapping[str, Array]

NONE, PLAIN, DEFAULT, FEW, ALL = "none", "plain", "default", "few", "all"
"""What is done with a model: nothing, as it is, with exact and the default method, with a few methods, with each."""

INDEX = "index.json"
MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class Use:
    """What is done with a model; each of the last four is one of the words above.

    Attributes:
        masks: Names of tensors that are said to be masks.
        quick: Whether it takes part in a quick run.
        forms: Whether it is one of very many that are alike, of which only the verdicts and a conversion are looked at.
        convert: Conversions.
        build: Artifacts for this computer, run on the inputs.
        cross: Artifacts for other processors.
        cuda: Artifacts for GPUs.
    """

    masks: tuple[str, ...] = ()
    quick: bool = False
    forms: bool = False
    convert: str = NONE
    build: str = NONE
    cross: str = NONE
    cuda: str = NONE


@dataclass(frozen=True)
class Entry:
    """A model, inputs for each of its runs, and what is done with it."""

    name: str
    model: onnx.ModelProto
    feeds: Sequence[Feed] = ()
    use: Use = field(default_factory=Use)


@dataclass(frozen=True)
class Kept:
    """A model as the folder of the corpus has it, and the file of its inputs, if there are any."""

    name: str
    path: Path
    inputs: Path
    use: Use

    @property
    def relative(self) -> str:
        """The path that both checkouts are given: it stands in what they write."""
        return f"{self.path.parent.name}/{self.path.name}"

    def feeds(self) -> list[dict[str, Array]]:
        """Return the inputs of each run."""
        runs: dict[int, dict[str, Array]] = {}
        if self.inputs.exists():
            with np.load(self.inputs) as file:
                for key, array in file.items():
                    run, _, name = key.partition("/")
                    runs.setdefault(int(run), {})[name] = array
        return [runs[run] for run in sorted(runs)]


def entries() -> Iterator[Entry]:
    """Yield every model; names are unique."""
    yield from _trained()
    yield from _softmaxes()
    yield from _attentions()
    yield from _integers()
    yield from _operators()
    yield from _forms()


def _parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {8 if opset < 19 else 10}, opset_import: ["": {opset}]> g {text}')


def _trained() -> Iterator[Entry]:
    for name, rows in (("mnist_vit", 8), ("wikipedia_lm", 1)):
        folder = MODELS / name
        model = onnx.load(folder / f"{name}.onnx")
        names = {value.name for value in model.graph.input}
        with np.load(folder / "data.npz") as data:
            feed = {key: array[:rows] for key, array in data.items() if key in names}
        short = {key: array[:1, :33] if array.ndim == 2 else array[:1] for key, array in feed.items()}
        use = Use(quick=name == "mnist_vit", convert=ALL, build=FEW, cross=DEFAULT, cuda=DEFAULT)
        yield Entry(name, model, [feed, short], use)


def scores(rows: int, length: int) -> NDArray[np.float32]:
    """Return float32 [rows, length]: ties, far scores, -inf in part and throughout, NaN, +inf, then normal rows."""
    x = np.random.default_rng(length).normal(0, 3, (rows, length)).astype(np.float32)
    special = np.arange(length) % 3 == 1
    x[0] = 1.5
    x[1, special] = -np.inf
    x[2] = -np.inf
    x[3, length // 2] = np.nan
    x[4, length // 3] = np.inf
    x[5, -1] = 90
    x[6, special] = -100
    x[7, special] = np.nextafter(np.float32(1.5), np.float32(2))
    return x


def _softmaxes() -> Iterator[Entry]:
    feeds = [{"x": scores(11, length)} for length in (1, 7, 64, 197)]
    text = "({0}[m, n] x) => ({0}[m, n] y) {{ y = Softmax <axis = -1> (x) }}"
    all_of_it = Use(quick=True, convert=ALL, build=ALL, cross=ALL, cuda=FEW)
    yield Entry("softmax", _parsed(text.format("float")), feeds, all_of_it)
    halves = [{"x": feed["x"].astype(np.float16)} for feed in feeds[:3]]
    yield Entry("softmax-float16", _parsed(text.format("float16")), halves, Use(convert=FEW, build=FEW))
    for length in (64, 197, 1000):
        shape = f"float[11, {length}]"
        yield Entry(f"softmax-{length}", _parsed(f"({shape} x) => ({shape} y) {{ y = Softmax (x) }}"),
                    [{"x": scores(11, length)}], Use(convert=DEFAULT, build=FEW, cuda=DEFAULT))  # fmt: skip
    for dtype, zero, to in (("int8", 3, -128), ("uint8", 131, 0)):
        low = -128 if dtype == "int8" else 0
        codes = [{"x": np.random.default_rng(n).integers(low, low + 256, (11, n)).astype(dtype)} for n in (1, 64, 197)]
        model = _parsed(f"""({dtype}[m, n] x) => ({dtype}[m, n] y)
            <float s = {{0.0937}}, {dtype} z = {{{zero}}}, float t = {{0.00390625}}, {dtype} u = {{{to}}}> {{
                d = DequantizeLinear (x, s, z)
                p = Softmax <axis = -1> (d)
                y = QuantizeLinear (p, t, u)
            }}""")
        extent = ALL if dtype == "int8" else FEW
        use = Use(quick=extent == ALL, convert=extent, build=extent, cross=FEW, cuda=DEFAULT)
        yield Entry(f"softmax-{dtype}", model, codes, use)
    for name, behind, out in (
        ("top-k", "p = Softmax <axis = -1> (x) y, i = TopK <axis = -1> (p, k)", "float[m, 3] y, int64[m, 3] i"),
        ("arg-max", "p = Softmax <axis = -1> (x) y = ArgMax <axis = -1, keepdims = 0> (p)", "int64[m] y"),
        ("log", "y = LogSoftmax <axis = -1> (x)", "float[m, n] y"),
        ("first-axis", "y = Softmax <axis = 0> (x)", "float[m, n] y"),
    ):
        model = _parsed(f"(float[m, n] x) => ({out}) <int64[1] k = {{3}}> {{ {behind} }}")
        yield Entry(f"softmax-{name}", model, feeds[2:], Use(convert=FEW, build=DEFAULT))
    branches = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18, "local": 1]>
        g (float[m, n] x, bool yes) => (float[m, n] y) {
            y = If (yes) <
                then_branch = yes () => (float[m, n] a) { a = Softmax <axis = -1> (x) },
                else_branch = no () => (float[m, n] b) { b = local.Weigh (x) }>
        }
        <domain: "local", opset_import: ["": 18]> Weigh (s) => (r) {
            a = Constant <value_ints = [-1]> () m = ReduceMax (s, a) d = Sub (s, m) e = Exp (d)
            t = ReduceSum (e, a) r = Div (e, t)
        }""")
    yield Entry("containers", branches, [{"x": scores(11, 7), "yes": np.array(yes)} for yes in (True, False)],
                Use(convert=ALL))  # fmt: skip


def _attentions() -> Iterator[Entry]:
    from tests.test_gpu_build import ATTENTION
    from tests.test_native_attention import inputs, model

    rng, feeds = np.random.default_rng(0), list[Feed]()
    for b, h, n, m in ((1, 2, 5, 7), (2, 3, 70, 64), (1, 1, 3, 130), (2, 1, 64, 1)):
        sizes = (("q", n, 16), ("k", m, 16), ("v", m, 8))
        given: dict[str, Array] = {x: rng.normal(size=(b, h, rows, w)).astype(np.float32) for x, rows, w in sizes}
        keep = rng.random((b, 1, n, m)) < 0.8
        keep[:, :, -1] = False
        feeds.append(given | {"keep": keep})
    yield Entry("attention", onnx.parser.parse_model(ATTENTION), feeds,
                Use(quick=True, convert=ALL, build=ALL, cross=FEW, cuda=FEW))  # fmt: skip
    forms: dict[str, dict[str, object]] = {
        "plain": {}, "byte-groups": {"mask": "byte", "keys": 2}, "float-beside": {"mask": "float", "beside": True},
        "one-head": {"keys": 1, "width": "33"}, "lengths": {"width": "64", "queries": "197", "length": "197"},
    }  # fmt: skip
    for name, options in forms.items():
        width, keys = int(str(options.get("width", 16))), int(str(options.get("keys", 4)))
        shapes = [(1, 197, 197)] if "length" in options else [(2, 1, 5), (1, 50, 101), (2, 7, 515)]
        runs = [inputs(*shape, width, keys=keys, mask=str(options.get("mask", ""))) for shape in shapes]
        if "beside" in options:
            runs = [{f"{x}s" if x in "qkv" else x: a.swapaxes(1, 2).copy() if x in "qkv" else a for x, a in run.items()}
                    for run in runs]  # fmt: skip
        yield Entry(f"attention-{name}", model(**options), runs,  # pyright: ignore[reportArgumentType]
                    Use(convert=FEW, build=FEW, cross=DEFAULT, cuda=DEFAULT))  # fmt: skip


def _integers() -> Iterator[Entry]:
    from tests.test_native_integers import attention, codes
    from tests.test_native_integers_edge import attention as packed
    from tests.test_native_integers_edge import products

    for name, (kind, zeros, beside, mask, quantized) in {
        "a": ("uint8", True, True, False, True), "b": ("int8", False, False, True, False),
        "c": ("int8", True, True, True, True), "d": ("uint8", False, False, False, False),
    }.items():  # fmt: skip
        feeds: list[Feed] = []
        for m, n, c, d in ((1, 7, 16, 8), (33, 130, 32, 16)):
            sizes = (("q", m, c), ("k", n, c), ("v", n, d))
            shapes = {x: (2, rows, 3, width) if beside else (2, 3, rows, width) for x, rows, width in sizes}
            given = {x: codes(i, kind, *shape) for i, (x, shape) in enumerate(shapes.items())}
            bias = np.random.default_rng(0).normal(size=(2, 1, 1, n)).astype(np.float32)
            feeds.append(given | ({"bias": bias} if mask else {}))
        model = attention(kind, zeros=zeros, beside=beside, mask=mask, scores=quantized)
        use = Use(quick=name == "a", convert=FEW, build=FEW if name in "ab" else DEFAULT, cross=DEFAULT, cuda=DEFAULT)
        yield Entry(f"attention-of-bytes-{name}", model, feeds, use)
    given = [{"x": codes(9, "uint8", 2, n, 57)} for n in (1, 70)]
    yield Entry("attention-of-bytes-packed", packed(), given, Use(convert=FEW, build=DEFAULT, cross=DEFAULT))
    yield Entry("integer-products", products(), [{"x": codes(8, "uint8", m, 37)} for m in (23, 37)],
                Use(quick=True, build=PLAIN, cross=PLAIN, cuda=PLAIN))  # fmt: skip


def _operators() -> Iterator[Entry]:
    from tests.test_gpu_build import IN_BLOCKS
    from tests.test_gpu_epilogues import BODIES, model_of
    from tests.test_gpu_graphs import NORMS, norm_model
    from tests.test_native_convolutions import model as convolutions
    from tests.test_native_half_sums import OPERATORS
    from tests.test_native_half_sums import model as half_sums
    from tests.test_native_operators import GROUPS
    from tests.test_native_operators import model_of as operators

    rng = np.random.default_rng(0)
    plain = Use(build=PLAIN, cross=PLAIN, cuda=PLAIN)
    for dynamic in (False, True):
        model, feed = convolutions(dynamic)
        yield Entry(f"convolutions-{'dynamic' if dynamic else 'fixed'}", model, [feed], replace(plain, quick=dynamic))
    for group in GROUPS:
        model, feed = operators(list(group()), 19)
        yield Entry(f"operators-{group.__name__}", model, [feed], Use(build=PLAIN))
    for operator in OPERATORS:
        x = rng.uniform(0.5, 1.5, (3, 50)).astype(np.float16)
        yield Entry(f"half-sums-{operator}", half_sums(operator), [{"x": x}], Use(build=PLAIN))
    for name in BODIES:
        for columns in (36, 35):
            lead = (5,) if "Gemm" in BODIES[name] else (2, 5)
            feed = {x: rng.normal(size=(*lead, width)).astype(np.float32) for x, width in (("x", 64), ("r", columns))}
            yield Entry(f"product-{name}-{columns}", model_of(name, columns=columns), [feed],
                        plain if columns == 36 else Use(build=PLAIN))  # fmt: skip
    for name in NORMS:
        for width in (64, "w"):
            feed = {"x": (2, 5, 64), "s": (64,), "c": (64,)}
            given = {x: rng.normal(1, 2, shape).astype(np.float32) for x, shape in feed.items()}
            yield Entry(f"norm-{name}-{width}", norm_model(name, width), [given], Use(build=PLAIN, cuda=PLAIN))
    for name, text in IN_BLOCKS.items():
        yield Entry(f"blocks-{name}", _parsed(text), (), Use(cuda=PLAIN))


def _forms() -> Iterator[Entry]:
    from tests import test_forms_functions, test_forms_masked_functions, test_forms_top_k
    from tests.forms_masked import MASKED
    from tests.forms_written import CASES
    from tests.test_attention_microsoft import ATTENTION, MHA, fused, mha, projected
    from tests.test_attention_variants import draw

    use = Use(forms=True, convert=DEFAULT)
    for name, case in {**CASES, **{f"masked, {name}": case for name, case in MASKED.items()}}.items():
        for opset in case.opsets:
            yield Entry(f"{name}, opset {opset}", case.model(opset), [case.feeds()], replace(use, masks=case.masks))
    for seed in range(40):
        variant = draw(seed)
        yield Entry(f"attention-operator-{seed}", variant.model, [variant.feeds], use)
    fused_inputs = {("MultiHeadAttention", case): mha(**more) for case, more in MHA.items()}
    fused_inputs |= {("Attention", case): projected(more) for case, more in ATTENTION.items()}
    for (operator, case), given in fused_inputs.items():
        present = "present" if operator == "Attention" else "present_key present_value"
        model = fused(operator, given, f"y {present}" if "past" in case else "y", symbolic=len(case) % 2 == 0)
        feed = {name: array for name, array in given.items() if array is not None}
        yield Entry(f"{operator} of Microsoft's, {case}", model, [feed], use)
    for name, function in {**test_forms_functions.CASES, **test_forms_functions.AROUND}.items():
        model = test_forms_functions.model(function[0])
        yield Entry(f"function, {name}", model, [test_forms_functions.feed()], use)
    for name, form in test_forms_top_k.FORMS.items():
        yield Entry(f"top-k, {name}", test_forms_functions.model(form[0]), [test_forms_functions.feed()], use)
    for name, body in test_forms_masked_functions.CASES.items():
        given = next(iter(test_forms_masked_functions.RANKS.values()))
        model = test_forms_functions.model(body[0], given=given)
        yield Entry(f"masked function, {name}", model, (), use)


def write(folder: Path, found: Iterable[Entry] | None = None) -> None:
    """Write the corpus; a folder that has one already is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    index: list[dict[str, object]] = []
    for number, entry in enumerate(entries() if found is None else found):
        file = f"{number:03}.onnx"
        (folder / file).write_bytes(entry.model.SerializeToString(deterministic=True))
        if entry.feeds:
            write_inputs(folder / f"{number:03}.npz", entry.feeds)
        index.append({"name": entry.name, "file": file, "use": asdict(entry.use)})
    names = [one["name"] for one in index]
    assert len(set(map(str, names))) == len(names), "two models have one name"
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def write_inputs(path: Path, feeds: Sequence[Feed]) -> None:
    """Write the inputs of runs, as np.savez does but without the time of writing."""
    with zipfile.ZipFile(path, "w") as archive:
        for run, feed in enumerate(feeds):
            for name, array in feed.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.asanyarray(array))
                archive.writestr(zipfile.ZipInfo(f"{run}/{name}.npy"), buffer.getvalue())


def read(folder: Path, globs: Sequence[str] = (), *, quick: bool = False) -> list[Kept]:
    """Return the models of a folder: those whose name matches one of the globs, if there are any."""
    found: list[Kept] = []
    for one in json.loads((folder / INDEX).read_text(encoding="utf-8")):
        path, use = folder / one["file"], Use(**one["use"] | {"masks": tuple(one["use"]["masks"])})
        kept = Kept(one["name"], path, path.with_suffix(".npz"), use)
        if not globs or any(fnmatch.fnmatchcase(kept.name, glob) for glob in globs):
            found.append(kept)
    if quick:
        few = [kept for kept in found if kept.use.quick]
        return few + list(islice((kept for kept in found if kept.use.forms), 0, None, 10))
    return found


def digest(folder: Path) -> str:
    """Return one hash of all files of the corpus."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        whole.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
