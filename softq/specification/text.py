"""The facts about methods as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from inspect import getdoc
from sys import modules
from typing import Any, cast

from softq.errors import ProofError
from softq.formatting import PROOF_LENGTH, table
from softq.methods import DEFAULT_METHOD, METHODS, Method
from softq.rowprog import DType, Kind, Program, to_text
from softq.rowprog.program import Param
from softq.rowprog.ranges import prove
from softq.specification.facts import bits, describe_method
from softq.specification.kernels import Kernel, kernels
from softq.wording import counted


def methods_to_text(length: int | None = None) -> str:
    """Return what `softq methods` prints: a line per method, and how wide its integers get in rows of this length.

    Without a length nothing is proved, which would take longer than all the rest.
    """
    head = ("method", "use", "bits", "integer-only", "calibration", *(() if length is None else _PROVED), "what it is")
    return table(head, [_line(method, length) for method in METHODS.entries().values()]) + "\n".join([
        "",
        f"bits          the option's range, or what a weight takes; {DEFAULT_METHOD} is the default method",
        "integer-only  no float from 8-bit scores to the weights and their sum; float scores are rounded first",
        *(() if length is None else (
            f"widest        bits of the widest integer in rows of up to {length:,} elements, float / 8-bit scores",
            "longest row   proved free of overflow, float scores; longer ones are refused",
        )),
        "softq methods NAME tells all about one and where it is from; --length N adds widths in rows of N elements",
        "",
    ])  # fmt: skip


_PROVED = ("widest", "longest row")


def _line(method: Method, length: int | None) -> tuple[str, ...]:
    of_type = kernels(method, PROOF_LENGTH if length is None else length)
    floats, integers = of_type[DType.F32], of_type.get(DType.I8)
    proved = (" / ".join(map(_widest, of_type.values())), f"{floats.largest_length:,}") if length is not None else ()
    return (
        method.name,
        drop_in_to_text(method),
        _bits(bits(method, floats)),
        "yes" if integers is not None and integers.is_integer else "no",
        method.calibration.partition(":")[0],
        *proved,
        method.summary,
    )


def drop_in_to_text(method: Method) -> str:
    """Return whether a method serves a model that was trained with the exact softmax, in a word or two."""
    return "drop-in" if method.drop_in else "needs training"


def _bits(found: Mapping[str, object]) -> str:
    if "fixed" in found:
        return f"{found['fixed']} fixed"
    return f"{found['low']}-{found['high']}"


def _widest(kernel: Kernel) -> str:
    return "refused" if kernel.widest_bits is None else str(kernel.widest_bits)


def method_to_text(method: Method, length: int = PROOF_LENGTH) -> str:
    """Return what `softq methods NAME` prints: the method's specification, its options and its programs.

    Raises:
        ProofError: the length is above the longest row for which nothing overflows.
    """
    facts = cast("Mapping[str, Any]", describe_method(method, length))
    of_type = kernels(method, length)
    for scores, kernel in of_type.items():
        if kernel.proof is None:
            raise ProofError(
                f"method {method.name}: a row of {counted(length, 'element')} of type {scores.value} could overflow; "
                f"proved are rows of up to {kernel.largest_length:,}"
            )
    lines = [
        f"{method.name}: {method.summary}",
        "",
        *([doc, ""] if (doc := getdoc(modules[method.trace.__module__])) else []),
        f"source         {method.source}",
        f"scores         {' or '.join(facts['scores'])}",
        f"returns        {facts['output']}",
        f"use            {drop_in_to_text(method)}",
        f"bits           {_bits(facts['bits'])}",
        f"integer-only   {'yes' if facts['integer_only'] else 'no'}",
        f"calibration    {method.calibration}",
        f"widest integer {facts['widest_integer_bits']} bits for rows of {length}",
        f"longest row    {facts['largest_length']:,}",
        f"as a stream    {_stream(facts['kernels'])}",
        "",
        "options (--set KEY=VALUE):",
    ]
    for name, spec in method.options.specs().items():
        default = facts["options"][name]["default"]
        lines += textwrap.wrap(
            f"{name} = {default}: {spec.help}; {spec.allowed}", 110, initial_indent="  ", subsequent_indent="    "
        )
    if not method.options.specs():
        lines.append("  none")
    lines += ["", f"interface with the default options, for rows of up to {counted(length, 'element')}:", ""]
    lines += _interface(method, of_type[DType.F32].program, length)
    lines += ["", "special values of float scores, by running the program:", "", *_special(facts["special_values"])]
    lines += ["", "program with the default options:", "", to_text(of_type[DType.F32].program).rstrip()]
    if DType.I8 in of_type:
        kernel = of_type[DType.I8]
        given = " ".join(f"{k}={v}" for k, v in kernel.options.to_json().items() if v != getattr(method.options(), k))
        lines += [
            "",
            f"program of 8-bit integer scores{', ' + given if given else ''} "
            f"(widest integer {_widest(kernel)} bits, longest row {kernel.largest_length:,}):",
            "",
            to_text(kernel.program).rstrip(),
        ]
    return "\n".join(lines) + "\n"


def _stream(of_type: Mapping[str, Any]) -> str:
    """Return how many passes a row takes whose length is known after the first, and what waits for the length."""
    told: list[str] = []
    for scores, kernel in of_type.items():
        count, waiting = kernel["stream"]["passes"], kernel["stream"]["waits_for_length"]
        passes = "1 pass" if count == 1 else f"{count} passes"
        told.append(f"{scores} scores: {passes}{f', {waiting} waits for the length' if waiting else ''}")
    return "; ".join(told)


def _interface(method: Method, program: Program, length: int) -> Iterator[str]:
    from softq.rowprog.onnx.emitter import output_names
    from softq.rowprog.onnx.interface import DOMAIN, function_name, signature

    fitted = method.program(method.resolve(method.configure({}), True))
    proof = prove(program, max_length=length)
    rows = [
        ("in", "scores", program.scores.value, "[..., N]", "any, infinities and NaN too"),
        ("in", "valid", "bool", "[..., N]", "where an element takes part; only of masked programs"),
        *(("in", param.name, param.dtype.value, *_parameter(param)) for param in fitted.params),
    ]
    for name, node in program.outputs.items():
        shape = "[..., N]" if node.kind is Kind.ROW else "[..., 1]"
        rows.append(("out", name, node.dtype.value, shape, f"in {proof.interval(node)}"))
    yield from ("  " + line for line in table(("", "name", "type", "shape", "values"), rows).splitlines())
    yield ""
    for given in (program, fitted) if fitted.params else (program,):
        names = ", ".join(output_names(given, None))
        call = f"{DOMAIN}::{function_name(given)}({', '.join(signature(given))}) -> ({names})"
        yield f"  ONNX function {call}, float32"


def _parameter(param: Param) -> tuple[str, str]:
    size = 1 if param.size is None else param.size
    shape = f"[{size}]" if param.scope == "site" else f"[heads, 1, {size}]"
    return shape, f"in [{param.low}, {param.high}], where fitted on calibration data: {param.meaning}"


def _special(cases: list[Mapping[str, Any]]) -> Iterator[str]:
    names = list(cases[0]["outputs"])
    rows = [
        (case["row"], _shown(case["scores"], case["valid"]), *(_shown(case["outputs"][name]) for name in names))
        for case in cases
    ]
    yield from ("  " + line for line in table(("row", "scores", *names), rows).splitlines())


def _shown(values: list[float | str] | None, valid: list[bool] | None = None) -> str:
    if values is None:
        return "unspecified"
    shown = [v if isinstance(v, str) else f"{v:.6g}" for v in values]
    return " ".join(v if keep else f"({v})" for v, keep in zip(shown, valid or [True] * len(shown), strict=True))
