"""Kernels from row programs, products and attentions, one folder for each device language."""
