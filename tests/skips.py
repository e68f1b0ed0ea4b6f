"""Reasons that a test may be skipped for where `--fail-on-skip` counts every other skip as a failure, as CI does.

A reason is a regular expression that matches all of the text that a test gives. A program that Debian or PyPI has is no
reason: `.ci/run` installs it.
"""

from __future__ import annotations

import re

OTHER_PROCESSOR = "needs an x86-64 processor"

ALLOWED = {
    r"qemu-riscv64 is older than version 8 .*": "Debian 12 has version 7.2, which ends in an assertion at vectors",
    OTHER_PROCESSOR: "the kernels are machine code that only such a processor runs",
    r"no PoCL here compiles for .*": "the LLVM of PoCL's releases is older than the newest processors",
    r"could not import '(finn|hls4ml|litex)\b.*": "make integrations installs each in an environment of its own",
}
"""Why a test may be skipped, by the reasons that say so."""


def is_allowed(reason: str) -> bool:
    """Say whether a test that is skipped for a reason may be."""
    return any(re.fullmatch(pattern, reason) for pattern in ALLOWED)
