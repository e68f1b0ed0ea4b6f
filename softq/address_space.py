"""Asking for address space before libraries do, which end the process in their own way where there is too little."""

from __future__ import annotations

from softq.errors import UsageError


def check_address_space(least: int, what: str) -> None:
    """Refuse to begin where the process may not have so many bytes of address space.

    Args:
        least: The bytes that are needed.
        what: Who needs them, as the message says it.

    Raises:
        UsageError: its limit is lower.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and most < least:
        raise UsageError(
            f"{what} needs {least >> 20} MiB of address space; this process may have {most >> 20} (ulimit -v)"
        )
