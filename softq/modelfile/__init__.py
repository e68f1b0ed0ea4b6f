"""Model files: reading what may be hostile, writing whole or not at all, and hashes that never read gigabytes.

Weights of a model with external data stay on disk: `load` checks where each tensor lies and maps it when it is read,
`save` refers to the same file or copies it as a stream. Memory and time do not grow with the weights.
"""

from __future__ import annotations

from softq.modelfile.hashing import graph_hash, proto_without_weights, weights_fingerprint
from softq.modelfile.reading import ModelLike, as_model, check_functions, check_path, load
from softq.modelfile.writing import check_output, data_files, save

__all__ = [
    "ModelLike",
    "as_model",
    "check_functions",
    "check_output",
    "check_path",
    "data_files",
    "graph_hash",
    "load",
    "proto_without_weights",
    "save",
    "weights_fingerprint",
]
