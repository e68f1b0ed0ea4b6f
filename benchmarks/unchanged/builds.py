"""Built models: what they compute, their manifests, and their objects."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.unchanged import corpus, elf
from benchmarks.unchanged.observe import Observer, Settings, bits_of, label, methods_of

FILES = "files"
"""The kind of the bytes of files that may be others: kernels for this computer are held by what they compute."""

CROSS = ("aarch64", "armv7", "riscv64")
MORE = {"softmax": ("aarch64,mcpu=cortex-a76", "riscv64,features=+v"), "integer-products": ("aarch64,mcpu=cortex-a76",)}
"""Further processors for a model: with dot products, with vectors."""

GPU = "cuda,arch=sm_90"


@dataclass(frozen=True)
class Work:
    """A model to build: with a method, or as it is."""

    kept: corpus.Kept
    method: str | None
    settings: Settings
    target: str

    @property
    def key(self) -> str:
        """What it is called in the record."""
        return f"{self.kept.name} {label(self.method, self.settings)} {self.target}"


def here(observer: Observer) -> None:
    """Observe artifacts for this computer."""
    for work in _works(observer, "build", ["cpu"]):
        observer.attempt("outputs", work.key, partial(_outputs, observer, work))


def cross(observer: Observer) -> None:
    """Observe artifacts for other processors; their kernels do not run here, so that their code is held."""
    _compile_together()
    for work in _works(observer, "cross", CROSS[:1] if observer.quick else CROSS):
        observer.attempt("objects", work.key, partial(_objects, observer, work))


def _compile_together() -> None:
    """Compile the kernels of a model in one module, as checkouts do that have no cache of kernels."""
    try:
        from softq.codegen.cpu import backend, object_code
    except ImportError:
        return
    backend.objects = lambda functions, machine: (object_code.object_code(functions, machine),)


def cuda(observer: Observer) -> None:
    """Observe artifacts for GPUs: the text of their kernels and their launches."""
    # nvcc would take most of the time, and its code follows from the text.
    os.environ["PATH"] = os.devnull
    for work in _works(observer, "cuda", [GPU]):
        observer.attempt("kernels for GPUs", work.key, partial(_launches, observer, work))


def _works(observer: Observer, part: str, targets: Sequence[str]) -> Iterator[Work]:
    for kept in observer.models:
        extent: str = getattr(kept.use, part)
        chosen = [] if extent == corpus.NONE else [(None, {}), *methods_of(extent, quick=observer.quick)]
        more = MORE.get(kept.name, ()) if part == "cross" and not observer.quick else ()
        yield from (Work(kept, method, settings, t) for method, settings in chosen for t in (*targets, *more))


def _outputs(observer: Observer, work: Work) -> bytes:
    import softq

    place = _built(observer, work)
    _files(observer, work, place, ("kernels.o", "driver.c", "weights.bin", "libmodel.so"))
    with softq.load(place) as artifact:
        found: dict[str, corpus.Array] = {}
        for run, feed in enumerate(work.kept.feeds()):
            found |= {f"{run}/{name}": array for name, array in artifact(feed).items()}
    return bits_of(found)


def _objects(observer: Observer, work: Work) -> bytes:
    place = _built(observer, work)
    _files(observer, work, place, ("kernels.o", "driver.c", "libmodel.so"))
    return elf.code((place / "kernels.o").read_bytes()).encode() + (place / "weights.bin").read_bytes()


def _launches(observer: Observer, work: Work) -> str:
    place = _built(observer, work)
    _files(observer, work, place, ("driver.c", "weights.bin"))
    paths = [place / name for name in ("kernels.cu", "graph.cu", "launches.json")]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


def build(model: str, method: str | None, settings: Settings, place: Path, target: str) -> Path:
    """Build a model with a method, or as it is, and return the folder."""
    import softq

    shutil.rmtree(place, ignore_errors=True)
    if method is None:
        return softq.build(model, place, target=target).folder
    converted = softq.convert(model, method=method, settings=settings, all_sites=True, allow_substitute=True).model
    return softq.build(converted, place, target=target).folder


def _built(observer: Observer, work: Work) -> Path:
    place = build(work.kept.relative, work.method, work.settings, observer.place(work.key), work.target)
    manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    # Other bytes of a file, and another hash of a model, are found out elsewhere.
    manifest["files"], manifest["model"] = sorted(manifest["files"]), sorted(manifest["model"])
    observer.see("manifests", work.key, json.dumps(manifest, indent=1, sort_keys=True))
    observer.see("softq.h", work.key, (place / "softq.h").read_text(encoding="utf-8"))
    return place


def _files(observer: Observer, work: Work, place: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = place / name
        if path.exists():
            content = path.read_text(encoding="utf-8") if name.endswith(".c") else path.read_bytes()
            observer.see(FILES, f"{work.key}: {name}", content)
