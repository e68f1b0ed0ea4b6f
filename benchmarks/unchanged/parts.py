"""The parts of a comparison, and what a checkout gives for one of them.

It runs in a process whose `softq` is that checkout's, and whose `benchmarks` are this one's:

    python -m benchmarks.unchanged.parts PART OUT --texts FOLDER [--built FOLDER] [--quick] [--models GLOB ...]

It works in the current folder, where `corpus` is the folder of the models and `names.json`, if it is there, lists the
public names to look for; `smollm2`, with its inputs in `smollm2.npz`, is there if that model is asked for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.unchanged import builds, conversions, corpus, interface, studies
from benchmarks.unchanged.observe import Observer


@dataclass(frozen=True)
class Part:
    """A group of observations, and what is observed."""

    observe: Callable[[Observer], None]
    text: str


def _both(observer: Observer) -> None:
    conversions.conversions(observer)
    builds.here(observer)


SMOLLM2 = "smollm2"

PARTS = {
    "names": Part(interface.names, "public Python names with the parameters of functions, entry points"),
    "commands": Part(interface.commands, "the text of each command's help, and what lists and describes"),
    "vectors": Part(interface.vectors, "golden vectors of every method"),
    "studies": Part(studies.studies, "what check, sweep, sensitivity, plan and report write"),
    "conversions": Part(conversions.conversions, "verdicts, plans, converted models"),
    "builds": Part(builds.here, "artifacts for this computer, and what they compute"),
    "cross": Part(builds.cross, "artifacts for other processors"),
    "cuda": Part(builds.cuda, "artifacts for GPUs"),
    SMOLLM2: Part(_both, "conversions and artifacts of SmolLM2"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--built", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="*", default=[])
    given = parser.parse_args()
    models = corpus.read(Path("corpus"), given.models, quick=given.quick)
    if given.part == SMOLLM2:
        use = corpus.Use(convert=corpus.FEW, build=corpus.FEW)
        models = [corpus.Kept(SMOLLM2, Path("smollm2/model.onnx"), Path("smollm2.npz"), use)]
    observer = Observer(models, given.texts, given.built, given.quick)
    if Path("names.json").exists():
        observer.names = json.loads(Path("names.json").read_text(encoding="utf-8"))
    PARTS[given.part].observe(observer)
    given.out.write_text(json.dumps(observer.kinds, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
