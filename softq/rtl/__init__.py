"""A method as a streaming core for FPGAs: Verilog, a testbench with golden vectors, and what the core is."""

from softq.rtl.making import MadeCore, rtl
from softq.rtl.weighted import MadeWeightedCore, rtl_with_values
from softq.rtl.writing import write_rtl

__all__ = ["MadeCore", "MadeWeightedCore", "rtl", "rtl_with_values", "write_rtl"]
