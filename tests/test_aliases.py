"""Old module names still import, and never stand in the way of functions such as `softq.plan`, whatever comes first."""

from __future__ import annotations

import subprocess
import sys

import pytest

OLD = {
    "calibrate": ("calibration", "fit"),
    "plan": ("plans", "Plan"),
    "report": ("reports", "to_junit"),
    "sweep": ("sweeps", "run"),
}


def python(*lines: str) -> None:
    """Run a program in a process of its own, in which nothing is imported yet."""
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_old_name_gives_what_the_new_one_does_and_says_so() -> None:
    lines = ["import sys, warnings", "warnings.simplefilter('always', DeprecationWarning)"]
    for old, (new, name) in OLD.items():
        lines += [
            "with warnings.catch_warnings(record=True) as told:",
            f"    from softq.{old} import {name} as before",
            "heard = [(str(w.message), w.filename) for w in told]",
            f"assert ('softq.{old}.{name} is softq.{new}.{name} now', '<string>') in heard",
            f"import softq.{old}, softq.{new}",
            f"assert sys.modules['softq.{old}'].{name} is softq.{new}.{name} is before",
            f"assert {old!r} not in vars(softq)",
            f"assert callable(softq.{old})",
        ]
    python(
        *lines,
        "from softq.calibrate import Reservoir, collect",
        "assert collect is softq.calibration.collect",
        "assert Reservoir.__module__ == 'softq.calibration.sampling'",
        "import softq.sweep.records",
        "from softq.sweep.page import report",
        "assert sys.modules['softq.sweep'].records.read is softq.sweeps.records.read",
        "assert report is sys.modules['softq.sweeps.report'].report",
    )


@pytest.mark.parametrize("first", ["function", "alias"])
def test_a_function_of_the_name_wins(first: str) -> None:
    lines = ["import softq", "def function(): return 'done'"]
    for old, (_, name) in OLD.items():
        function, alias = f"softq.{old} = function", f"import softq.{old}\nfrom softq.{old} import {name}"
        lines += [function, alias] if first == "function" else [alias, function]
        lines += [f"assert softq.{old} is function", f"from softq import {old}", f"assert {old} is function"]
    python(*lines)


def test_an_import_loads_nothing_of_what_the_aliases_stand_for() -> None:
    python("import sys, softq, softq.plan", "assert 'softq.plans' not in sys.modules and 'numpy' not in sys.modules")
