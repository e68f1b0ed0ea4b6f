"""How fast kernels and models run on this processor, each beside its rivals in one process."""
