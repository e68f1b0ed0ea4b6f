"""Building a model for a target: from an ONNX model to an artifact that runs with neither Python nor TVM."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softq.address_space import check_address_space
from softq.errors import UsageError
from softq.input_shapes import InputShapes, fix_input_shapes
from softq.methods import METHODS
from softq.modelfile import ModelLike, as_model, graph_hash, weights_fingerprint
from softq.packages import PACKAGES, Package, PackageOptions
from softq.plans import check_names
from softq.progress import Progress
from softq.targets import TARGETS, Order, Target, TargetOptions

INSTALL = "pip install 'softq[tvm]'"
"""What installs TVM."""

_ADDRESS_SPACE = 1 << 30
"""Bytes: a model of one softmax takes 850 MB, nearly all of it TVM's and LLVM's code."""


@dataclass(frozen=True)
class TargetSpec:
    """A target with its options: what `name,key=value` means."""

    target: Target
    options: TargetOptions


@dataclass(frozen=True)
class BuiltArtifact:
    """What `build` wrote.

    Attributes:
        folder: The folder.
        manifest: What its manifest says.
        notes: What the user should know, one sentence each.
    """

    folder: Path
    manifest: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def parse_target(text: str) -> TargetSpec:
    """Return the target that a text names: `name[,key=value...]`.

    Raises:
        UsageError: the target or an option is unknown, or the text has another form.
    """
    name, settings = _split(text, "target")
    target = TARGETS.open(name)
    return TargetSpec(target, target.configure(settings))


def check_tvm(target: Target) -> None:
    """Refuse a target that needs TVM where there is none.

    Raises:
        UsageError: there is none; the message says what installs it.
    """
    if target.needs_tvm and importlib.util.find_spec("tvm") is None:
        raise UsageError(f"building for {target.name} needs TVM; install it with: {INSTALL}")


def parse_package(text: str) -> tuple[Package, PackageOptions]:
    """Return the form of a package that a text names, with its options: `name[,key=value...]`.

    Raises:
        UsageError: the form or an option is unknown, or the text has another form.
    """
    name, settings = _split(text, "package")
    package = PACKAGES.open(name)
    return package, package.configure(settings)


def _split(text: str, noun: str) -> tuple[str, Mapping[str, str]]:
    name, *pairs = text.split(",")
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"{noun} {text!r}: {pair!r} is no option; expected NAME,KEY=VALUE")
        if key in settings:
            raise UsageError(f"{noun} {text!r}: {key} is given twice")
        settings[key] = value
    return name, settings


def build(
    model: ModelLike,
    out: str | os.PathLike[str],
    *,
    target: str,
    input_shapes: InputShapes | None = None,
    package: str | None = None,
    sign: str | os.PathLike[str] | None = None,
    methods: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | None = None,
) -> BuiltArtifact:
    """Build a model for a target, write the artifact, and return where it is and what its manifest says.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`, converted or not; it is not changed. A plain Softmax
            gets a kernel of the exact softmax.
        out: The folder to write. An artifact that is there is replaced, anything else refused.
        target: Name of the target, with its options behind commas: `name,key=value`.
        input_shapes: For an input's name its lengths (None for an axis that stays open), or lengths by the names of its
            axes; the artifact takes these alone.
        package: Of a model in C, the form of package that its files get for projects of another tool, with its options
            behind commas: `name,key=value`.
        sign: PEM file of the private Ed25519 key that the artifact is signed with, if that is wanted.
        methods: Files of methods of one's own (`my_method.py`) that the plan of a converted model names.
        progress: Called with a step's name, the work done and the work there is, if known.

    Raises:
        UsageError: the target or a method is unknown, or the target does not build; TVM, or cryptography for a
            signature, is not installed.
        InputError: the model or the key cannot be used.
        RefusalError: an operator or a shape has no form in a built model; the message names it.
    """
    check_names("methods", methods)
    for method in methods:
        METHODS.open(os.fspath(method))
    spec = parse_target(target)
    packing = None if package is None else parse_package(package)
    if spec.target.build is None:
        raise UsageError(f"target {spec.target.name} gives {spec.target.produces}; there is nothing to build")
    check_tvm(spec.target)
    if spec.target.needs_tvm:
        check_address_space(_ADDRESS_SPACE, "building")
    from softq.artifact import check_folder
    from softq.artifact.signing import signer

    def step(number: int, name: str) -> None:
        if progress is not None:
            progress(name, number, 2)

    folder = check_folder(out)
    signing = None if sign is None else signer(sign)
    loaded = as_model(model)
    fix_input_shapes(loaded, input_shapes)
    step(0, "compile")
    built = spec.target.build(loaded, spec.options)
    if packing is not None and not built.takes_package:
        raise UsageError(f"package {packing[0].name} is for a model in C; target {spec.target.name} builds none")
    step(1, "write")
    model_hashes = {"graph": graph_hash(loaded), "weights": weights_fingerprint(loaded)}
    written = built.write(Order(folder, target, model_hashes, packing, signing))
    return BuiltArtifact(written, json.loads((written / "manifest.json").read_text(encoding="utf-8")), built.notes)
