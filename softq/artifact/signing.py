"""Who built an artifact: an Ed25519 signature (RFC 8032) of its manifest, which holds the hash of every other file.

Keys are PEM files of `openssl genpkey -algorithm ed25519`; the signature is that of `openssl pkeyutl -rawin`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from softq.artifact import manifest
from softq.errors import InputError, UsageError
from softq.files import open_regular
from softq.scratch import scratch_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Signer: TypeAlias = Callable[[bytes], bytes]
"""Returns the signature of a manifest's bytes."""

_MISSING = "signatures need cryptography; install it with: pip install 'softq[sign]'"
_MOST_KEY_BYTES = 1 << 16
_CHUNK = 1 << 22


def signer(path: str | os.PathLike[str]) -> Signer:
    """Return what signs with the private key of a PEM file.

    Raises:
        UsageError: cryptography is not installed.
        InputError: the file cannot be read, or holds no private Ed25519 key that needs no passphrase.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise UsageError(_MISSING) from error
    text = _read(Path(path), _MOST_KEY_BYTES)
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:
        raise InputError(f"key '{path}' has a passphrase; sign what was built with openssl pkeyutl -sign") from error
    except Exception as error:
        raise InputError(f"'{path}' holds no private Ed25519 key in PEM form") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"'{path}' holds no private Ed25519 key in PEM form")
    return key.sign


def _public_key(path: str | os.PathLike[str]) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise UsageError(_MISSING) from error
    text = _read(Path(path), _MOST_KEY_BYTES)
    try:
        key = load_pem_public_key(text)
    except Exception as error:
        raise InputError(f"'{path}' holds no public Ed25519 key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"'{path}' holds no public Ed25519 key in PEM form")
    return key


@contextmanager
def signed_copy(folder: Path, public_key: str | os.PathLike[str]) -> Generator[Path]:
    """Give a copy of an artifact whose manifest is signed; it is removed in the end.

    The copy, where only this user can write, is what is compared with the manifest and opened afterwards: who changes
    the artifact meanwhile changes nothing of it.

    Args:
        folder: The artifact.
        public_key: PEM file of the key by which its manifest must be signed.

    Raises:
        UsageError: cryptography is not installed.
        InputError: the key cannot be used; the folder is no artifact, it is not signed, or not by that key; a file is
            missing or of another size; or there is no room for the copy.
    """
    key = _public_key(public_key)
    if not (folder / manifest.NAME).exists():
        manifest.read(folder, kind=None)  # says what is wrong
    text = _read(folder / manifest.NAME, manifest.MOST_BYTES)
    if not (folder / manifest.SIGNATURE).exists():
        raise InputError(f"{folder}: is not signed: it has no {manifest.SIGNATURE}")
    signature = _read(folder / manifest.SIGNATURE, _MOST_KEY_BYTES)
    try:
        key.verify(signature, text)
    except Exception as error:  # InvalidSignature, and what a signature of another length raises
        raise InputError(
            f"{folder}: is not signed by the key of '{public_key}', or {manifest.NAME} was changed"
        ) from error
    with scratch_folder() as copy:
        (copy / manifest.NAME).write_bytes(text)
        files = cast("Mapping[str, Mapping[str, int]]", manifest.read(copy, kind=None)["files"])
        try:
            for name, facts in files.items():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                _copy(folder / name, copy / name, facts["bytes"])
        except OSError as error:
            raise InputError(f"{error.filename or folder}: cannot be copied: {error.strerror or error}") from error
        yield copy


def _read(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file, at most so many."""
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from error
    if len(data) > most:
        raise InputError(f"'{path}' has more than {most} bytes")
    return data


def _copy(source: Path, target: Path, size: int) -> None:
    """Copy as many bytes as the manifest says; one more shows that there are more."""
    with open_regular(source) as file, open(target, "xb") as to:
        left = size + 1
        while left and (piece := file.read(min(left, _CHUNK))):
            to.write(piece)
            left -= len(piece)
