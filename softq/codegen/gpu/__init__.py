"""Kernels for GPUs, as text in CUDA C++ or OpenCL C."""
