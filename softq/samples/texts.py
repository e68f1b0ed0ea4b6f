"""Lines of text as the tokens that a model takes."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from softq.address_space import ApartError, run_apart
from softq.data import Array
from softq.errors import InputError, UsageError
from softq.files import read_text
from softq.limits import current
from softq.samples.inputs import Input

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_LENGTH = 128
"""Tokens of a sample, where neither the model nor the user says."""

_MEMORY, _SPEED = 256, 100_000
"""Bytes of memory that a byte of text may take as tokens, and bytes of text for which a second more is given."""


def read_texts(
    inputs: Sequence[Input], file: str, tokenizer: str, *, length: int | None = None, count: int | None = None
) -> dict[str, Array]:
    """Return the tokens of a text in UTF-8, with the masks, segments and positions that the model takes beside them.

    A model with a mask takes a line per sample, cut or filled up to `length` tokens. Another cannot tell what is filled
    up, so the text is one row of tokens, cut into samples of `length`; what is left over at its end is left out.

    Args:
        inputs: What the model takes.
        file: The text.
        tokenizer: A tokenizer.json, as Hugging Face's tokenizers write it.
        length: Tokens of a sample: the model's, else 128 by default.
        count: So many samples at most.

    Raises:
        InputError: a file cannot be used, the text is too short, or a token is none of the model's.
        UsageError: the model has not one input of tokens, or inputs that a text does not give; the model fixes another
            length; or tokenizers is not installed.
    """
    ids = [one for one in inputs if one.role == "indices"]
    usual = ("indices", "mask", "segments", "positions")
    strange = [one.name for one in inputs if one.role not in (usual[3:] if one.shared else usual)]
    if len(ids) != 1 or strange or any(len(one.shape) != 2 - one.shared for one in inputs):
        wanted = "tokens [N,L], and perhaps their mask, segments and positions"
        raise UsageError(f"the model takes {', '.join(f'{one.name} {one}' for one in inputs)}; a text gives {wanted}")
    chosen = _length(inputs, length)
    if importlib.util.find_spec("tokenizers") is None:
        raise UsageError("texts need tokenizers: pip install 'softq[data]'")
    coder, lines = _read(tokenizer), [line for line in _read(file).splitlines() if line.strip()]
    masked = any(one.role == "mask" for one in inputs)
    arrays = _ask_tokenizer(tokenizer, coder, lines[:count] if masked else lines, chosen, masked)
    if not masked:
        arrays = {"indices": arrays["indices"][:count], "segments": arrays["segments"][:count]}
    arrays["positions"] = np.broadcast_to(np.arange(chosen), arrays["indices"].shape)
    if not len(arrays["indices"]):
        raise InputError(f"{file}: has too little text for a sample of {chosen} tokens")
    if ids[0].bound is not None and (most := int(arrays["indices"].max())) >= ids[0].bound:
        raise InputError(f"{tokenizer}: gives token {most}; the model has {ids[0].bound}: it is of another model")
    return {one.array: (arrays[one.role][0] if one.shared else arrays[one.role]).astype(one.dtype) for one in inputs}


def _length(inputs: Sequence[Input], length: int | None) -> int:
    fixed = {one.shape[-1] for one in inputs if isinstance(one.shape[-1], int)}
    if fixed and length not in (None, *fixed):
        raise UsageError(f"length is {length}; the model takes {max(fixed)} tokens")
    chosen = max(fixed, default=length or DEFAULT_LENGTH)
    if chosen < 1:
        raise UsageError(f"length is {chosen}; a sample has at least 1 token")
    return chosen


def _read(file: str) -> str:
    try:
        return read_text(file)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file!r}: {error}") from error


def _ask_tokenizer(file: str, coder: str, lines: Sequence[str], length: int, masked: bool) -> dict[str, Array]:
    """Return tokens, segments and masks, [samples, length], made in a process of its own, as tokenizers can grow."""
    asked = json.dumps({"tokenizer": coder, "lines": list(lines), "length": length, "masked": masked}).encode()
    size, limits = sum(map(len, lines)), current()
    try:
        data = run_apart(encode_texts, asked, limits.memory + _MEMORY * size, limits.seconds + size // _SPEED)
    except ApartError as error:
        why = f"needs more than {error.limit} for the text" if error.limit else f"is no tokenizer: {error}"
        raise InputError(f"{file}: {why}") from error
    arrays = np.frombuffer(data, np.int64).reshape(3, -1, length)
    return dict(zip(("indices", "segments", "mask"), arrays, strict=True))


def encode_texts(source: BinaryIO, out: BinaryIO) -> None:
    """Write tokens, segments and masks of the text that a JSON text holds (`softq.address_space.Work`)."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    asked = json.load(source)
    coder, length = Tokenizer.from_str(asked["tokenizer"]), asked["length"]
    coder.no_truncation()
    coder.no_padding()
    encode: Any = _encode_lines if asked["masked"] else _encode_row
    for array in encode(coder, asked["lines"], length):
        out.write(array)


def _encode_lines(coder: Tokenizer, lines: Sequence[str], length: int) -> list[bytes]:
    padding = coder.token_to_id("[PAD]") or coder.token_to_id("<pad>") or 0
    coder.enable_truncation(length)
    coder.enable_padding(length=length, pad_id=padding)
    encodings = coder.encode_batch(list(lines))
    kinds = ("ids", "type_ids", "attention_mask")
    return [np.array([getattr(line, kind) for line in encodings], np.int64).tobytes() for kind in kinds]


def _encode_row(coder: Tokenizer, lines: Sequence[str], length: int) -> list[bytes]:
    tokens = coder.encode("\n".join(lines), add_special_tokens=False).ids
    ids = np.array(tokens[: len(tokens) // length * length], np.int64)
    return [ids.tobytes(), np.zeros_like(ids).tobytes(), np.ones_like(ids).tobytes()]
