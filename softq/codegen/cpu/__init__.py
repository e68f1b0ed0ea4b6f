"""Kernels for processors: TIR with plain pointers, compiled by LLVM."""
