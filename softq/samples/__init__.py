"""Arrays that fit a model's inputs: made up, or of images, texts and arrays of a user's own."""

from softq.samples.casting import cast_arrays
from softq.samples.images import ImageOptions, read_images
from softq.samples.inputs import Input, find_inputs
from softq.samples.made_up import make_up
from softq.samples.skeleton import skeleton
from softq.samples.texts import read_texts
from softq.samples.writing import write_arrays

__all__ = [
    "ImageOptions",
    "Input",
    "cast_arrays",
    "find_inputs",
    "make_up",
    "read_images",
    "read_texts",
    "skeleton",
    "write_arrays",
]
