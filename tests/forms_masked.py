"""Models of one mask each: how exporters write masks, what a fully masked row is, and which masks can be lifted."""

from __future__ import annotations

from typing import TypedDict

from tests.forms import Case

_KEEP = "bool[2,1,4,5] keep"
_BOTH = f"{_KEEP}, bool[2,1,1,5] padding"
_BIAS = f"{_KEEP}, float[3,4,5] bias"
_LOW = "low = -3.4028234663852886e38"
_END = "p = Softmax<axis = 3>(s); z = MatMul(p, v)"
_V = "float[2,3,5,6] v"


class _Found(TypedDict):
    mask: str
    lifted: bool


_LIFTED: _Found = {"mask": "where", "lifted": True}


def _case(
    body: str, inputs: str, row: str = "nan", *, mask: str = "additive", lifted: bool = False, declared: str = ""
) -> Case:
    return Case(
        "softmax",
        f"{body}; {_END}",
        (14, 18, 23),
        inputs=f"{inputs}, {_V}" if inputs else _V,
        out=(2, 3, 4, 6),
        mask=mask,
        row=row,
        lifted=lifted,
        masks=(declared,) if declared else (),
    )


MASKED: dict[str, Case] = {
    # Where
    "where -inf": _case("i = -inf; s = Where(keep, x, i)", _KEEP, **_LIFTED),
    "where -inf, inverted": _case("i = -inf; n = Not(keep); s = Where(n, i, x)", _KEEP, **_LIFTED),
    "where least": _case(f"{_LOW}; s = Where(keep, x, low)", _KEEP, "uniform", mask="where"),
    "where -1e4": _case("c = -10000.0; s = Where(keep, x, c)", _KEEP, "uniform", mask="where"),
    "where minimum less 1e4": _case(
        "c = -10000.0; l = ReduceMin(x); m = Add(l, c); s = Where(keep, x, m)", _KEEP, "uniform", mask="where"
    ),
    "where, expanded": _case(
        "k = [2, 3, 4, 5]; e = Expand(keep, k); i = -inf; j = Expand(i, k); s = Where(e, x, j)",
        _KEEP, **_LIFTED,
    ),
    # Add
    "add -inf": _case("i = -inf; o = 0.0; b = Where(keep, o, i); s = Add(x, b)", _KEEP, lifted=True),
    "add -inf in front": _case("i = -inf; o = 0.0; b = Where(keep, o, i); s = Add(b, x)", _KEEP, lifted=True),
    "add least": _case(f"{_LOW}; o = 0.0; b = Where(keep, o, low); s = Add(x, b)", _KEEP, "uniform"),
    "add -1e4": _case(
        "f = Cast<to = 1>(ints); o = 1.0; n = Sub(o, f); c = -10000.0; b = Mul(n, c); s = Add(x, b)",
        "int64[2,1,4,5] ints", "scores",
    ),
    "add -1e9": _case(
        "n = Not(keep); f = Cast<to = 1>(n); c = -1e9; b = Mul(f, c); s = Add(x, b)", _KEEP, "scores"
    ),
    "add, clipped": _case(
        f"n = Not(keep); f = Cast<to = 1>(n); c = -1e38; b = Mul(f, c); o = 0.0; {_LOW}; d = Clip(b, low, o)\n"
        "s = Add(x, d)",
        _KEEP, "uniform",
    ),
    "add, bounded": _case(
        f"i = -inf; o = 0.0; b = Where(keep, o, i); {_LOW}; d = Max(b, low); s = Add(x, d)", _KEEP, "uniform"
    ),
    "causal by trilu": _case(
        "k = [4, 5]; one = 1.0; e = Expand(one, k); t = Trilu<upper = 0>(e); b = Cast<to = 9>(t); i = -inf\n"
        "s = Where(b, x, i)",
        "", **_LIFTED,
    ),
    "causal by range": _case(
        "k = [0, 1, 2, 3, 4]; q = [0, 1, 2, 3]; u = Unsqueeze[1](q); b = LessOrEqual(k, u); i = -inf; o = 0.0\n"
        "m = Where(b, o, i); s = Add(x, m)",
        "", lifted=True,
    ),
    # What is added besides
    "bias": _case("s = Add(x, bias)", "float[3,4,5] bias", mask="unproven"),
    "bias under the mask": _case("y = Add(x, bias); i = -inf; s = Where(keep, y, i)", _BIAS, **_LIFTED),
    "bias over the mask": _case("i = -inf; y = Where(keep, x, i); s = Add(y, bias)", _BIAS, **_LIFTED),
    "bias over a finite mask": _case(
        "c = -1e9; y = Where(keep, x, c); s = Add(y, bias)", _BIAS, "scores", mask="where"
    ),
    "bias where kept": _case("i = -inf; b = Where(keep, bias, i); s = Add(x, b)", _BIAS, lifted=True),
    "bias and mask added first": _case(
        "i = -inf; o = 0.0; m = Where(keep, o, i); b = Add(bias, m); s = Add(x, b)", _BIAS, lifted=True
    ),
    "slopes": _case(
        "k = [0, 1, 2, 3, 4]; f = Cast<to = 1>(k); c = -0.25; b = Mul(f, c); y = Add(x, b); i = -inf\n"
        "s = Where(keep, y, i)",
        _KEEP, **_LIFTED,
    ),
    # Several, and around other operators
    "causal and padding": _case(
        "i = -inf; o = 0.0; m = Where(padding, o, i); y = Add(x, m); s = Where(keep, y, i)", _BOTH, **_LIFTED
    ),
    "two added": _case(
        "i = -inf; o = 0.0; m = Where(padding, o, i); n = Where(keep, o, i); y = Add(x, m); s = Add(y, n)",
        _BOTH, lifted=True,
    ),
    "bias between two": _case(
        "i = -inf; m = Where(padding, x, i); y = Add(bias, m); s = Where(keep, y, i)",
        f"{_BOTH}, float[3,4,5] bias", **_LIFTED,
    ),
    "finite under -inf": _case(
        "c = -1e9; i = -inf; y = Where(padding, x, c); s = Where(keep, y, i)", _BOTH, **_LIFTED
    ),
    "-inf under finite": _case(
        "c = -1e9; i = -inf; y = Where(keep, x, i); s = Where(padding, y, c)", _BOTH, "uniform", mask="where"
    ),
    "scaled behind": _case("i = -inf; y = Where(keep, x, i); c = 0.125; s = Mul(y, c)", _KEEP, **_LIFTED),
    "softcap in front": _case(
        "c = 30.0; d = Div(x, c); t = Tanh(d); y = Mul(t, c); i = -inf; s = Where(keep, y, i)", _KEEP, **_LIFTED
    ),
    "softcap behind": _case(
        "c = 30.0; i = -inf; y = Where(keep, x, i); d = Div(y, c); t = Tanh(d); s = Mul(t, c)", _KEEP, mask="none"
    ),
    # What is computed at run time
    "soft mask": _case("s = Add(x, soft)", "float[2,1,4,5] soft", mask="unproven"),
    "soft mask, declared": _case("s = Add(x, soft)", "float[2,1,4,5] soft", "scores", lifted=True, declared="soft"),
    "hard mask, declared": _case("s = Add(hard, x)", "float[2,1,4,5] hard", "scores", lifted=True, declared="hard"),
}  # fmt: skip
