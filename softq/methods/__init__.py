"""The softmax methods, one per file, each exposing one `METHOD`.

To add a method, write `softq/methods/my_method.py`:

1. The module's docstring gives the formula, its source with the number of the equation, the range of the input, the
   Q-format or scale of each integer, the width of the accumulator and why it cannot overflow, the error bound and its
   range, and what calibration does.
2. A frozen dataclass derived from `Options` declares what a user can set; each field is made by `option(...)`, and
   its type (`float | Auto | Scope`, `Literal[...]`), its default, its limits and its help text are all there is:
   `--set`, `softq methods` and the documentation read them from the field. Fields shape the program; a field that says
   `site` or `head` asks for a run-time parameter, fitted on calibration data (`_fitted`).
3. `trace(t, options)` writes the row program on the `Trace` it is given and returns its outputs by name.
4. `METHOD = Method(name="my-method", ...)`. The name is the file's, with hyphens. A function that models are trained
   with, and that their graphs hold, says in `written` with which options it would be a given one; whether it is, is
   found by values.

Nothing else is to be done: `softq methods` finds the file. Methods never name targets, and nothing outside this folder
names a method.
"""

from __future__ import annotations

from softq.methods._contract import Error, Fit, Fitted, Method, Outputs, Sample, Spread
from softq.methods._options import FITTED_SCOPES, Auto, Options, OptionValue, option
from softq.methods._written import Function, WrittenSettings
from softq.registry import Folder
from softq.rowprog.program import Scope

METHODS = Folder("softq.methods", "METHOD", Method, "softq.methods", "method", listed_by="softq methods")

__all__ = [
    "DEFAULT_METHOD", "FITTED_SCOPES", "METHODS", "Auto", "Error", "Fit", "Fitted", "Function", "Method", "OptionValue",
    "Options", "Outputs", "Sample", "Scope", "Spread", "WrittenSettings", "option",
]  # fmt: skip

DEFAULT_METHOD = "deferred-log"
"""The method that is used where the user names none."""
