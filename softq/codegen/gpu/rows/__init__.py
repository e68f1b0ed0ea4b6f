"""Kernels of row programs for GPUs, as text."""

from softq.codegen.gpu.rows.form import Form
from softq.codegen.gpu.rows.kernel import RowKernel, row_kernel

__all__ = ["Form", "RowKernel", "row_kernel"]
