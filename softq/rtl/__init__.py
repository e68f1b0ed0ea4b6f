"""A method as a core for FPGAs: in Verilog, or in C++ for high-level synthesis, with a testbench and golden vectors."""

from softq.rtl.description import CoreFiles, read_core
from softq.rtl.hls import MadeFunction, hls, write_hls
from softq.rtl.making import MadeCore, rtl
from softq.rtl.weighted import MadeWeightedCore, rtl_with_values
from softq.rtl.writing import write_rtl

__all__ = [
    "CoreFiles",
    "MadeCore",
    "MadeFunction",
    "MadeWeightedCore",
    "hls",
    "read_core",
    "rtl",
    "rtl_with_values",
    "write_hls",
    "write_rtl",
]
