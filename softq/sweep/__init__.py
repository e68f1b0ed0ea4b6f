"""Accuracy versus bit width: every setting measured, each site alone, and a plan under a budget."""

from softq.sweep.engine import Sweep, run

__all__ = ["Sweep", "run"]
