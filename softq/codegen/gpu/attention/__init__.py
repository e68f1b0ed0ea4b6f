"""Attention in one kernel, memory O(N): products on tensor cores, weights by codes of the distance from the maximum."""

from softq.codegen.gpu.attention.codes import Codes, codes_of
from softq.codegen.gpu.attention.codes_kernel import write_attention
from softq.codegen.gpu.attention.tiles import Shape

__all__ = ["Codes", "Shape", "codes_of", "write_attention"]
