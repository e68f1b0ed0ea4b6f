"""Golden vectors: rows of scores and what a method's program makes of them, for checking kernels made elsewhere.

The rows are there to break kernels: random ones of several spreads, ties, the longest distances, each distance or the
boundaries of the codes, infinities, NaN, masks, rows of no and of one element. docs/vectors.md says how to use them.
"""

from softq.vectors.making import DEFAULT_LENGTHS, Vectors, vectors
from softq.vectors.writing import write_vectors

__all__ = ["DEFAULT_LENGTHS", "Vectors", "vectors", "write_vectors"]
