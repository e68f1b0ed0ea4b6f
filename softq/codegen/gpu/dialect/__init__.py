"""The languages that GPU kernels are written in."""
