"""Row programs: a softmax written once, as a small program over a row of scores (`docs/rowprog.md`)."""

from softq.rowprog.interpreter import prepare, run, run_node
from softq.rowprog.program import Node, Param, Program
from softq.rowprog.text import to_text
from softq.rowprog.trace import Trace
from softq.rowprog.types import DType, Kind
from softq.rowprog.value import Builder, Value

__all__ = [
    "Builder",
    "DType",
    "Kind",
    "Node",
    "Param",
    "Program",
    "Trace",
    "Value",
    "prepare",
    "run",
    "run_node",
    "to_text",
]
