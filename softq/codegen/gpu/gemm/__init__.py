"""Products of matrices: of halves on tensor cores, of float32 and bytes on ordinary ones; a form for few rows."""

from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, Finish
from softq.codegen.gpu.gemm.operands import Operands, padded
from softq.codegen.gpu.gemm.variants import Product, product

__all__ = ["PLAIN", "Finish", "Operands", "Product", "padded", "product"]
