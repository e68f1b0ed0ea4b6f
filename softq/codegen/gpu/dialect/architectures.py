"""What GPUs of an architecture have."""

from __future__ import annotations

import re

_SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
"""Most shared memory of a block by compute capability, for those who ask for it (CUDA C++ Programming Guide, compute
capabilities, "maximum amount of shared memory per thread block"). There is 1 KiB more on a multiprocessor."""

_EVERYWHERE_KIB = 48
"""What every architecture gives a block (the guide: more than that has to be asked for, an architecture at a time)."""


def shared_bytes(arch: str) -> int:
    """Return the most shared memory that a block may have on an architecture such as `sm_90`.

    A device that is not as large takes the same code: the drivers start what fits the device that they find.
    """
    found = re.fullmatch(r"sm_(\d+)\w?", arch)
    assert found is not None, arch
    return _SHARED_KIB.get(int(found[1]), _EVERYWHERE_KIB) << 10
