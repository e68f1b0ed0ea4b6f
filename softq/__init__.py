"""softq replaces every softmax of an ONNX model by one that small hardware likes, and measures what that costs.

The steps are `inspect`, `convert`, `save`, `check` and `build`, and `load` for what was built; the studies are `sweep`,
`sensitivity`, `plan` and `report`. Each pass alone is in `softq.passes`, each method in `softq.methods`.
Names are imported when they are first used, so that `import softq` stays cheap.
"""

from __future__ import annotations

import sys
from importlib import import_module

from softq import _aliases

TYPE_CHECKING = False  # `typing` takes a while, and its constant is all that is needed.
if TYPE_CHECKING:
    from softq._version import __version__
    from softq.artifact import Artifact, load
    from softq.building import build
    from softq.calibration import Sampling
    from softq.compare import Report, check
    from softq.conversion import Conversion, calibrate, convert, inspect, save
    from softq.conversion_pass import SoftqPass
    from softq.errors import InputError, ProofError, RefusalError, SoftqError, UsageError
    from softq.explanation import Explanation, explain
    from softq.methods import METHODS
    from softq.plans import Plan, SitePlan, load_plan
    from softq.site import Site, Verdict
    from softq.sweeps.functions import plan, report, sensitivity, sweep
    from softq.targets import TARGETS

_HOMES = {
    "softq._version": ("__version__",),
    "softq.artifact": ("Artifact", "load"),
    "softq.building": ("build",),
    "softq.calibration": ("Sampling",),
    "softq.compare": ("Report", "check"),
    "softq.conversion": ("Conversion", "calibrate", "convert", "inspect", "save"),
    "softq.conversion_pass": ("SoftqPass",),
    "softq.explanation": ("Explanation", "explain"),
    "softq.errors": ("InputError", "ProofError", "RefusalError", "SoftqError", "UsageError"),
    "softq.methods": ("METHODS",),
    "softq.plans": ("Plan", "SitePlan", "load_plan"),
    "softq.site": ("Site", "Verdict"),
    "softq.sweeps.functions": ("plan", "report", "sensitivity", "sweep"),
    "softq.targets": ("TARGETS",),
}

__all__ = [
    "METHODS",
    "TARGETS",
    "Artifact",
    "Conversion",
    "Explanation",
    "InputError",
    "Plan",
    "ProofError",
    "RefusalError",
    "Report",
    "Sampling",
    "Site",
    "SitePlan",
    "SoftqError",
    "SoftqPass",
    "UsageError",
    "Verdict",
    "__version__",
    "build",
    "calibrate",
    "check",
    "convert",
    "explain",
    "inspect",
    "load",
    "load_plan",
    "plan",
    "report",
    "save",
    "sensitivity",
    "sweep",
]


_aliases.register()


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    alias = sys.modules.get(f"softq.{name}")
    if alias is not None:
        return alias
    raise AttributeError(f"module 'softq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
