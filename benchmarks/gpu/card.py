"""The GPU: kernels of a text, launches beside torch's, and times of calls that take turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softq.artifact.device import nvcc, nvrtc
from softq.artifact.device.cuda import Driver
from softq.codegen.gpu.dialect.dialects import CUDA, Dialect
from softq.errors import SoftqError

Call = Callable[[], object]


class NoGpuError(Exception):
    """There is nothing to run on; one line."""


def compilers() -> dict[str, Callable[[str, str], bytes]]:
    """Return what makes a cubin of a text for an architecture, by name, in the order in which to try them.

    A driver takes what is not newer than itself: torch's NVRTC fits it, a newer nvcc need not.
    """
    found: dict[str, Callable[[str, str], bytes]] = {}
    if nvrtc.find() is not None:
        found["NVRTC"] = nvrtc.compiled
    if nvcc.find() is not None:
        found["nvcc"] = lambda text, arch: nvcc.compiled(text, arch).code
    return found


class Card:
    """A GPU, through CUDA's driver for softq's kernels and through torch for all else, in one context.

    Args:
        rounds: How often each call has its turn.
    """

    def __init__(self, rounds: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise NoGpuError("torch is not installed") from error
        if not torch.cuda.is_available():
            raise NoGpuError("torch sees no GPU")
        if not compilers():
            raise NoGpuError("there is neither nvcc nor the NVRTC that torch for GPUs brings")
        self.torch: Any = torch
        self.rounds = rounds
        torch.zeros(1, device="cuda")  # torch's context first; the driver's is the same one
        try:
            self._driver = Driver()
        except SoftqError as error:
            raise NoGpuError(str(error)) from error
        self._modules: dict[str, Any] = {}
        self._compiler = "no compiler"
        self.kernels("KERNEL(32) nothing() {}\n")  # which compiler's code the driver takes
        self._facts = torch.cuda.get_device_properties(0)

    @property
    def dialect(self) -> Dialect:
        """The language of its kernels."""
        return CUDA

    @property
    def device(self) -> str:
        """Torch's name of it."""
        return "cuda"

    @property
    def arch(self) -> str:
        """Its architecture, such as `sm_90`."""
        return self._driver.arch

    @property
    def cache_bytes(self) -> int:
        """Size of the cache that all multiprocessors share."""
        return int(getattr(self._facts, "L2_cache_size", 0) or 64 << 20)

    def description(self) -> str:
        """Return what it is, and the versions."""
        torch = self.torch
        parts = [
            f"GPU: {self._driver.name}, {self._driver.arch}, {self._facts.multi_processor_count} multiprocessors",
            f"memory: {self._facts.total_memory / 2**30:.0f} GiB, L2 {self.cache_bytes / 2**20:.0f} MiB",
            f"copy: {self.copy_rate() / 1e9:.0f} GB/s read and written",
            f"versions: torch {torch.__version__}, CUDA {torch.version.cuda}, kernels by {self._compiler}",
        ]
        return "; ".join(parts)

    def copy_rate(self) -> float:
        """Return bytes a second, read and written, of a copy of 1 GiB."""
        torch = self.torch
        if not hasattr(self, "_copy_rate"):
            source = torch.empty(1 << 28, dtype=torch.float32, device="cuda").normal_()
            target = torch.empty_like(source)
            seconds = statistics.median(self.times({"copy": [lambda: target.copy_(source)]})["copy"])
            self._copy_rate = 2 * source.numel() * 4 / seconds
        return self._copy_rate

    @property
    def shared_bytes(self) -> int:
        """Most shared memory that a block may have."""
        return self._driver.shared_bytes

    def kernels(self, text: str) -> Callable[..., Any]:
        """Return what gives the kernels of a text by their symbols, and the shared memory of their launches."""
        if text not in self._modules:
            self._modules[text] = self._module(self.dialect.prelude() + text)
        return lambda symbol, shared=0: self._driver.function(self._modules[text], symbol, shared)

    def _module(self, text: str) -> Any:
        refused: list[str] = []
        for name, compiled in compilers().items():
            try:
                module = self._driver.module(compiled(text, self._driver.arch))
            except SoftqError as error:
                refused.append(f"{name}: {error}")
            else:
                self._compiler = name
                return module
        raise SoftqError(f"no compiler's kernels run here: {'; '.join(refused)}")

    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        """Start a kernel behind what torch has started; arguments are tensors and NumPy numbers."""
        held = [x.data_ptr() if hasattr(x, "data_ptr") else x for x in arguments]
        stream = self.torch.cuda.current_stream().cuda_stream
        self._driver.start(kernel, blocks, threads, held, shared=shared, stream=stream)

    def times(self, calls: Mapping[str, Sequence[Call]]) -> dict[str, list[float]]:
        """Return the seconds of one call of each kind in every round; kinds take turns.

        Args:
            calls: Of each kind the same call on different memory, one after the other in a graph: the processor's part
                of a launch is not timed, and memory is out of the cache when its turn comes again.
        """
        torch = self.torch
        graphs = {name: self._graph(some) for name, some in calls.items()}
        found: dict[str, list[float]] = {name: [] for name in calls}
        for counted in range(-3, self.rounds):
            for name, graph in graphs.items():
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                if counted >= 0:
                    found[name].append(start.elapsed_time(end) / 1e3 / len(calls[name]))
        return found

    def _graph(self, calls: Sequence[Call]) -> Any:
        torch = self.torch
        # Outside of a graph first: modules are loaded and algorithms chosen by the first call.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph
