"""Attention on processors: one kernel for the products, the softmax and what is between them."""
