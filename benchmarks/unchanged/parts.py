"""The parts of a comparison, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.unchanged import builds, conversions, interface, studies
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
