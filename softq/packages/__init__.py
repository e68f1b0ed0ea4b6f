"""The forms in which a model in C goes into projects of other tools, one per file, each exposing one `PACKAGE`.

To add a form, write `softq/packages/my_form.py`:

1. The module's docstring says which tool takes it, and where that tool states what it takes.
2. `PACKAGE = Package(name="my-form", ...)` with the folder of the C files and the files around them.

`softq build --package my-form` finds the file. A form never names a target or a method, and nothing outside this
folder names a form.
"""

from __future__ import annotations

from softq.packages._contract import Contents, Package, PackageOptions, option
from softq.registry import Folder

PACKAGES = Folder("softq.packages", "PACKAGE", Package, "softq.packages", "package", listed_by="softq packages")

__all__ = ["PACKAGES", "Contents", "Package", "PackageOptions", "option"]
