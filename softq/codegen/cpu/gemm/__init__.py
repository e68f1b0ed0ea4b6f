"""Products of matrices on processors."""
