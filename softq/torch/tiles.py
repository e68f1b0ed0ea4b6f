"""Scores of some queries and keys at a time, for what has to be known before flex_attention's kernel runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

_KEYS = 1024
_SCORES = 1 << 22
"""Scores held at a time while the scalars of rows are found: 16 MiB as float32, and a few times that."""


class Scores:
    """Scores of some queries and keys at a time, [batch, heads, l, s], f32, masked ones -inf."""

    def __init__(
        self, query: Tensor, key: Tensor, scale: float, score_mod: ScoreMod | None, mask: BlockMask | None
    ) -> None:
        self.query, self.key, self.scale, self.score_mod, self.mask = query, key, scale, score_mod, mask
        self.lead, self.rows, self.keys = query.shape[:2], query.shape[-2], key.shape[-2]
        device = query.device
        self._batch = torch.arange(self.lead[0], device=device).reshape(-1, 1, 1, 1)
        self._head = torch.arange(self.lead[1], device=device).reshape(-1, 1, 1)
        if mask is not None:
            columns = -(-self.keys // mask.BLOCK_SIZE[1])
            self._partial = _blocks(mask.kv_num_blocks, mask.kv_indices, columns)
            self._whole = (
                torch.zeros_like(self._partial)
                if mask.full_kv_num_blocks is None or mask.full_kv_indices is None
                else _blocks(mask.full_kv_num_blocks, mask.full_kv_indices, columns)
            )

    @property
    def may_be_masked(self) -> bool:
        """Whether a score may be -inf."""
        return self.mask is not None or self.score_mod is not None

    def of_no_keys(self) -> Tensor:
        """Return the scores of no keys."""
        return self.query.new_empty((*self.lead, self.rows, 0), dtype=torch.float32)

    def tiles(self) -> Iterator[tuple[slice, list[slice]]]:
        """Yield queries, and all keys in parts."""
        rows, keys = self.mask.BLOCK_SIZE if self.mask is not None else (1, 1)
        step = _round_up(_KEYS, keys)
        height = _round_up(max(1, _SCORES // (math.prod(self.lead) * step)), rows)
        columns = [slice(at, min(at + step, self.keys)) for at in range(0, self.keys, step)]
        for at in range(0, self.rows, height):
            yield slice(at, min(at + height, self.rows)), columns

    def is_masked(self, rows: slice, keys: slice) -> bool:
        """Say whether the mask leaves none of a tile."""
        if self.mask is None:
            return False
        at = (..., *_block_slices(self.mask, rows, keys))
        return not bool((self._partial[at] | self._whole[at]).any())

    def __call__(self, rows: slice, keys: slice) -> Tensor:
        """Return the scores of a tile."""
        key = self.key[..., keys, :].float()
        key = key.repeat_interleave(self.lead[1] // key.shape[-3], -3)
        scores = self.query[..., rows, :].float() @ key.transpose(-2, -1) * self.scale
        place = (
            self._batch, self._head, torch.arange(rows.start, rows.stop, device=key.device)[:, None],
            torch.arange(keys.start, keys.stop, device=key.device),
        )  # fmt: skip
        if self.score_mod is not None:
            scores = self.score_mod(scores, *place).float()
        scores = scores.clamp(max=torch.finfo(torch.float32).max)  # as in the kernel, where inf - inf is not to be
        if self.mask is None:
            return scores
        at = (..., *_block_slices(self.mask, rows, keys))
        inside, whole = (self._each(blocks[at], rows, keys) for blocks in (self._partial, self._whole))
        return scores.masked_fill(~(whole | (inside & self.mask.mask_mod(*place))), -math.inf)

    def _each(self, blocks: Tensor, rows: slice, keys: slice) -> Tensor:
        assert self.mask is not None
        high, wide = self.mask.BLOCK_SIZE
        every = blocks.repeat_interleave(high, -2).repeat_interleave(wide, -1)
        return every[..., : rows.stop - rows.start, : keys.stop - keys.start]


def _blocks(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """Return which blocks of keys each block of queries has, [batch, heads, blocks of L, blocks of S], bool."""
    given = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    dense = torch.zeros(*counts.shape, columns + 1, dtype=torch.bool, device=indices.device)
    return dense.scatter(-1, torch.where(given, indices, columns).long(), True)[..., :columns]


def _block_slices(mask: BlockMask, rows: slice, keys: slice) -> tuple[slice, slice]:
    high, wide = mask.BLOCK_SIZE
    return slice(rows.start // high, -(-rows.stop // high)), slice(keys.start // wide, -(-keys.stop // wide))


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
