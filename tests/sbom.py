"""Adds what softq bundles to the list of its parts that cyclonedx-py made: `python tests/sbom.py SBOM.json`.

It runs where cyclonedx-bom is installed (`make release`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).resolve().parent.parent / "softq" / "sweeps" / "report" / "vendor"

# Name at npm, and where the file's first line has the version.
BUNDLED = {
    "d3.min.js": ("d3", r"https://d3js\.org v([\d.]+) "),
    "plot.min.js": ("@observablehq/plot", r"@observablehq/plot v([\d.]+) "),
}


def bundled() -> list[dict[str, Any]]:
    """Return the libraries in the folder of the report as CycloneDX's components."""
    found: list[dict[str, Any]] = []
    for path in sorted(VENDOR.glob("*.js")):
        name, pattern = BUNDLED[path.name]
        data = path.read_bytes()
        version = re.search(pattern, data[:200].decode())
        if version is None:
            raise SystemExit(f"{path}: its first line has no version")
        purl = f"pkg:npm/{name.replace('@', '%40')}@{version[1]}"
        found.append({
            "type": "library", "bom-ref": purl, "name": name, "version": version[1], "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}],
            "licenses": [{"license": {"id": "ISC"}}],
        })  # fmt: skip
    return found


def main(path: Path) -> None:
    """Add them to a file, and hold the result against CycloneDX's schema."""
    from cyclonedx.schema import SchemaVersion  # pyright: ignore
    from cyclonedx.validation.json import JsonStrictValidator  # pyright: ignore

    facts = json.loads(path.read_text(encoding="utf-8"))
    root = facts["metadata"]["component"]["bom-ref"]
    parts = bundled()
    facts["components"] += parts
    needs = next(entry for entry in facts["dependencies"] if entry["ref"] == root)
    needs["dependsOn"] = sorted([*needs.get("dependsOn", ()), *(part["bom-ref"] for part in parts)])
    facts["dependencies"] += [{"ref": part["bom-ref"]} for part in parts]
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    wrong: Any = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise SystemExit(f"{path}: {wrong}")
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(facts['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
