"""Convolutions and pools of images: kernels for few channels, for one channel per group, and for many."""
