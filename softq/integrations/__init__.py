"""softq inside other people's tools, one per file; each imports its tool, and nothing else of softq imports any.

What needs PyTorch itself is in `softq.torch`. docs/integrations.md says how each is used, and `make integrations` tries
each in an environment of its own.
"""
