"""Kernels of row programs for GPUs, as text."""

from softq.codegen.gpu.rows.kernel_function import RowKernel, row_kernel
from softq.codegen.gpu.rows.tiling import Tiling

__all__ = ["RowKernel", "Tiling", "row_kernel"]
