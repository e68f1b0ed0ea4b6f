"""The interface of a checkout: public names, entry points, the texts of commands, golden vectors."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from benchmarks.unchanged.observe import FEW, Observer, bits_of, method_names

MODULES = (
    "softq", "softq.artifact", "softq.calibrate", "softq.data", "softq.errors", "softq.methods", "softq.metrics",
    "softq.modelfile", "softq.passes", "softq.plan", "softq.registry", "softq.report", "softq.rowprog",
    "softq.rowprog.onnx", "softq.rowprog.ranges", "softq.site", "softq.specification", "softq.sweep", "softq.targets",
    "softq.vectors",
)  # fmt: skip
"""Modules whose names are public; those of the folder of passes are, too."""


def names(observer: Observer) -> None:
    """Observe public names, the parameters of what can be called, and the entry points."""
    wanted = observer.names if observer.names is not None else list(_own_names())
    for name in wanted:
        observer.attempt("names", name, partial(described, name))
    import softq

    project = tomllib.loads((Path(softq.__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    observer.see("entry points", "scripts", json.dumps(project["scripts"], indent=1, sort_keys=True))
    Path("outside.dist-info").mkdir()
    Path("outside.dist-info/METADATA").write_text("Name: outside\nVersion: 1\n")
    for group, code in READS.items():
        # An entry that is not there: the group is read if the error names it.
        Path("outside.dist-info/entry_points.txt").write_text(f"[{group}]\nmine = outside_of_softq:ENTRY\n")
        paths = os.pathsep.join([str(Path.cwd()), *sys.path])
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
        )
        observer.see("entry points", group, f"{done.returncode}: {(done.stderr.splitlines() or [''])[-1]}\n")


READS = {
    "softq.methods": "import softq.methods; softq.methods.METHODS.entries()",
    "softq.targets": "import softq.targets; softq.targets.TARGETS.entries()",
    "softq.metrics": "import softq.metrics; softq.metrics.METRICS.entries()",
    "softq.passes": "import softq.passes; softq.passes.PASSES.entries()",
    "softq.forms": "from softq.cli import main; main(['inspect', '--forms'])",
}
"""What reads each group of entry points."""


def _own_names() -> Iterator[str]:
    """Yield `module:name` and `module:class.member` of all public names that a module itself defines."""
    import softq.passes

    passes = [f"softq.passes.{one.name}" for one in pkgutil.iter_modules(softq.passes.__path__)]
    for module in (*MODULES, *(name for name in passes if "._" not in name)):
        loaded = importlib.import_module(module)
        for name in _public(loaded):
            yield f"{module}:{name}"
            value: object = getattr(loaded, name)
            if inspect.isclass(value) and not issubclass(value, BaseException):
                fields = getattr(value, "__annotations__", {})
                yield from (f"{module}:{name}.{part}" for part in sorted({*vars(value), *fields}) if part[0] != "_")


def _public(module: ModuleType) -> Sequence[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return sorted(name for name in own if name[0] != "_")


def described(name: str) -> str:
    module, _, path = name.partition(":")
    owner, *members = path.split(".")
    value: object = getattr(importlib.import_module(module), owner)
    for member in members:
        fields = getattr(value, "__annotations__", {})
        value = inspect.getattr_static(value, member, None)
        if value is None and member not in fields:
            raise AttributeError(f"{name}: there is no {member}")
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if members and not callable(value):
        return "a property or a field"
    if inspect.isclass(value) or inspect.isroutine(value):
        try:
            return f"({', '.join(_parameters(inspect.signature(value)))})"
        except ValueError:
            return "cannot be called"
    return f"a {type(value).__name__}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    for one in signature.parameters.values():
        # The text of other objects has an address, or the order of a set.
        plain = one.default is None or isinstance(one.default, (bool, int, float, str))
        default = repr(one.default) if plain else f"a {type(one.default).__name__}"
        yield f"{one.kind.name.lower()} {one.name}{'' if one.default is one.empty else f' = {default}'}"


def command(*arguments: object) -> str:
    """Return what a command prints, in this process, with its exit code."""
    from click.testing import CliRunner

    from softq.cli import main

    # Studies write down the command that made them.
    sys.argv = ["softq", *map(str, arguments)]
    done = CliRunner().invoke(main, sys.argv[1:], prog_name="softq")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return f"{done.output}[exit code {done.exit_code}]\n"


def commands(observer: Observer) -> None:
    """Observe what each command says of itself, and what lists and describes."""
    from softq import TARGETS
    from softq.cli import main

    asked: list[Sequence[str]] = [
        ["--help"], ["--version"], ["methods"], ["methods", "--json"], ["methods", "--length", "70000"], ["targets"],
        ["targets", "--json"], ["inspect", "--forms"], ["methods", "no-method"], ["convert"], ["no-command"],
        ["convert", "model.onnx", "out.onnx", "--method", "no-method"], ["inspect", "no-model.onnx"],
        *([name, "--help"] for name in main.commands), *(["targets", name] for name in TARGETS.entries()),
    ]  # fmt: skip
    chosen = sorted({name for name, _ in FEW}) if observer.quick else method_names()
    asked += [["methods", name] for name in chosen]
    for arguments in asked:
        observer.attempt("commands", " ".join(arguments), partial(command, *arguments))
    for kept in observer.models:
        if kept.name in ("attention", "softmax", "mnist_vit", "containers"):
            for method in dict(FEW):
                for site in _sites(kept.path):
                    told = partial(command, "explain", kept.relative, site, "--method", method)
                    observer.attempt("explanations", f"{kept.name} {site} {method}", told)


def _sites(path: Path) -> list[str]:
    import softq

    return [site.id for site in softq.inspect(path, all_sites=True)]


def vectors(observer: Observer) -> None:
    """Observe golden vectors: each method's, of every type of scores that it takes, masked and not."""
    chosen = [*dict.fromkeys(name for name, _ in FEW)] if observer.quick else method_names()
    for name in chosen:
        for scores in ("f32", "i8", "u8", "i16"):
            for masked in (False, True):
                key = f"{name} {scores}{' masked' * masked}"
                observer.attempt("vectors", key, partial(_vectors, name, scores, masked))


def _vectors(name: str, scores: str, masked: bool) -> bytes:
    said = command("vectors", name, "out", "--dtype", scores, *["--masked"] * masked)
    header = Path("out.h")
    if not header.exists():
        return said.encode()
    with np.load("out.npz") as file:
        whole = header.read_bytes() + bits_of(dict(file.items()))
    for path in (header, Path("out.npz")):
        path.unlink()
    return said.encode() + whole
