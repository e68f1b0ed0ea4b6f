"""Where a built model's time goes: the median of each step, added up by kernel.

    python -m benchmarks.cpu.profile MODEL [--method exact] [--bits 4] [--threads 1] [--runs 15]

MODEL is a column of the table of whole models. The artifact's own driver is compiled with a clock around each step, so
that what is measured is what runs.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import softq
from benchmarks.cpu.works import WORKS, Feeds
from softq.artifact.artifact import c_tensor
from softq.artifact.library import CTensor


def profile(built: Path, feeds: Feeds, threads: int, runs: int) -> list[tuple[str, float]]:
    """Return the kernel of each step and the median of its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.so"
        source = Path(__file__).with_name("profile.c")
        command = ["cc", "-O2", "-shared", "-fPIC", "-pthread", f"-I{built}", "-o", str(path), str(source)]
        subprocess.run([*command, str(built / "kernels.o"), "-lm"], check=True)
        library = ctypes.CDLL(str(path))
    artifact = softq.load(built)
    arrays = [np.ascontiguousarray(feeds[spec.name]) for spec in artifact.inputs]
    given = (CTensor * len(arrays))(*map(c_tensor, arrays))
    taken = (CTensor * len(artifact.outputs))()
    context, error = ctypes.c_void_p(), ctypes.create_string_buffer(600)
    folder_name = str(built).encode()
    if library.softq_open(folder_name, threads, ctypes.byref(context), error, len(error)):
        raise RuntimeError(error.value.decode())
    seconds = np.zeros((runs + 1, library.profile_steps()))
    for run in seconds:
        pointer = run.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        if library.profile_run(context, given, ctypes.c_size_t(len(arrays)), taken, pointer):
            raise RuntimeError("the model does not run")
    library.softq_close(context)
    return list(zip(_kernels(built), np.median(seconds[1:], 0).tolist(), strict=True))


def _kernels(built: Path) -> list[str]:
    """Return the kernel of each step, from the driver's text."""
    text = (built / "driver.c").read_text("utf-8")
    return re.findall(r"^static void sq_step_\d+\(.*?\n    (\w+)\([^;]*begin, end\);", text, re.MULTILINE | re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(WORKS), help="a column of the table of whole models")
    parser.add_argument("--method", default="exact", help="method of all softmaxes")
    parser.add_argument("--bits", type=int, help="its bits")
    parser.add_argument("--threads", type=int, default=1, help="threads")
    parser.add_argument("--runs", type=int, default=15, help="runs of which medians are taken")
    given = parser.parse_args()
    work = WORKS[given.model]
    settings = {} if given.bits is None else {"bits": given.bits}
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        softq.build(softq.convert(work.path(), method=given.method, settings=settings).model, built, target="cpu")
        steps = profile(built, work.feeds(np.random.default_rng(0)), given.threads, given.runs)
    total = sum(seconds for _, seconds in steps)
    print(f"{len(steps)} steps, {total * 1e3:.3f} ms")
    kernels = list(dict.fromkeys(kernel for kernel, _ in steps))
    sums = {kernel: [seconds for name, seconds in steps if name == kernel] for kernel in kernels}
    for kernel, seconds in sorted(sums.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(seconds) * 1e3:10.3f} ms {sum(seconds) / total:6.1%} {len(seconds):5} x {kernel}")


if __name__ == "__main__":
    main()
