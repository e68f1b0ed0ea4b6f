"""Softmaxes and attentions as modules: their fitted or learned numbers are part of a model's state."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, Fitted, OptionValue
from softq.torch.functional import Weighing, attention, softmax, weighing
from softq.torch.gradients import Backward


class _Weighs(nn.Module):
    """A method whose run-time parameters are buffers, or parameters where they are learned.

    Args:
        method: Name of the method.
        backward: What gradients go through, as in `softq.torch.weighing`.
        fitted: Numbers for options that say `site` or `head`, as plans hold them.
        learn: Names of those of them that are learned; the program has to take them as they are, and to be smooth.
        **settings: Options of the method.

    Raises:
        UsageError: as in `softq.torch.weighing`; an option to be learned is not fitted, becomes a table, or belongs to
            a method that rounds.
    """

    def __init__(
        self, method: str = DEFAULT_METHOD, *, backward: Backward = "auto", fitted: Fitted | None = None,
        learn: tuple[str, ...] = (), **settings: OptionValue,
    ) -> None:  # fmt: skip
        super().__init__()
        made = weighing(method, backward=backward, fitted=fitted, **settings)
        self._weighing = made
        for name in learn:
            if name not in made.params or name not in made.options.fitted or not made.smooth:
                able = [one for one in made.options.fitted if one in made.params] if made.smooth else []
                raise UsageError(f"{method}: {name} cannot be learned; with these options {able or 'nothing'} can")
        self._names = tuple(made.params)
        self._limits = {param.name: (param.low, param.high) for param in made.weigh.params}
        self._learned = frozenset(learn)
        for name, value in made.params.items():
            if name in self._learned:
                self.register_parameter(name, nn.Parameter(value.clone()))
            else:
                self.register_buffer(name, value.clone())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _Weighs:
        """Return the module elsewhere, with its numbers in the types that the program takes: not in half precision."""

        def keep_type(x: Tensor) -> Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        return super()._apply(keep_type, recurse)  # pyright: ignore[reportPrivateUsage]

    @property
    def method(self) -> Weighing:
        """The method with the numbers that the module has now, learned ones within their limits."""
        return self._weighing.with_params({name: self._number(name) for name in self._names})

    def _number(self, name: str) -> Tensor:
        value = self.get_parameter(name) if name in self._learned else self.get_buffer(name)
        return value.clamp(*self._limits[name]) if name in self._learned else value

    def fitted(self) -> Fitted:
        """Return the numbers of options that are learned, as plans hold them: one, or one per head."""
        found: dict[str, float | tuple[float, ...]] = {}
        for name in sorted(self._learned):
            numbers = tuple(map(float, self._number(name).detach().flatten()))
            found[name] = numbers if self._weighing.options.fitted[name] == "head" else numbers[0]
        return found

    def extra_repr(self) -> str:
        """Return what stands in the printed module."""
        options = ", ".join(f"{k}={v}" for k, v in self._weighing.options.to_json().items())
        return f"{self._weighing.method.name}, {options}, backward={self._weighing.backward}"


class Softmax(_Weighs):
    """`torch.nn.Softmax` by a method; numbers per head hold for the third axis from the end.

    Args:
        dim: The axis.
        method: Name of the method; the other arguments are those of `softq.torch.weighing`, and `learn`.
    """

    def __init__(self, dim: int = -1, method: str = DEFAULT_METHOD, **options: object) -> None:
        super().__init__(method, **options)  # pyright: ignore[reportArgumentType]
        self.dim = dim

    def forward(self, scores: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return what `softq.torch.softmax` returns."""
        return softmax(scores, self.dim, method=self.method, valid=valid)


class Attention(_Weighs):
    """`softq.torch.attention` as a module: its arguments, but for the method, are those of the call."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        softcap: float | None = None, sinks: Tensor | None = None, block: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Return what `softq.torch.attention` returns; nothing is dropped in evaluation mode."""
        return attention(
            query, key, value, attn_mask, dropout_p if self.training else 0.0, is_causal, scale, enable_gqa,
            method=self.method, softcap=softcap, sinks=sinks, block=block,
        )  # fmt: skip
