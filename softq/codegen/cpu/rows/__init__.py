"""Kernels of row programs for processors: TIR functions with plain pointers."""

from softq.codegen.cpu.rows.kernel_function import RowKernel, row_kernel

__all__ = ["RowKernel", "row_kernel"]
