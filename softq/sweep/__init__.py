"""Accuracy versus bit width: every setting measured, each site alone, and a plan under a budget."""

from softq.sweep.engine import Sweep, run
from softq.sweep.planner import Selection
from softq.sweep.task import Task

__all__ = ["Selection", "Sweep", "Task", "run"]
