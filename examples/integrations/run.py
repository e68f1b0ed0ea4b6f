"""Tries softq inside other tools: each script of this folder in an environment of its own.

    python examples/integrations/run.py [NAME...]

Makes an environment under build/integrations for each file in requirements/, with softq from this checkout and what
the file names, and runs the script of that name there, and tests/test_with_NAME.py where there is one. Prints a line
for each; the exit code is 1 unless all are ok. What is installed by now is not installed again; a script always runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "build" / "integrations"

ALONE = {"finn_core"}
"""Tools that pin older packages than torch and softq want: they are installed without, and what is used of them works
with those that their file names."""


def names() -> list[str]:
    """Return the names of all scripts."""
    return sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))


def try_tool(name: str) -> tuple[bool, str]:
    """Return whether a script did what it says, and the line about it; all output is in build/integrations/NAME.log."""
    requirements = HERE / "requirements" / f"{name}.txt"
    pins = requirements.read_text("utf-8").split()
    log = ENVIRONMENTS / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", "utf-8")
    failed = _install(name, requirements, pins, log)
    if failed:
        return False, f"{name}: {pins[0]}: not installable: {failed}"
    python = ENVIRONMENTS / name / "bin" / "python"
    here = ENVIRONMENTS / f"{name}.work"  # some tools leave caches in the current folder
    here.mkdir(exist_ok=True)
    # Nothing of who calls: tools look for others in the path. CI is what silences their telemetry.
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    quiet = {"CI": "true", "HF_HUB_OFFLINE": "1", "OLIVE_DISABLE_TELEMETRY": "1", "PATH": path}
    done, lines = _run([python, HERE / f"{name}.py"], log, cwd=here, env={**kept, **quiet})
    said = lines[-1] if lines else "it says nothing"
    tests = ROOT / "tests" / f"test_with_{name}.py"
    if done and tests.is_file():
        done, lines = _run([python, "-m", "pytest", "-q", "--no-header", tests], log, cwd=ROOT, env={**kept, **quiet})
        said += f"; {lines[-1]}"
    return done, f"{name}: {pins[0]}: {'ok' if done else 'FAILED'}: {said}" + f" ({log})" * (not done)


def _install(name: str, requirements: Path, pins: list[str], log: Path) -> str:
    """Make the environment of a tool unless it is there; return why that is impossible, else nothing."""
    home = ENVIRONMENTS / name
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    stamp, wanted = home / ".installed", "\n".join([*pins, *needed])
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return ""
    print(f"{name}: installing {pins[0]}; what pip says is in {log}", file=sys.stderr, flush=True)
    try:
        venv.create(home, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"there is no environment: {error}"
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # torch alone first: asked for by others, it may come with the libraries of a GPU.
    torch = [pin for pin in pins if pin.startswith("torch==")]
    rest: list[list[str | Path]] = [["--editable", ROOT, "--requirement", requirements]]
    if name in ALONE:
        rest = [["--editable", ROOT, *pins[1:]], ["--no-deps", pins[0]]]
    for arguments in ([torch] if torch else []) + rest:
        done, lines = _run([*pip, *arguments], log)
        if not done:
            return next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no reason given")
    stamp.write_text(wanted, "utf-8")
    return ""


def _run(command: list[str | Path], log: Path, **how: object) -> tuple[bool, list[str]]:
    """Run a command that says all it says to the end of the log; return whether it succeeded, and the lines."""
    start = log.stat().st_size
    with log.open("ab") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, **how)  # pyright: ignore
    said = log.read_bytes()[start:].decode("utf-8", "replace")
    return done.returncode == 0, [line for line in said.splitlines() if line.strip()]


def main(arguments: list[str]) -> int:
    """Try those that are named, all by default."""
    unknown = set(arguments) - set(names())
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    good = True
    for name in arguments or names():
        done, line = try_tool(name)
        print(line, flush=True)
        good &= done
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
