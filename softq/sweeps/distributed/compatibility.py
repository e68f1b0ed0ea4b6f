"""Whether a worker computes with what the client has: its versions, before anything of softq's is sent to it."""

from __future__ import annotations

import platform
from importlib import import_module

from softq.compare import versions

# A text that Python evaluates, because a function of softq's cannot arrive where there is no softq.
ASKED = (
    "{'python': __import__('platform').python_version()}"
    " | {name: getattr(__import__(name), '__version__', '?') for name in names}"
)


def asked_names() -> list[str]:
    """Return the packages whose versions decide about values."""
    return list(versions())


def versions_here() -> dict[str, str]:
    """Return this process's answer to `ASKED`."""
    return {"python": platform.python_version()} | {
        name: str(getattr(import_module(name), "__version__", "?")) for name in asked_names()
    }


def unfitness(answer: dict[str, str] | None, error: BaseException | None) -> str | None:
    """Return why a worker that gave this answer, or failed so, cannot measure, and what to do; None if it can."""
    here = versions_here()
    wanted = " ".join(f"{name}=={here[name]}" for name in asked_names())
    if answer is None:
        what = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return f"it cannot load what it measures with ({what}); install there: {wanted}"
    # Of Python itself the feature release: only that decides what can be sent from one to another.
    if answer["python"].split(".")[:2] != here["python"].split(".")[:2]:
        return f"it has Python {answer['python']}, here is {here['python']}; start it with the same"
    differing = [name for name in asked_names() if answer[name] != here[name]]
    if not differing:
        return None
    said = ", ".join(f"{name} {answer[name]} (here {here[name]})" for name in differing)
    return f"it has {said}; install there: {wanted}"
