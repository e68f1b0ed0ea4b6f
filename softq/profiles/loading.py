"""Finding profiles: by listing this folder, or by the path of a file."""

from __future__ import annotations

from pathlib import Path

from softq.errors import InputError, UsageError
from softq.files import read_toml
from softq.nearest import unknown
from softq.profiles.schema import Profile, parse_profile

FOLDER = Path(__file__).parent
_SUFFIX = ".toml"


def profile_names() -> list[str]:
    """Return the names of the profiles that come with softq."""
    return sorted(path.stem for path in FOLDER.glob(f"*{_SUFFIX}"))


def load_profile(name: str) -> Profile:
    """Return a profile.

    Args:
        name: Its name, or the path of a file (`my_npu.toml`), whose profile has the file's name, with hyphens.

    Raises:
        UsageError: there is none; the message names those nearest to it.
        InputError: the file cannot be read, or is no profile; the message names it.
    """
    own = name.endswith(_SUFFIX)
    if not own and name not in profile_names():
        raise UsageError(unknown("profile", name, profile_names(), "softq profiles"))
    path = Path(name) if own else FOLDER / f"{name}{_SUFFIX}"
    try:
        table = read_toml(path)
    except OSError as error:
        raise InputError(f"profile {name}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"profile {name} is no TOML: {error}") from error
    return parse_profile(table, path.stem.replace("_", "-"), name if own else path.name)
