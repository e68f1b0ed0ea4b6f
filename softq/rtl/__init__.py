"""A method as a streaming core for FPGAs: Verilog, a testbench with golden vectors, and what the core is."""

from softq.rtl.making import MadeCore, rtl
from softq.rtl.writing import write_rtl

__all__ = ["MadeCore", "rtl", "write_rtl"]
