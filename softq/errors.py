"""The errors that softq raises on purpose: one base class, and a child for each thing that a caller can do about it."""

from softq.visible import visible


class SoftqError(Exception):
    """Base of every error that softq raises on purpose; its text is one line that a user can act on."""

    def __init__(self, text: str = "") -> None:
        # Names out of files are in it.
        super().__init__(visible(text))


class UsageError(SoftqError):
    """An argument is wrong: an unknown name, a value out of range, a combination that means nothing."""


class InputError(SoftqError):
    """A file or array cannot be used: missing, damaged, hostile, or of the wrong name, shape or type."""


class RefusalError(SoftqError):
    """The request is well formed, but softq will not produce a result that it cannot vouch for."""


class ProofError(SoftqError):
    """A row program has no complete proof: an integer could overflow, a shift reach the width, a divisor be 0."""


def root_cause(error: BaseException) -> BaseException:
    """Return the error that led to all others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def root_line(error: BaseException, most: int) -> str:
    """Return at most `most` characters of the text of the error that led to all others, its name if it has no text."""
    cause = root_cause(error)
    return " ".join(str(cause).split())[:most] or type(cause).__name__
