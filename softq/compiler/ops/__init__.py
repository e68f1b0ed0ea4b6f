"""The operators that have kernels of their own, each a dataclass that lowers itself.

A converter of `frontend/converters` gives a node such an operator. To add one, write

1. a dataclass in a file of this folder with `lower(lowering, arguments, result)`, which appends steps to the builder
   and returns the value. A kernel that is the same on every device is a TIR function beside it, over a range of work
   items; what devices do in ways of their own is a method of `compiler.backend.Backend`;
2. its converter.
"""
