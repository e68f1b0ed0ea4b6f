"""The operators and the written-out forms, one small model each."""

from __future__ import annotations

from tests.forms import Case


def _operators() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for axis in (0, 1, 2, 3, -1, -3):
        attribute = f"<axis = {axis}>"
        flat = "softmax" if axis in {3, -1} else "softmax-flattened"
        cases[f"softmax axis {axis}"] = Case("softmax", f"z = Softmax{attribute}(x)", (13, 18, 26))
        cases[f"old softmax axis {axis}"] = Case(flat, f"z = Softmax{attribute}(x)", (7, 11, 12))
        cases[f"log-softmax axis {axis}"] = Case("log-softmax", f"z = LogSoftmax{attribute}(x)", logarithm=True)
        cases[f"old log of softmax axis {axis}"] = Case(
            flat, f"p = Softmax{attribute}(x); z = Log(p)", (11,), logarithm=True
        )
        cases[f"log of softmax axis {axis}"] = Case(
            "softmax", f"p = Softmax{attribute}(x); z = Log(p)", (13, 23), logarithm=True
        )
        cases[f"exp of log-softmax axis {axis}"] = Case(
            "exp-of-log-softmax", f"l = LogSoftmax{attribute}(x); z = Exp(l)"
        )
    cases["softmax default axis"] = Case("softmax", "z = Softmax(x)", (13, 18))
    cases["old softmax default axis"] = Case("softmax-flattened", "z = Softmax(x)", (7, 11, 12))
    cases["float16"] = Case("softmax", "z = Softmax<axis = 3>(x)", dtype="float16", rtol=2e-3, atol=1e-3)
    through = "w = Cast<to = 1>(x); p = Softmax<axis = 3>(w); z = Cast<to = 10>(p)"
    cases["float16 through float32"] = Case("softmax", through, dtype="float16", rtol=2e-3, atol=1e-3)
    cases["float16 logarithm"] = Case(
        "log-softmax", "z = LogSoftmax<axis = 3>(x)", dtype="float16", rtol=2e-3, atol=2e-2, logarithm=True
    )
    cases["logarithm behind a move"] = Case(
        "softmax",
        "p = Softmax<axis = 3>(x); q = Transpose<perm = [0, 2, 1, 3]>(p); z = Log(q)",
        out=(2, 4, 3, 5),
        logarithm=True,
    )
    return cases


_SHIFTED = "m = ReduceMax[-1](x); d = Sub(x, m); e = Exp(d)"
_SUMMED = f"{_SHIFTED}; t = ReduceSum[-1](e)"
_BARE = "e = Exp(x); t = ReduceSum[-1](e)"
_STRUCK = "m = ReduceMax[-1](x); d = Sub(x, m); g = Exp(d)"
_KEEP = "bool[2,1,4,5] keep"

_QUOTIENTS = {
    "last axis": f"{_SUMMED}; z = Div(e, t)",
    "axis 1": "m = ReduceMax[1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1](e); z = Div(e, t)",
    "absolute sum": f"{_SHIFTED}; t = ReduceL1[-1](e); z = Div(e, t)",
    "two axes": "m = ReduceMax[1, 3](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1, 3](e); z = Div(e, t)",
    "a greater maximum": "m = ReduceMax(x); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e); z = Div(e, t)",
    "narrow sum": f"{_SHIFTED}; t = ReduceSum[3]k0(e); u = Unsqueeze[3](t); z = Div(e, u)",
    "expanded": """
        m = ReduceMax[3]k0(x); n = Unsqueeze[3](m); s = Shape(x); w = Expand(n, s); d = Sub(x, w); e = Exp(d)
        t = ReduceSum[3]k0(e); u = Unsqueeze[3](t); y = Expand(u, s); z = Div(e, y)""",
    "channels last": """
        m = ReduceMax[1](x); xt = Transpose<perm = [0, 2, 3, 1]>(x); mt = Transpose<perm = [0, 2, 3, 1]>(m)
        d = Sub(xt, mt); e = Exp(d); ec = Transpose<perm = [0, 3, 1, 2]>(e); t = ReduceSum[1](ec)
        tt = Transpose<perm = [0, 2, 3, 1]>(t); p = Div(e, tt); z = Transpose<perm = [0, 3, 1, 2]>(p)""",
    "negligible epsilon": f"{_SUMMED}; c = 1e-9; u = Add(t, c); z = Div(e, u)",
    "epsilon": f"{_SUMMED}; c = 1e-3; u = Add(t, c); z = Div(e, u)",
    "bounded sum": f"{_SUMMED}; c = 1e-9; u = Max(t, c); z = Div(e, u)",
    "clipped sum": f"{_SUMMED}; c = 1e-9; u = Clip(t, c); z = Div(e, u)",
    "shared": f"{_SUMMED}; p = Div(e, t); w = Mul(e, t); z = Add(p, w)",
    "made twice": f"{_SHIFTED}; d2 = Sub(x, m); e2 = Exp(d2); t = ReduceSum[-1](e2); z = Div(e, t)",
    "identities": f"{_SHIFTED}; i = Identity(e); t = ReduceSum[-1](i); j = Identity(t); z = Div(i, j)",
}
_OVERFLOWING = {
    "no maximum": f"{_BARE}; z = Div(e, t)",
    "all axes": "e = Exp(x); t = ReduceSum(e); z = Div(e, t)",
    "reshaped sum": "e = Exp(x); t = ReduceSum[3]k0(e); k = [0, 0, 0, 1]; u = Reshape(t, k); z = Div(e, u)",
    "first axis dropped": "e = Exp(x); t = ReduceSum[0]k0(e); z = Div(e, t)",
    "power of two": "b = 2.0; l = 1.442695041; w = Mul(x, l); e = Pow(b, w); t = ReduceSum[-1](e); z = Div(e, t)",
    "power of e": "b = 2.718281828459045; e = Pow(b, x); t = ReduceSum[-1](e); z = Div(e, t)",
    "power below one": "b = 0.5; e = Pow(b, x); t = ReduceSum[-1](e); z = Div(e, t)",
    "scaled": "c = 0.35; w = Mul(x, c); e = Exp(w); t = ReduceSum[-1](e); z = Div(e, t)",
    "one in the sum": f"{_BARE}; c = 1.0; u = Add(c, t); z = Div(e, u)",
    "a quarter in the sum, axis 1": "e = Exp(x); t = ReduceSum[1](e); c = 0.25; u = Add(t, c); z = Div(e, u)",
}
_STRUCK_OUT = {
    "product": f"{_STRUCK}; f = Cast<to = 1>(keep); e = Mul(g, f); t = ReduceSum[-1](e); z = Div(e, t)",
    "where": f"{_STRUCK}; n = 0.0; e = Where(keep, g, n); t = ReduceSum[-1](e); z = Div(e, t)",
    "product, epsilon": f"""
        {_STRUCK}; f = Cast<to = 1>(keep); e = Mul(f, g); t = ReduceSum[-1](e); c = 1e-6; u = Add(t, c)
        z = Div(e, u)""",
}


def _written() -> dict[str, Case]:
    cases = {f"quotient, {name}": Case("exp-over-sum", body) for name, body in _QUOTIENTS.items()}
    for name, body in _OVERFLOWING.items():
        spread = 0.5 if name == "all axes" else 3.0
        cases[f"quotient, {name}"] = Case("exp-over-sum", body, overflows=True, spread=spread)
    for name, body in _STRUCK_OUT.items():
        cases[f"struck out, {name}"] = Case("exp-over-sum", body, inputs=_KEEP)
    for name, body in {
        "behind": f"{_SUMMED}; r = Reciprocal(t); z = Mul(e, r)",
        "in front": f"{_SUMMED}; r = Reciprocal(t); z = Mul(r, e)",
        "one over the sum": f"{_SUMMED}; c = 1.0; r = Div(c, t); z = Mul(e, r)",
        "narrow": f"{_SHIFTED}; t = ReduceSum[3]k0(e); r = Reciprocal(t); u = Unsqueeze[3](r); z = Mul(e, u)",
    }.items():
        cases[f"reciprocal, {name}"] = Case("exp-times-reciprocal", body)
    body = "m = ReduceMax[1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[1](e);"
    cases["body of Softmax-13"] = Case("exp-over-sum", f"{body} z = Div(e, t)")
    cases["body of LogSoftmax-13"] = Case("minus-logsumexp", f"{body} l = Log(t); z = Sub(d, l)", logarithm=True)
    cases["less logsumexp"] = Case("exp-minus-logsumexp", "l = ReduceLogSumExp[-1](x); d = Sub(x, l); z = Exp(d)")
    cases["less log of sum"] = Case(
        "exp-minus-logsumexp", f"{_BARE}; l = Log(t); d = Sub(x, l); z = Exp(d)", overflows=True
    )
    cases["less maximum and log of sum"] = Case(
        "exp-minus-logsumexp", f"{_SUMMED}; l = Log(t); k = Add(m, l); w = Sub(x, k); z = Exp(w)"
    )
    cases["logarithm, less logsumexp"] = Case(
        "minus-logsumexp", "l = ReduceLogSumExp[-1](x); z = Sub(x, l)", logarithm=True
    )
    cases["float16 written out"] = Case(
        "exp-over-sum", f"{_SUMMED}; z = Div(e, t)", dtype="float16", rtol=4e-3, atol=1e-3
    )
    cases["float16 exponentials, float32 sum"] = Case(
        "exp-over-sum",
        f"{_SHIFTED}; f = Cast<to = 1>(e); t = ReduceSum[-1](f); p = Div(f, t); z = Cast<to = 10>(p)",
        dtype="float16",
        rtol=4e-3,
        atol=1e-3,
    )
    return cases


CASES: dict[str, Case] = {**_operators(), **_written()}
