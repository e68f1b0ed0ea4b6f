"""Lines of text as the tokens that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from softq.data import Array
from softq.errors import InputError, UsageError
from softq.files import read_text
from softq.samples.inputs import Input

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

DEFAULT_LENGTH = 128
"""Tokens of a sample, where neither the model nor the user says."""


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
    strange = [one.name for one in inputs if one.role not in ("indices", "mask", "segments", "positions")]
    if len(ids) != 1 or strange or any(len(one.shape) != 2 for one in inputs):
        wanted = "tokens [N,L], and perhaps their mask, segments and positions"
        raise UsageError(f"the model takes {', '.join(f'{one.name} {one}' for one in inputs)}; a text gives {wanted}")
    chosen = _length(inputs, length)
    coder = _open_tokenizer(tokenizer)
    lines = [line for line in _read(file).splitlines() if line.strip()]
    masked = any(one.role == "mask" for one in inputs)
    found = _by_line(coder, lines[:count], chosen) if masked else _in_one_row(coder, lines, chosen, count)
    if not len(found["indices"]):
        raise InputError(f"{file}: has too little text for a sample of {chosen} tokens")
    if ids[0].bound is not None and (most := int(found["indices"].max())) >= ids[0].bound:
        raise InputError(f"{tokenizer}: gives token {most}; the model has {ids[0].bound}: it is of another model")
    return {one.name: found[one.role].astype(one.dtype) for one in inputs}


def _length(inputs: Sequence[Input], length: int | None) -> int:
    fixed = {one.shape[1] for one in inputs if isinstance(one.shape[1], int)}
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


def _open_tokenizer(file: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError("texts need tokenizers: pip install 'softq[data]'") from None
    try:
        coder = Tokenizer.from_str(_read(file))
    except InputError:
        raise
    except Exception as error:  # tokenizers raises no other class
        raise InputError(f"{file}: is no tokenizer: {error}") from error
    coder.no_truncation()
    coder.no_padding()
    return coder


def _by_line(coder: Tokenizer, lines: Sequence[str], length: int) -> dict[str, Array]:
    padding = coder.token_to_id("[PAD]") or coder.token_to_id("<pad>") or 0
    coder.enable_truncation(length)
    coder.enable_padding(length=length, pad_id=padding)
    return _arrays(coder.encode_batch(list(lines)), length)


def _in_one_row(coder: Tokenizer, lines: Sequence[str], length: int, count: int | None) -> dict[str, Array]:
    tokens = coder.encode("\n".join(lines), add_special_tokens=False).ids
    samples = min(len(tokens) // length, len(tokens) if count is None else count)
    ids = np.array(tokens[: samples * length], np.int64).reshape(samples, length)
    return {"indices": ids, "segments": np.zeros_like(ids), "positions": _positions(ids)}


def _arrays(encodings: Sequence[Encoding], length: int) -> dict[str, Array]:
    shape = (len(encodings), length)
    ids = np.array([one.ids for one in encodings], np.int64).reshape(shape)
    return {
        "indices": ids,
        "mask": np.array([one.attention_mask for one in encodings], np.int64).reshape(shape),
        "segments": np.array([one.type_ids for one in encodings], np.int64).reshape(shape),
        "positions": _positions(ids),
    }


def _positions(ids: Array) -> Array:
    return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
