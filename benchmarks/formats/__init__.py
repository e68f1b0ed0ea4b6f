"""Which format for P: the number formats of accelerators beside softq's codes, at the bits that a weight takes."""
