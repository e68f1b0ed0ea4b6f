"""Accuracy versus bit width: every setting measured, each site alone, and a plan under a budget."""

from softq.sweeps.engine import Sweep, run
from softq.sweeps.planner import Selection
from softq.sweeps.task import Task, Tls

__all__ = ["Selection", "Sweep", "Task", "Tls", "run"]
