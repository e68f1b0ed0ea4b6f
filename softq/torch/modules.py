"""Softmaxes and attentions as modules: their fitted or learned numbers are part of a model's state."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, Fitted, OptionValue
from softq.torch.curves import as_tensor
from softq.torch.functional import Weighing, attention, softmax, weighing
from softq.torch.gradients import Backward

_TABLE = "made_"
"""What the names of parameters that follow from the numbers begin with."""


class _Weighs(nn.Module):
    """A method whose fitted numbers are buffers, or parameters where they are learned.

    Tables that follow from the numbers are no part of the state: they are made of them.

    Args:
        method: Name of the method.
        backward: What gradients go through, as in `softq.torch.weighing`.
        fitted: Numbers for options that say `site` or `head`, as plans hold them.
        learn: Names of those of them that are learned.
        **settings: Options of the method.

    Raises:
        UsageError: as in `softq.torch.weighing`; an option to be learned is not fitted, or chooses one of a few.
    """

    def __init__(
        self, method: str = DEFAULT_METHOD, *, backward: Backward = "auto", fitted: Fitted | None = None,
        learn: tuple[str, ...] = (), **settings: OptionValue,
    ) -> None:  # fmt: skip
        super().__init__()
        made = weighing(method, backward=backward, fitted=fitted, **settings)
        numbers = {} if fitted is None else fitted
        # A smooth function takes such a number itself, and has its derivative.
        able = [name for name in numbers
                if (name in made.params if made.smooth else name not in dict(made.method.choices))]  # fmt: skip
        for name in learn:
            if name not in able:
                raise UsageError(f"{method}: {name} cannot be learned; with these options {able or 'nothing'} can")
        self._learned = frozenset(learn)
        for name, value in numbers.items():
            if name in self._learned:
                self.register_parameter(name, nn.Parameter(as_tensor(value).float()))
            else:
                self.register_buffer(name, as_tensor(value))
        self._names = tuple(numbers)
        self._weighing = made if made.smooth or not learn else made.with_params({})
        for name, value in self._weighing.params.items():
            if name not in self._learned:
                self.register_buffer(_TABLE + name, value.clone(), persistent=False)
        self.register_load_state_dict_post_hook(_make_tables)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _Weighs:
        """Return the module elsewhere, with its numbers in the types that the program takes: not in half precision."""

        def keep_type(x: Tensor) -> Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        return super()._apply(keep_type, recurse)  # pyright: ignore[reportPrivateUsage]

    @property
    def method(self) -> Weighing:
        """The method with the numbers that the module has now, learned ones within their limits."""
        if self._learned and not self._weighing.smooth:
            return self._weighing.with_numbers({name: self._number(name) for name in self._names})
        return self._weighing.with_params({
            name: self._number(name) if name in self._learned else self.get_buffer(_TABLE + name)
            for name in self._weighing.params
        })  # fmt: skip

    def _number(self, name: str) -> Tensor:
        if name not in self._learned:
            return self.get_buffer(name)
        value = self.get_parameter(name)
        within = value.detach().clamp(*self._weighing.curve.limits[name])
        # A number beyond its limit has the gradient at the limit, which may lead it back.
        return within + (value - value.detach())

    def fitted(self) -> Fitted:
        """Return the fitted and learned numbers as plans hold them: one, or one per head."""
        return {name: self._weighing.curve.plain(name, self._number(name)) for name in self._names}

    def extra_repr(self) -> str:
        """Return what stands in the printed module."""
        options = ", ".join(f"{k}={v}" for k, v in self._weighing.options.to_json().items())
        return f"{self._weighing.method.name}, {options}, backward={self._weighing.backward}"


def _make_tables(module: nn.Module, keys: object) -> None:
    """Make the tables of a module anew, after its numbers were loaded."""
    assert isinstance(module, _Weighs)
    made = module._weighing  # pyright: ignore[reportPrivateUsage]
    tables = dict(module.named_buffers())
    numbers = list(module.state_dict(keep_vars=True).values())
    if any(number.is_meta for number in numbers):
        return  # Nothing was loaded that tables could be made of.
    for name, value in made.curve.tensors(module.fitted()).items():
        table = tables.get(_TABLE + name)
        if table is not None and table.is_meta:
            module.register_buffer(_TABLE + name, value.to(numbers[0].device), persistent=False)
        elif table is not None:
            table.copy_(value)


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
