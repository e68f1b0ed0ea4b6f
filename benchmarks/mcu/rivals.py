"""Other generators of C on the float ViT, on emulated microcontrollers; writes benchmarks/mcu_rivals.json.

    python -m benchmarks.mcu.rivals NAME=PROGRAM,VERSION ...

Each NAME of `RIVALS` is given as the program that was installed or built elsewhere, and its version or commit; only
what is given is measured and written. Nothing of a rival is part of softq: its program makes the C, and what is
committed are numbers. It needs what `python -m benchmarks.mcu` does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.mcu.boards import BOARDS, Board, compile_object, run, sections, version
from benchmarks.mcu.models import VIT, digits
from benchmarks.mcu.results import RivalRow, store_rivals
from benchmarks.mcu.written_out import write_out

MODEL = VIT / "mnist_vit.onnx"
MEASURED = ("m4", "m7")
RAM = (".bss", ".sbss", ".data", ".sdata")


@dataclass(frozen=True)
class Rival:
    """A generator of C.

    Attributes:
        name: What tables call it.
        command: Its arguments: for a model the path of the C file.
        prints: Whether it prints the C file instead of writing it.
        function: What runs the model, with images and logits.
        prepare: Writes the model in operators that it takes, if it does not take it as it is.
    """

    name: str
    command: Callable[[Path, Path], Sequence[str]]
    prints: bool
    function: str
    prepare: Callable[[Path, Path], Path] | None = None


RIVALS = {
    rival.name: rival
    for rival in (
        Rival(
            "emx-onnx-cgen",
            # Weights in flash, and no heap: that is what a microcontroller has.
            lambda model, out: ("compile", "--input-dim", "images:0=1", "--large-weight-threshold", "0",
                                "--large-temp-threshold", "0", str(model), str(out)),
            prints=False,
            function="model",
        ),
        Rival("onnx2c", lambda model, _: (str(model),), prints=True, function="entry", prepare=write_out),
    )
}  # fmt: skip


def generate(rival: Rival, program: str, folder: Path) -> Path:
    """Return the C file that a rival makes of the ViT.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    model = MODEL if rival.prepare is None else rival.prepare(MODEL, folder / "prepared.onnx")
    source = folder / "rival.c"
    done = subprocess.run([program, *rival.command(model, source)], capture_output=True, text=True, check=True)
    if rival.prints:
        source.write_text(done.stdout, encoding="utf-8")
    return source


def measure(rival: Rival, program: str, told: str, name: str, board: Board, folder: Path) -> RivalRow:
    """Return what a rival's C takes on a board, after its result was compared with onnxruntime's.

    Raises:
        AssertionError: a logit is off by more than 1e-4.
    """
    made = compile_object(board, generate(rival, program, folder), folder / "rival.o")
    image = digits(1)[0]["images"]
    pixels = ", ".join(map(str, image.ravel().tolist()))
    (folder / "main.c").write_text(
        f'#include "board.h"\nvoid {rival.function}(const uint8_t *images, float *logits);\n'
        f"static const uint8_t pixels[784] = {{{pixels}}};\nstatic float logits[10];\n"
        f"int main(void)\n{{\n    const uint32_t before = count_now();\n    {rival.function}(pixels, logits);\n"
        "    print_number(count_from(before));\n    print_number(stack_used());\n"
        "    print_bytes(logits, sizeof logits);\n    return 0;\n}\n"
    )
    ticks, stack, *words = (int(line, 16) for line in run(board, folder, [folder / "main.c", made]))
    found = np.array(words, np.uint32).view(np.float32)
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    difference = float(np.abs(found - np.asarray(session.run(None, {"images": image})[0]).ravel()).max())
    assert difference < 1e-4, (rival.name, difference)
    flash, ram = sum(sections(board, made).values()), sum(sections(board, made, RAM).values())
    return RivalRow(rival.name, told, name, round(ticks * board.tick / 1e6, 2), flash, ram, stack, difference)


def main() -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu.rivals", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("rivals", nargs="+", metavar="NAME=PROGRAM,VERSION", help=f"of {', '.join(RIVALS)}")
    rows: list[RivalRow] = []
    for given in parser.parse_args().rivals:
        name, _, rest = given.partition("=")
        program, _, told = rest.rpartition(",")
        if name not in RIVALS or not program or not told:
            parser.error(f"{given!r}: expected NAME=PROGRAM,VERSION with a name of {', '.join(RIVALS)}")
        for board in MEASURED:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(RIVALS[name], program, told, board, BOARDS[board], Path(folder)))
            print(json.dumps(asdict(rows[-1])), flush=True)
    commands = {row.rival: " ".join([row.rival, *RIVALS[row.rival].command(Path("mnist_vit.onnx"), Path("vit.c"))])
                for row in rows}  # fmt: skip
    store_rivals(rows, [version(BOARDS[MEASURED[0]])], commands)
    return 0


if __name__ == "__main__":
    sys.exit(main())
