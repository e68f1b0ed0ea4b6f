"""Artifacts for devices with memory and threads of their own: kernels, and the list of their launches."""
