"""Accuracy versus bit width: every setting measured, each site alone, and a plan under a budget."""
