"""Frameworks whose models are measured: one per file, found by listing this folder.

A file exposes `FRAMEWORK`, a `softq.sweeps.evaluate.framework.Framework` of the file's name. It imports its framework
when a model is opened and not before. Packages outside softq add some by the entry-point group `softq.frameworks`.
"""

from softq.registry import Folder
from softq.sweeps.evaluate.framework import Framework

FRAMEWORKS = Folder(
    package="softq.sweeps.frameworks", attribute="FRAMEWORK", kind=Framework, group="softq.frameworks", noun="framework"
)

__all__ = ["FRAMEWORKS", "Framework"]
