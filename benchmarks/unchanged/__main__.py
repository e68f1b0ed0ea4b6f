"""The command line: see `benchmarks.unchanged`."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import benchmarks.unchanged
from benchmarks.cpu.machine import description
from benchmarks.unchanged import corpus
from benchmarks.unchanged.parts import PARTS, SMOLLM2
from benchmarks.unchanged.records import TEXTS, Kinds, compare, table
from benchmarks.unchanged.trees import OWN, Tree, starts

STARTS = "starts"
_TOKENS = 64
"""How many tokens SmolLM2 is given."""


def main() -> int:
    given = _parsed()
    before, now = Tree("before", given.base.resolve()), Tree("now", given.now.resolve())
    for tree in (before, now):
        if not (tree.root / "softq" / "__init__.py").exists():
            sys.exit(f"{tree.root}: is no checkout of softq")
    with tempfile.TemporaryDirectory(prefix="softq-unchanged-") as scratch:
        given.record = (given.record or Path(scratch)).resolve()
        (given.record / TEXTS).mkdir(parents=True, exist_ok=True)
        if given.speed or given.sections:
            from benchmarks.unchanged.speed import measure, measure_sections

            if given.speed:
                measure((before, now), given.rounds, given.models)
            measure_sections((before, now), given.sections, given.rounds)
            return 0
        if not (given.record / "corpus" / corpus.INDEX).exists():
            Tree("own", OWN).run(["benchmarks.unchanged.corpus", given.record / "corpus"], Path(scratch))
        old: dict[str, dict[str, str]] = {}
        new: dict[str, dict[str, str]] = {}
        for part in given.only:
            if part == STARTS:
                print(starts((before, now), Path(scratch)), flush=True)
                continue
            half = _half(before, part, given, {})
            for whole, kinds in ((old, half), (new, {} if given.base_only else _half(now, part, given, half))):
                for kind, values in kinds.items():
                    whole.setdefault(kind, {}).update(values)
    if given.base_only:
        return 0
    found = compare(old, new, partial=given.partial)
    print(table(found, given.record, given.named), end="")
    return 0 if all(one.passed for one in found) else 1


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.unchanged", description=benchmarks.unchanged.__doc__,
        epilog="\n".join(f"{name:12} {part.text}" for name, part in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parts = [*(part for part in PARTS if part != SMOLLM2), STARTS]
    parser.add_argument("base", type=Path, help="the older checkout")
    parser.add_argument("now", type=Path, nargs="?", default=OWN, help="the newer one; this one by default")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help="these parts")
    parser.add_argument("--models", nargs="+", default=[], metavar="GLOB", help="only models whose name matches")
    parser.add_argument("--quick", action="store_true", help="a few methods and models")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="where models, texts and the older half stay")
    parser.add_argument("--base-only", action="store_true", help="measure the older half alone, for --record")
    parser.add_argument("--keep", action="store_true", help="leave the built folders there, too")
    parser.add_argument("--named", type=int, default=5, metavar="N", help="how many differences of a kind are named")
    parser.add_argument("--smollm2", type=Path, metavar="FOLDER", help="where SmolLM2 was built")
    parser.add_argument("--speed", action="store_true", help="time built models of both in turns instead")
    parser.add_argument(
        "--sections",
        nargs="+",
        default=[],
        metavar="SECTION",
        help="time sections of both trees' own benchmarks.cpu instead",
    )
    parser.add_argument("--rounds", type=int, default=31, help="turns of each, for --speed and --sections")
    given = parser.parse_args()
    if (given.keep or given.base_only) and given.record is None:
        parser.error("--keep and --base-only need --record")
    if given.smollm2 is not None:
        given.smollm2 = given.smollm2.resolve()
        given.only = [*given.only, SMOLLM2]
    given.partial = given.quick or bool(given.models)
    return given


def _half(tree: Tree, part: str, given: argparse.Namespace, like: Kinds) -> Kinds:
    """Return what a part finds in a checkout; the older one's is taken from the record, if it is there."""
    folder: Path = given.record
    version = tree.version() if tree.name == "before" else None
    facts = {"version": version, "corpus": corpus.digest(folder / "corpus"), "machine": description()}
    kept = folder / f"{version}.{part}.json"
    if version is not None and kept.exists():
        record = json.loads(kept.read_text(encoding="utf-8"))
        if record["facts"] == facts:
            return record["kinds"]
    start = _spent()
    found = _observe(tree, part, given, like)
    seconds, of_cpu = (end - begin for begin, end in zip(start, _spent(), strict=True))
    count = sum(map(len, found.values()))
    print(f"{tree.name}: {part}: {count} in {seconds:.0f} s, {of_cpu:.0f} s of CPU", file=sys.stderr, flush=True)
    if version is not None and not given.partial:
        # Whole or not at all: several may compare with one record.
        new = folder / f"{kept.name}.{os.getpid()}"
        new.write_text(json.dumps({"facts": facts, "cpu": of_cpu, "kinds": found}, indent=1), encoding="utf-8")
        new.replace(kept)
    return found


def _spent() -> tuple[float, float]:
    """Return the time, and the processor's time that child processes took, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _observe(tree: Tree, part: str, given: argparse.Namespace, like: Kinds) -> Kinds:
    options: list[str | Path] = ["--texts", given.record / TEXTS]
    options += ["--quick"] * given.quick + ["--models", *given.models] * bool(given.models)
    if given.keep:
        built = given.record / f"built-{tree.name}"
        built.mkdir(exist_ok=True)
        options += ["--built", built]
    with tempfile.TemporaryDirectory(prefix="softq-half-") as scratch:
        work = Path(scratch)
        # The same names in both: they stand in messages.
        (work / "corpus").symlink_to(given.record / "corpus", target_is_directory=True)
        if part == SMOLLM2:
            (work / "smollm2").symlink_to(given.smollm2, target_is_directory=True)
            with np.load(given.smollm2 / "data" / "0.npz") as data:
                corpus.write_inputs(work / "smollm2.npz", [{"input_ids": data["input_ids"][:, :_TOKENS]}])
        if like and part == "names":
            (work / "names.json").write_text(json.dumps(list(like["names"])), encoding="utf-8")
        tree.run(["benchmarks.unchanged.parts", part, "found.json", *options], work)
        return json.loads((work / "found.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
