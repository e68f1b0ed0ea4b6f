"""Sites, plans, metrics and targets as text for people; what is listed is imported when it is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import getdoc
from sys import modules
from typing import TYPE_CHECKING, Any

from softq.visible import lines, visible
from softq.wording import counted, softmaxes

if TYPE_CHECKING:
    from softq.methods import Spread
    from softq.packages import Package
    from softq.plans import Plan
    from softq.site import Site
    from softq.targets import Target

PROOF_LENGTH = 1024
"""Length of the row for which the widest integer is listed."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns, two blanks between them, the last one ragged."""
    shown = [[visible(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    return lines("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)


def sites_to_text(sites: Sequence[Site]) -> str:
    """Return what `softq inspect` prints: a line per site, the reasons below where they are needed."""
    if not sites:
        return "no softmax\n"
    rows = [
        (
            s.id,
            s.operator,
            s.role,
            _shape(s),
            "?" if s.axis is None else str(s.axis),
            s.dtype,
            s.mask,
            s.verdict.action,
            s.verdict.reason,
        )
        for s in sites
    ]
    counts = {action: sum(s.verdict.action == action for s in sites) for action in ("convert", "keep", "refuse")}
    head = ("site", "operator", "role", "shape", "axis", "type", "mask", "verdict", "reason")
    return (
        table(head, rows)
        + f"{softmaxes(len(sites))}: "
        + ", ".join(f"{n} to {action}" for action, n in counts.items())
        + "\n"
    )


def describe_forms() -> list[dict[str, object]]:
    """Return what there is to know about each form as plain values."""
    from softq.forms import FORMS

    forms = FORMS.entries().values()
    return [{"name": form.name, "summary": form.summary, "verdict": form.verdict} for form in forms]


def forms_to_text() -> str:
    """Return what `softq inspect --forms` prints."""
    from softq.forms import FORMS

    return table(("form", "verdict", "what it is"), [(f.name, f.verdict, f.summary) for f in FORMS.entries().values()])


def _shape(site: Site) -> str:
    return "?" if site.shape is None else "x".join("?" if d is None else str(d) for d in site.shape) or "scalar"


def conversion_to_text(sites: Sequence[Site], plan: Plan, out: str | None) -> str:
    """Return what `softq convert` prints: each method with its options and the sites that got it, then all others."""
    got: dict[str, list[tuple[str, str]]] = {}
    for planned in plan.sites:
        options = " ".join(f"{k}={v}" for k, v in planned.options.items())
        fitted = " ".join(f"{k}={_fitted(v)}{_spread(planned.spread.get(k))}" for k, v in planned.fitted.items())
        told = (planned.id, f"fitted {fitted}" if fitted else "")
        got.setdefault(f"{planned.method} {options}".rstrip(), []).append(told)
    converted = {site.id for site in plan.sites}
    for site in sites:
        if site.id not in converted:
            group = "rewritten, which is exact" if site.rewrite else "not converted"
            what = f"{site.rewrite or site.verdict.action}: {site.verdict.reason}"
            got.setdefault(group, []).append((site.id, what))
    widest = max((len(visible(site.id)) for site in sites), default=0)
    told = [
        line for group, rows in got.items()
        for line in (f"{group}:", *(f"  {visible(name).ljust(widest)}  {what}" for name, what in rows))
    ]  # fmt: skip
    return lines([*told, _conversion_end(len(converted) + len(plan.rewrites), len(sites), out)])


def _conversion_end(converted: int, found: int, out: str | None) -> str:
    if converted:
        written = "nothing written (dry run)" if out is None else f"wrote {out}"
        return f"converted {converted} of {softmaxes(found)}; {written}"
    written = "nothing written (dry run)" if out is None else f"wrote {out}, which computes what the model does"
    return f"nothing converted: {softmaxes(found)} found; {written} (--require makes this an error)"


def _fitted(value: float | tuple[float, ...]) -> str:
    return "[" + " ".join(f"{v:.4g}" for v in value) + "]" if isinstance(value, tuple) else f"{value:.4g}"


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f" ({_fitted(spread.low)} to {_fitted(spread.high)} over draws)"


def describe_metrics() -> list[dict[str, object]]:
    """Return what there is to know about each metric as plain values."""
    from softq.metrics import METRICS

    return [
        {"name": m.name, "summary": m.summary, "unit": m.unit, "better": m.direction, "needs_labels": m.needs_labels}
        for m in METRICS.entries().values()
    ]


def metrics_to_text() -> str:
    """Return what `softq metrics` prints."""
    rows = [
        (str(m["name"]), str(m["better"]), "yes" if m["needs_labels"] else "no", str(m["summary"]))
        for m in describe_metrics()
    ]
    return table(("metric", "better", "needs labels", "what it is"), rows)


def describe_target(target: Target) -> dict[str, object]:
    """Return what there is to know about a target as plain values."""
    return {
        "name": target.name,
        "summary": target.summary,
        "produces": target.produces,
        "needs": target.needs,
        "options": [
            {"name": name, "default": getattr(target.options(), name), "help": text}
            for name, text in target.options.help().items()
        ],
    }


def targets_to_text() -> str:
    """Return what `softq targets` prints."""
    from softq.targets import TARGETS

    return table(("target", "what it is"), [(t.name, t.summary) for t in TARGETS.entries().values()])


def target_to_text(target: Target) -> str:
    """Return what `softq targets NAME` prints."""
    about = getdoc(modules[target.passes.__module__]) or ""
    text = f"{target.name}: {target.summary}\n\n{about}\n\nproduces  {target.produces}\nneeds     {target.needs}\n"
    options = [(n, str(getattr(target.options(), n)), help) for n, help in target.options.help().items()]
    return text + ("\n" + table(("option", "default", "what it does"), options) if options else "")


def packages_to_text() -> str:
    """Return what `softq packages` prints."""
    from softq.packages import PACKAGES

    return table(("package", "what it is"), [(p.name, p.summary) for p in PACKAGES.entries().values()])


def package_to_text(package: Package) -> str:
    """Return what `softq packages NAME` prints."""
    about = getdoc(modules[package.around.__module__]) or ""
    options = [(n, str(getattr(package.options(), n)), help) for n, help in package.options.help().items()]
    told = f"{package.name}: {package.summary}\n\n{about}\n\n"
    return told + table(("option", "default", "what it does"), options)


def artifact_to_text(folder: str, manifest: Mapping[str, Any]) -> str:
    """Return what `softq build` prints."""
    megabytes = sum(file["bytes"] for file in manifest["files"].values()) / 2**20
    if "operators" in manifest:
        found = manifest["operators"]
        rows = [(f"softq::{o['name']}", o["kernel"], ", ".join(o["sites"])) for o in found]
        told = f"{folder}: {manifest['target']}, {counted(len(found), 'operator')}, {megabytes:.1f} MiB"
        return lines([told, ""]) + table(("operator", "kernel", "sites"), rows)
    if "cores" in manifest:
        return _cores_to_text(folder, manifest)
    told = [f"{folder}: {manifest['target']}, {counted(len(manifest['steps']), 'step')}, {megabytes:.1f} MiB"]
    for key in ("inputs", "outputs"):
        for tensor in manifest[key]:
            shape = ", ".join(str(d) for d in tensor["shape"])
            told.append(f"{key[:-1]:<6}  {tensor['name']}  {tensor['dtype']} [{shape}]")
    if "memory" in manifest:
        return lines([*told, ""]) + sizes_to_text(manifest)
    sites = [(site, ", ".join(names)) for site, names in manifest["sites"].items()]
    return lines([*told, ""]) + table(("site", "kernel"), sites)


def _cores_to_text(folder: str, manifest: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    for core in manifest["cores"]:
        length = str(core["length"])
        outputs = ", ".join(core["outputs"])
        estimate = core["estimate"]
        cells = [str(estimate[name]) for name in ("lut4", "lut4_in_all", "ff", "bram", "mult18")]
        rows.append((core["module"], f"softq::{core['function']}", outputs, length, str(core["lanes"]),
                     str(core["latency"][length]), *cells, ", ".join(core["sites"])))  # fmt: skip
    families = ", ".join(dict.fromkeys(core["estimate"]["family"] for core in manifest["cores"]))
    told = f"{folder}: {manifest['target']}, {counted(len(rows), 'core')}; LUT4 to MULT18 are estimated for {families}"
    head = (
        "core",
        "function",
        "outputs",
        "length",
        "lanes",
        "clocks",
        "LUT4",
        "in all",
        "FF",
        "BRAM",
        "MULT18",
        "sites",
    )
    return lines([told, ""]) + table(head, rows)


_LAYER_COLUMNS = ("step", "site", "kernel", "result", "multiply-adds", "weight bytes", "arena bytes")


def sizes_to_text(sizes: Mapping[str, Any]) -> str:
    """Return what `softq size` prints: what a model in C takes as a whole, then each step."""
    memory, layers = sizes["memory"], sizes["layers"]
    told = [f"arena   {memory['arena']:,} bytes; no plan is below {memory['arena_least']:,}"]
    if memory["flash"] is None:
        told.append(f"flash   {memory['weights']:,} bytes of weights; that of code is not known; --cc names a compiler")
    else:
        parts = f"{memory['weights']:,} weights, {memory['code']:,} code, {memory['tables']:,} tables"
        told.append(f"flash   {memory['flash']:,} bytes: {parts} ({memory['compiler']})")
    if memory["stack"] is not None:
        told.append(f"stack   {memory['stack']:,} bytes: {' > '.join(memory['calls'])}")
    elif memory["flash"] is not None:
        told.append("stack   not known: no compiler told that of all functions")
    if memory["library"]:
        told.append(f"beside  {', '.join(memory['library'])}: functions of the compiler's and the C library")
    told.append(f"work    {sizes['multiply_adds']:,} multiply-adds")
    rows = [
        (
            str(number), layer["site"] or "", layer["kernel"].removeprefix("softq_"),
            "x".join(map(str, layer["shape"])), f"{layer['multiply_adds']:,}",
            f"{layer['weights']:,}", f"{layer['arena']:,}",
        )
        for number, layer in enumerate(layers)
    ]  # fmt: skip
    return lines([*told, ""]) + table(_LAYER_COLUMNS, rows)
