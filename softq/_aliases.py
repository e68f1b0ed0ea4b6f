"""Modules under the names they had before there were functions of these names; they stay for one release.

`softq.plan`, `softq.report`, `softq.sweep` and `softq.calibrate` are functions. An alias is therefore an entry of
`sys.modules` and never an attribute of `softq`: `from softq.sweep.records import read` finds the entry, and
`softq.sweep` is the function whatever was imported. The import system sets an attribute only for a module that it loads
itself.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_MOVED = {
    "softq.calibrate": "softq.calibration",
    "softq.plan": "softq.plans",
    "softq.report": "softq.reports",
    "softq.sweep": "softq.sweeps",
    "softq.sweep.page": "softq.sweeps.report",
    "softq.sweep.records": "softq.sweeps.records",
    "softq.sweep.search": "softq.sweeps.plan.search",
    "softq.sweep.sensitivity": "softq.sweeps.sensitivity",
}


class _Alias(ModuleType):
    """Stands for a module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        # What looks at every module (inspect, pickle) asks for names like __file__: that is no use of this one.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        import warnings

        home = _MOVED[self.__name__]
        found = getattr(import_module(home), name)
        warnings.warn(f"{self.__name__}.{name} is {home}.{name} now", DeprecationWarning, stacklevel=2)
        return found


def register() -> None:
    """Make the old names importable."""
    for name in _MOVED:
        sys.modules.setdefault(name, _Alias(name))
