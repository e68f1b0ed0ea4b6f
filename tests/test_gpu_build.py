"""Whole models for GPUs: their kernels as OpenCL on PoCL give what onnxruntime gives; the folder of `softq build`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.artifact.device import compiling, cuda, nvcc
from softq.artifact.device.executor import Executor
from softq.artifact.device.starting import Start
from softq.artifact.device.steps import DeviceProgram, from_json, to_json
from softq.artifact.weights import WeightsStream
from softq.codegen.gpu.dialect import dialects
from softq.codegen.gpu.dialect.dialects import CUDA, OPENCL
from softq.codegen.gpu.program import device_program, machine_of
from softq.errors import SoftqError
from softq.modelfile import as_model
from tests.opencl import MOST_SHARED, OPTIONS, device
from tests.pocl_driver import PoclDriver

Array = NDArray[np.generic]
VIT = Path(__file__).parent.parent / "models" / "mnist_vit" / "mnist_vit.onnx"


class Pocl:
    """PoCL as a device for the executor; memory is filled with noise first."""

    shared_bytes = MOST_SHARED

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._cl, self._queue = pytest.importorskip("pyopencl"), device()
        context = self._queue.context
        self._programs = {n: self._cl.Program(context, t).build(options=OPTIONS) for n, t in sources.items()}
        self._kernels: dict[str, Any] = {}
        self.launches: list[str] = []

    def allocate(self, size: int) -> Any:
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        return self._cl.Buffer(self._queue.context, flags, hostbuf=np.full(size, 0xAB, np.uint8))

    def free(self, memory: Any) -> None:
        memory.release()

    def write(self, memory: Any, array: Array) -> None:
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, memory, np.ascontiguousarray(array))

    def read(self, memory: Any, array: Array) -> None:
        self._cl.enqueue_copy(self._queue, array, memory)

    def launch(self, module: str, start: Start, blocks: int, arguments: Sequence[Any]) -> None:
        symbol, threads = start.symbol, start.threads
        self.launches.append(symbol)
        if symbol not in self._kernels:
            self._kernels[symbol] = getattr(self._programs[module], symbol)
        self._kernels[symbol](self._queue, (blocks * threads,), (threads,), *arguments)


def on_device(device_program: DeviceProgram) -> tuple[Callable[[Mapping[str, Array]], dict[str, Array]], Pocl]:
    """Return the model as what its folder holds gives it back."""
    stream = WeightsStream(device_program.program)
    weights = np.frombuffer(b"".join(bytes(piece) for piece in stream), np.uint8)
    pocl = Pocl(device_program.sources)
    return Executor(from_json(to_json(device_program)), weights, pocl), pocl


def opencl_of(model: onnx.ModelProto) -> DeviceProgram:
    return device_program(as_model(model), machine_of("sm_80"), OPENCL)


def on_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


ATTENTION = """
    <ir_version: 8, opset_import: ["": 18]>
    g (float[b,h,n,16] q, float[b,h,m,16] k, float[b,h,m,8] v, bool[b,1,n,m] keep) => (float[b,h,n,8] y) {
        t = Transpose <perm: ints = [0, 1, 3, 2]> (k)
        s = MatMul (q, t)
        low = Constant <value: tensor = float {-inf}> ()
        x = Where (keep, s, low)
        p = Softmax (x)
        y = MatMul (p, v)
    }"""


@pytest.mark.parametrize("method", ["exact", "deferred-log"])
def test_an_attention_with_a_mask_at_several_shapes(method: str) -> None:
    model = softq.convert(parser.parse_model(ATTENTION), method=method).model
    run, pocl = on_device(opencl_of(model))
    rng = np.random.default_rng(0)
    for b, h, n, m in ((1, 2, 5, 7), (2, 3, 70, 64), (1, 1, 3, 130), (2, 1, 64, 1)):
        given = {name: rng.normal(size=(b, h, rows, width)).astype(np.float32)
                 for name, rows, width in (("q", n, 16), ("k", m, 16), ("v", m, 8))}  # fmt: skip
        keep = rng.random((b, 1, n, m)) < 0.8
        keep[..., 0] = True
        feeds: dict[str, Array] = {**given, "keep": keep}
        found, (wanted,) = run(feeds)["y"], on_onnxruntime(model, feeds)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-5)
    assert any(
        name.startswith("softq_attention_deferred" if method == "deferred-log" else "softq_attention_exact")
        for name in pocl.launches
    )


def test_a_vision_transformer() -> None:
    model = softq.convert(onnx.load(VIT), bits=4).model
    program = opencl_of(model)
    run, _ = on_device(program)
    tensor = program.program.tensors[program.program.inputs[0]]
    images = np.random.default_rng(0).integers(0, 256, (3, *map(int, tensor.shape[1:]))).astype(tensor.dtype)  # pyright: ignore[reportArgumentType]
    found, wanted = run({tensor.name: images}), on_onnxruntime(model, {tensor.name: images})
    for value, theirs in zip(found.values(), wanted, strict=True):
        # A score at the boundary of a code may fall on either side: sums are in another order.
        value, theirs = value.astype(np.float64), theirs.astype(np.float64)
        assert np.max(np.abs(value - theirs)) <= 2e-2 * np.max(np.abs(theirs))


IN_BLOCKS = {
    "grouped-convolution": """(float[b,4,9,7] x, float[8,2,3,2] w) => (float[b,8,5,7] y) {
        y = Conv <group = 2, strides = [2, 1], pads = [1, 0, 1, 1]> (x, w) }""",
    "depthwise-convolution": """(float[b,4,9] x, float[4,1,3] w) => (float[b,4,7] y) { y = Conv <group = 4> (x, w) }""",
    "integers": """(uint8[b,300] x, int8[300,5] w) => (int32[b,5] y) <uint8 z = {131}> {
        y = MatMulInteger (x, w, z) }""",
}


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_what_processors_compute_in_a_threads_own_memory(name: str) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {IN_BLOCKS[name]}')
    rng, feeds = np.random.default_rng(0), dict[str, Array]()
    for value in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [d.dim_value or 3 for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = np.asarray(rng.normal(0, 1 if dtype == np.float32 else 100, shape)).astype(dtype)
    run, _ = on_device(opencl_of(model))
    (wanted,) = on_onnxruntime(model, feeds)
    found = run(feeds)["y"]
    assert found.dtype == wanted.dtype
    # Sums of integers are exact; those of at most 12 floats are rounded in another order.
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=0,
                               atol=1e-5 * (found.dtype == np.float32))  # fmt: skip


@pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")
@pytest.mark.parametrize(("given", "operator", "words"), [
    ("float", "Log", {"CUDART_INF_F", "CUDART_NAN_F"}), ("double", "ReduceMax", {"CUDART_INF"}),
])  # fmt: skip
def test_infinities_and_nan_compile(given: str, operator: str, words: set[str]) -> None:
    text = f'<ir_version: 8, opset_import: ["": 18]> g ({given}[8] x) => ({given}[n] y) {{ y = {operator} (x) }}'
    graph = device_program(as_model(parser.parse_model(text)), machine_of("sm_90"), CUDA).sources["graph"]
    assert set(re.findall(r"CUDART_\w+", graph[graph.index('extern "C"') :])) == words
    assert nvcc.compiled(graph, "sm_90", strict=False).usage


def test_what_softq_build_writes(tmp_path: Path) -> None:
    built = softq.build(softq.convert(parser.parse_model(ATTENTION), bits=4).model, tmp_path / "built",
                        target="cuda,arch=sm_90")  # fmt: skip
    names = {path.name for path in built.folder.iterdir()}
    assert {"manifest.json", "weights.bin", "launches.json", "kernels.cu"} <= names
    facts = json.loads((built.folder / "manifest.json").read_text())
    assert facts["machine"]["cpu"] == "sm_90"
    assert [kernel for kernels in facts["sites"].values() for kernel in kernels]
    assert sorted(facts["files"]) == sorted(names - {"manifest.json"})
    # It is replaced as any artifact is.
    softq.build(parser.parse_model(ATTENTION), tmp_path / "built", target="cuda,arch=sm_75,code=ptx")
    with pytest.raises(SoftqError, match="needs an NVIDIA GPU; this computer has no driver for one"):
        softq.load(built.folder)


@pytest.fixture
def pocl_driver(monkeypatch: pytest.MonkeyPatch) -> PoclDriver:
    """PoCL in the place of CUDA's driver, and of its compiler."""
    driver = PoclDriver()
    monkeypatch.setattr(cuda, "_library", lambda: driver)
    monkeypatch.setattr(dialects, "CUDA", OPENCL)
    monkeypatch.setattr(compiling, "compiler", lambda: "none")
    monkeypatch.setattr(compiling, "machine_code", lambda text, *_, **__: text.encode())
    return driver


def test_an_artifact_runs_through_the_driver_interface(pocl_driver: PoclDriver, tmp_path: Path) -> None:
    model = softq.convert(parser.parse_model(ATTENTION), method="exact").model
    built = softq.build(model, tmp_path / "built", target="cuda,arch=sm_90")
    rng = np.random.default_rng(0)
    with softq.load(built.folder) as artifact:
        for n in (5, 9):
            feeds = {name: rng.normal(size=(1, 2, rows, width)).astype(np.float32)
                     for name, rows, width in (("q", n, 16), ("k", 7, 16), ("v", 7, 8))}  # fmt: skip
            given: dict[str, Array] = {**feeds, "keep": np.ones((1, 1, n, 7), np.bool_)}
            (wanted,) = on_onnxruntime(model, given)
            np.testing.assert_allclose(artifact(given)["y"].astype(np.float64), wanted.astype(np.float64), rtol=1e-4,
                                       atol=1e-5)  # fmt: skip
        assert pocl_driver.allocated
        assert not pocl_driver.pushed
        with pytest.raises(softq.InputError, match="input 'k' has shape"):
            artifact({**given, "k": given["k"][:, :1]})
    assert pocl_driver.left == 0
    assert any(name.startswith("softq_attention_exact") for name in pocl_driver.launched)
    with pytest.raises(SoftqError, match="closed"):
        artifact(given)


def test_numbers_reach_a_kernel_as_they_are() -> None:
    for value in (np.int32(-5), np.int64(-(2**40)), np.float32(1.4427), 2**40 + 256):
        assert cuda._argument(value).value == value


def test_what_was_built_without_a_compiler_is_compiled_when_it_is_loaded(
    pocl_driver: PoclDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiling, "compiler", lambda: "")
    built = softq.build(parser.parse_model(ATTENTION), tmp_path / "built", target="cuda,arch=sm_80")
    assert not list(built.folder.glob("*.cubin"))
    asked: list[str] = []

    def compiled(text: str, arch: str) -> bytes:
        asked.append(arch)
        return text.encode()

    monkeypatch.setattr(compiling, "machine_code", compiled)
    softq.load(built.folder).close()
    assert asked == ["sm_90", "sm_90"]  # the device's own
    assert pocl_driver.left == 0


def test_code_for_another_gpu_is_one_error(pocl_driver: PoclDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                           ) -> None:  # fmt: skip
    monkeypatch.setattr(compiling, "machine_code", lambda *_, **__: b"elf")
    built = softq.build(parser.parse_model(ATTENTION), tmp_path / "built", target="cuda,arch=sm_80")
    with pytest.raises(softq.InputError, match=r"was built for cuda,arch=sm_80; this GPU is PoCL: .*error 209"):
        softq.load(built.folder)
    assert pocl_driver.left == 0


@pytest.mark.parametrize(("target", "message"), [
    ("cuda,arch=sm_70", "arch is 'sm_70'; expected sm_75 or later"),
    ("cuda,code=elf", "code is 'elf'; expected cubin or ptx"),
])  # fmt: skip
def test_options_out_of_range_are_refused(target: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(softq.UsageError, match=message):
        softq.build(parser.parse_model(ATTENTION), tmp_path / "built", target=target)


def test_long_rows_are_read_once_where_the_gpu_has_the_memory(pocl_driver: PoclDriver, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2,n] x) => (float[2,n] y) { y = Softmax (x) }'
    model = softq.convert(parser.parse_model(text), method="exact").model
    built = softq.build(model, tmp_path / "built", target="cuda,arch=sm_80")
    x = np.random.default_rng(0).normal(size=(2, 40_000)).astype(np.float32)
    (wanted,) = on_onnxruntime(model, {"x": x})
    for kilobytes, form in ((163, "g1024_c4a_8r8m"), (99, "g512_c4a_s")):  # of sm_80 and of sm_86
        pocl_driver.most_shared = kilobytes << 10
        with softq.load(built.folder) as artifact:
            found = artifact({"x": x})["y"]
        assert any(name.endswith(form) for name in pocl_driver.launched)
        pocl_driver.launched.clear()
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4)
