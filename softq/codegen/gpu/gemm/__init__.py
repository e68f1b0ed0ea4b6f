"""Products of matrices: of float16 on tensor cores, of float32 and 8-bit integers in SIMT form; GEMV for few rows."""

from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, FusedEpilogue
from softq.codegen.gpu.gemm.gemm import Gemm, pad_rows, write_gemm
from softq.codegen.gpu.gemm.kernel import Operands

__all__ = ["PLAIN", "FusedEpilogue", "Gemm", "Operands", "pad_rows", "write_gemm"]
