"""onnxruntime from 1.17 on, on this computer's kind of processor or 64-bit Arm: custom operators beside the model.

Produces a folder with a shared library that has one operator for each of softq's functions in a converted model,
compiled from the row programs of `cpu`'s kernels, its source and a manifest. An operator takes precedence over the
function of its name, so the converted model itself stays as it is: with the library registered
(`softq.onnxruntime.register`, or `register_custom_ops_library` of any language's session options) its softmaxes are
compiled, without it the functions' bodies run. Where `convert --fuse-attention` wrote attentions as functions, their
operators compute all of it. The library needs neither TVM nor Python, starts no threads (work is spread over
onnxruntime's) and refuses to load on a processor that lacks a feature that the kernels use. Rows of any rank's last
axis; scores of float32, float16 and bfloat16, or of the method's integer type; shapes may be dynamic. A model without
softq's functions (a plain one, or one converted with --inline) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from softq.errors import UsageError
from softq.targets._contract import BuiltOperators, Target, TargetOptions
from softq.text_options import option

if TYPE_CHECKING:
    from softq.runner import Written


@dataclass(frozen=True)
class Options(TargetOptions):
    """The processor."""

    family: str = option("native", "of the processor: native is this computer's, aarch64 is 64-bit Arm with Linux")
    mcpu: str = option("", "LLVM's name of the processor; by default this computer's, or the family's oldest")
    features: str = option("", "LLVM's features beyond it: +name, several as +name+name")


def _build(model: ir.Model, options: TargetOptions) -> BuiltOperators:
    from softq.codegen.cpu.machines import AARCH64, host
    from softq.codegen.cpu.operators import compile_operators
    from softq.compiler.attention_functions import find_functions

    assert isinstance(options, Options)
    if options.family not in ("native", AARCH64.name):
        raise UsageError(f"target onnxruntime has no family {options.family!r}; there are: native, {AARCH64.name}")
    if options.family == AARCH64.name:
        machine = AARCH64.machine("onnxruntime", options.mcpu or AARCH64.cpu, options.features)
    else:
        machine = host("onnxruntime", options.mcpu or "native", options.features)
    return BuiltOperators(compile_operators(find_functions(model), machine), machine)


def _open(model: Path, folder: Path, threads: int | None) -> Written:
    from softq.artifact import manifest
    from softq.modelfile.writing import files_size
    from softq.runner import OnnxRunner, Written

    size = files_size(model) + (folder / manifest.OPERATOR_LIBRARY).stat().st_size
    return Written(OnnxRunner.open(model, threads=threads, spin=False, operators=folder), size)


def _ready(model: Path | None) -> Path | None:
    from softq.onnxruntime import coverage, own_folder

    folder = own_folder()
    if model is None or folder is None:
        return folder
    found = coverage(model, folder)
    return folder if found.covered and not found.missing else None


TARGET = Target(
    name="onnxruntime",
    summary="onnxruntime 1.17 and newer: compiled operators for softq's functions, beside the converted model.",
    produces="a folder with a shared library of custom operators, its source and manifest",
    needs="the extra softq[tvm] to build, onnxruntime to run",
    passes=lambda: (),
    options=Options,
    build=_build,
    open=_open,
    ready=_ready,
)
