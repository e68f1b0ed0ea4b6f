"""Kernels as portable C: TIR functions as the text of C99 functions."""
