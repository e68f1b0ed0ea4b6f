"""What the measurements ran on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess

_PACKAGES = ("onnxruntime", "torch", "apache-tvm", "numpy")


def description() -> dict[str, str]:
    """Return the processor, its caches, the system and the versions of the rivals."""
    found = _lscpu()
    caches = [f"{name[:-6]} {found[name]}" for name in ("L1d cache", "L2 cache", "L3 cache") if name in found]
    vectors = [f for f in ("avx2", "avx512f", "avx512_vnni", "asimd", "sve") if f in found.get("Flags", "").split()]
    versions = [f"{name} {version}" for name in _PACKAGES if (version := _version(name))]
    return {
        "processor": " ".join(
            [found.get("Model name", platform.processor() or platform.machine())]
            + [f"family {found['CPU family']} model {found['Model']}"] * ("CPU family" in found and "Model" in found)
        ),
        "vectors": ", ".join(vectors) or "unknown",
        "cores": str(os.cpu_count()),
        "caches": ", ".join(caches) or "unknown",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(versions),
    }


def _lscpu() -> dict[str, str]:
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
