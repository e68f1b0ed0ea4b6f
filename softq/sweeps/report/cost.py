"""What a method needs at one site, by its program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a setting needs at one site, from its program alone.

    Attributes:
        setting: Number of the setting.
        site: The site.
        integer_only: Whether the method goes from 8-bit integer scores to weights without floats.
        float_operations: Float operations an element when the scores are floats.
        row_length: Elements of a row for which the widest integer is proved.
        widest_integer_bits: Bits of the widest integer; 0 if there are none.
        matrix_bytes: Bytes of the matrix of codes, packed, for one sample where the first axis has no number; null
            if the shape is not known.
        float_bytes: The same for a float32 matrix.
    """

    setting: int
    site: str
    integer_only: bool
    float_operations: int
    row_length: int
    widest_integer_bits: int
    matrix_bytes: int | None
    float_bytes: int | None
