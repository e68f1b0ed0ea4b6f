"""The command line: arguments to library calls, results to text or JSON. Nothing here knows more than the library."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from softq.cli_report import report as report_command
from softq.cli_sweep import COMMANDS
from softq.cli_vectors import vectors as vectors_command
from softq.errors import SoftqError, UsageError

if TYPE_CHECKING:
    from softq.report import Report

EXIT_GATE, EXIT_BAD, EXIT_INTERRUPTED = 1, 2, 130


class _Group(click.Group):
    """A command group whose errors are one line and exit code 2; `--debug` shows where they come from."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; every way out has its exit code."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            # An exit that a command asks for comes back as a number.
            code = super().main(*args, standalone_mode=False, **extra)
        except click.Abort:
            click.echo("softq: interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)
        except click.ClickException as error:
            _fail(error.format_message())
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and turn what it raises into one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
            raise
        except BaseException as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            if isinstance(error, SoftqError):
                _fail(str(error))
            if isinstance(error, SystemExit):
                _fail("a function of yours ended the program; a metric or data function returns or raises")
            _fail(f"{type(error).__name__}: {error}; --debug (before the command) shows where")


def _fail(message: str) -> NoReturn:
    click.echo("softq: " + " ".join(message.split()), err=True)
    sys.exit(EXIT_BAD)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="softq")
def main(debug: bool) -> None:
    """Replace the softmaxes of ONNX models by ones that small and fast hardware likes, and measure what that costs.

    Exit codes: 0 done; 1 an accuracy gate failed; 2 bad usage, bad input, or a refusal.
    """


_SITES = click.option(
    "--sites", "globs", multiple=True, metavar="GLOB", help="Exactly the sites whose id matches, whatever their role."
)
_ALL = click.option("--all", "all_sites", is_flag=True, help="Every site that can be converted, not only attention.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


_MASKS = click.option(
    "--mask", "masks", multiple=True, metavar="NAME",
    help="A float tensor that is a mask, on your word: 0 where a position takes part, at most -1e4 elsewhere.",
)  # fmt: skip
_FLOAT32 = click.option("--allow-float32", is_flag=True, help="Compute the softmax of double scores in float32.")
_SUBSTITUTE = click.option(
    "--allow-substitute", is_flag=True, help="Let a method that is no drop-in take the place of a softmax."
)


@main.command()
@click.argument("model", required=False)
@click.option("--forms", is_flag=True, help="List the forms of a softmax that are recognised, instead of a model's.")
@click.option("--method", metavar="NAME", help="The method to come: not each can take every softmax.")
@_SITES
@_ALL
@_MASKS
@_FLOAT32
@_JSON
def inspect(
    model: str | None,
    forms: bool,
    method: str | None,
    globs: Sequence[str],
    all_sites: bool,
    masks: Sequence[str],
    allow_float32: bool,
    as_json: bool,
) -> None:
    """Show every softmax of MODEL: form, role, shape, mask, verdict and reason."""
    from softq.conversion import inspect as inspect_model
    from softq.listing import describe_forms, forms_to_text, sites_to_text
    from softq.site import SCHEMA

    if forms == (model is not None):
        raise UsageError("inspect takes a model, or --forms without one")
    if model is None:
        if as_json:
            _print_json({"schema": SCHEMA, "forms": describe_forms()})
        else:
            click.echo(forms_to_text(), nl=False)
        return
    sites = inspect_model(
        model, method=method, sites=globs, all_sites=all_sites, masks=masks, allow_float32=allow_float32
    )
    if as_json:
        _print_json({"schema": SCHEMA, "model": model, "sites": [site.to_json() for site in sites]})
    else:
        click.echo(sites_to_text(sites), nl=False)


@main.command()
@click.argument("model")
@click.argument("site")
@click.option("--method", metavar="NAME", help="The method whose cost is told; the default one if not given.")
@click.option("--bits", type=int, help="Short for --set bits=N.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of the method.")
@_MASKS
@_FLOAT32
@_JSON
def explain(
    model: str,
    site: str,
    method: str | None,
    bits: int | None,
    settings: Sequence[str],
    masks: Sequence[str],
    allow_float32: bool,
    as_json: bool,
) -> None:
    """Tell the whole story of one softmax of MODEL: what was matched, why this verdict, what a method would cost."""
    from softq.explanation import explain as explain_site
    from softq.explanation import to_text
    from softq.methods import DEFAULT_METHOD
    from softq.site import SCHEMA

    told = explain_site(
        model,
        site,
        method=method or DEFAULT_METHOD,
        settings=_settings(settings, bits),
        masks=masks,
        allow_float32=allow_float32,
    )
    if as_json:
        _print_json({"schema": SCHEMA, "model": model} | told.to_json())
    else:
        click.echo(to_text(told), nl=False)


@main.command()
@click.argument("model")
@click.argument("out")
@click.option("--method", metavar="NAME", help="The softmax method; softq methods lists them.")
@click.option("--bits", type=int, help="Short for --set bits=N.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of the method.")
@click.option(
    "--calibration", metavar="DATA", help="Data for options that are fitted (.npz, a folder, or module:function)."
)
@_SITES
@_ALL
@click.option("--plan", metavar="FILE", help="Follow a plan instead of method, bits, settings, calibration and sites.")
@click.option("--save-plan", metavar="FILE", help="Write what was done as a plan.")
@click.option("--require", is_flag=True, help="Fail if nothing is converted.")
@click.option("--inline", is_flag=True, help="Write plain operators instead of functions.")
@click.option(
    "--max-length",
    type=int,
    metavar="N",
    help="Greatest length of a row that is proved where the graph gives none; 65536 by default.",
)
@click.option("--batch", type=int, metavar="N", help="Samples a run of the calibration.")
@_MASKS
@_FLOAT32
@_SUBSTITUTE
@click.option("--dry-run", is_flag=True, help="Do everything but write.")
@_JSON
def convert(
    model: str,
    out: str,
    method: str | None,
    bits: int | None,
    settings: Sequence[str],
    calibration: str | None,
    globs: Sequence[str],
    all_sites: bool,
    plan: str | None,
    save_plan: str | None,
    require: bool,
    inline: bool,
    max_length: int | None,
    batch: int | None,
    masks: Sequence[str],
    allow_float32: bool,
    allow_substitute: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replace the softmaxes of MODEL and write OUT."""
    from softq.conversion import convert as convert_model
    from softq.listing import conversion_to_text
    from softq.modelfile import check_output, save
    from softq.site import SCHEMA
    from softq.textfile import write_text

    # Before the work, not after it.
    _check_outputs([out, save_plan], [model, plan, calibration])
    if not dry_run:
        check_output(out, source=model)
    chosen = _settings(settings, bits)
    with _progress() as step:
        result = convert_model(
            model,
            method=method,
            bits=bits,
            settings=chosen,
            calibration=calibration,
            sites=globs,
            all_sites=all_sites,
            plan=plan,
            require=require,
            inline=inline,
            max_length=max_length,
            batch=batch,
            masks=masks,
            allow_float32=allow_float32,
            allow_substitute=allow_substitute,
            progress=step,
        )
        if not dry_run:
            save(result.model, out, source=model)
    if save_plan is not None and not dry_run:
        write_text(save_plan, result.plan.to_text())
    for warning in result.warnings:
        click.echo(f"softq: warning: {warning}", err=True)
    if as_json:
        sites = [site.to_json() for site in result.sites]
        _print_json({"schema": SCHEMA, "model": model, "output": None if dry_run else out, "sites": sites,
                     "plan": result.plan.to_json(), "warnings": list(result.warnings)})  # fmt: skip
    else:
        click.echo(conversion_to_text(result.sites, result.plan, None if dry_run else out), nl=False)


@main.command()
@click.argument("reference")
@click.argument("candidate")
@click.option("--data", required=True, metavar="DATA", help="A .npz file, a folder of them, or module:function.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="A metric, or module:function; several are allowed."
)
@click.option("--labels", metavar="NAME", help="The label array to use (label.NAME), or a model input.")
@click.option("--output", metavar="NAME", help="The model output to compare.")
@click.option("--batch", type=int, metavar="N", help="Samples a run.")
@click.option("--max-drop", metavar="X|X%", help="Gate: worse than the reference by at most X (X% of its value).")
@click.option("--limit", type=float, metavar="X", help="Gate: the candidate's value is at least (at most) X.")
@click.option("--threads", type=int, metavar="N", help="Threads of the runtime; all cores by default.")
@click.option("--markdown", metavar="FILE", help="Write the report as Markdown too.")
@click.option("--junit", metavar="FILE", help="Write the gate as a test case in JUnit XML too.")
@_JSON
def check(
    reference: str,
    candidate: str,
    data: str,
    metrics: Sequence[str],
    labels: str | None,
    output: str | None,
    batch: int | None,
    max_drop: str | None,
    limit: float | None,
    threads: int | None,
    markdown: str | None,
    junit: str | None,
    as_json: bool,
) -> None:
    """Compare CANDIDATE with REFERENCE on data; exit 1 when the gate fails."""
    from softq.compare import check as check_models

    _check_outputs([markdown, junit], [reference, candidate, data])
    start = time.perf_counter()
    with _progress() as step:
        report = check_models(
            reference,
            candidate,
            data,
            metrics=metrics,
            labels=labels,
            output=output,
            batch=batch,
            max_drop=max_drop,
            limit=limit,
            threads=threads,
            progress=lambda done, total: step("check", done, total),
        )
    if junit is not None:
        from softq.report import to_case, to_junit
        from softq.textfile import write_text

        case = to_case(report, time.perf_counter() - start)
        write_text(junit, to_junit(f"{report.candidate} against {report.reference}", [case]))
    _print_report(report, markdown, as_json)


@main.command()
@click.argument("model")
@click.argument("out_dir")
@click.option("--target", required=True, metavar="NAME[,KEY=VALUE...]", help="What to build for; softq targets lists.")
@_JSON
def build(model: str, out_dir: str, target: str, as_json: bool) -> None:
    """Build MODEL for a target through TVM and write the artifact OUT_DIR."""
    from softq.building import build as build_model
    from softq.listing import artifact_to_text

    with _progress() as step:
        built = build_model(model, out_dir, target=target, progress=step)
    if as_json:
        _print_json(built.manifest)
    else:
        click.echo(artifact_to_text(out_dir, built.manifest), nl=False)


@main.command()
@click.argument("out_dir")
@click.option("--data", required=True, metavar="DATA", help="A .npz file, a folder of them, or module:function.")
@click.option("--reference", metavar="MODEL", help="An ONNX model or an artifact to compare with.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="A metric, or module:function; several are allowed."
)
@click.option("--labels", metavar="NAME", help="The label array to use (label.NAME), or a model input.")
@click.option("--output", metavar="NAME", help="The model output to compare.")
@click.option("--batch", type=int, metavar="N", help="Samples a run.")
@click.option("--max-drop", metavar="X|X%", help="Gate: worse than the reference by at most X (X% of its value).")
@click.option("--limit", type=float, metavar="X", help="Gate: the artifact's value is at least (at most) X.")
@click.option("--threads", type=int, default=1, metavar="N", help="Threads of the artifact; 1 by default.")
@click.option("--markdown", metavar="FILE", help="Write the report as Markdown too.")
@_JSON
def run(
    out_dir: str,
    data: str,
    reference: str | None,
    metrics: Sequence[str],
    labels: str | None,
    output: str | None,
    batch: int | None,
    max_drop: str | None,
    limit: float | None,
    threads: int,
    markdown: str | None,
    as_json: bool,
) -> None:
    """Run the artifact OUT_DIR on data and compare it with a model, or with the labels alone; exit 1 on the gate."""
    from softq.artifact import load
    from softq.compare import check as check_models
    from softq.compare import score

    _check_outputs([markdown], [out_dir, reference, data, *map(str, Path(out_dir).glob("*"))])
    if reference is None and max_drop is not None:
        raise UsageError(f"--max-drop {max_drop} needs --reference; --limit bounds the value itself")
    with load(out_dir, threads) as artifact, _progress() as step:
        options: dict[str, Any] = {
            "metrics": metrics,
            "labels": labels,
            "output": output,
            "batch": batch,
            "limit": limit,
        }
        options["progress"] = lambda done, total: step("run", done, total)
        if reference is None:
            report = score(artifact, data, **options)
        else:
            against = load(reference, threads) if Path(reference).is_dir() else reference
            report = check_models(against, artifact, data, max_drop=max_drop, **options)
    _print_report(report, markdown, as_json)


@main.command()
@click.argument("name", required=False)
@click.option(
    "--length", type=click.IntRange(1, 2**31 - 1), default=1024, show_default=True, metavar="N",
    help="Elements of the row for which the widest integer is told.",
)  # fmt: skip
@_JSON
def methods(name: str | None, length: int, as_json: bool) -> None:
    """List the softmax methods, or describe one."""
    from softq.methods import METHODS
    from softq.specification import describe_method, method_to_text, methods_to_text

    chosen = METHODS.entries().values() if name is None else [METHODS.get(name)]
    if as_json:
        _print_json({"schema": 1, "methods": [describe_method(method, length) for method in chosen]})
    else:
        click.echo(methods_to_text(length) if name is None else method_to_text(METHODS.get(name), length), nl=False)


@main.command()
@click.argument("name", required=False)
@_JSON
def targets(name: str | None, as_json: bool) -> None:
    """List the targets, or describe one."""
    from softq.listing import describe_target, target_to_text, targets_to_text
    from softq.targets import TARGETS

    chosen = TARGETS.entries().values() if name is None else [TARGETS.get(name)]
    if as_json:
        _print_json({"schema": 1, "targets": [describe_target(target) for target in chosen]})
    else:
        click.echo(targets_to_text() if name is None else target_to_text(TARGETS.get(name)), nl=False)


main.add_command(report_command)
main.add_command(vectors_command)
for _command in COMMANDS:
    main.add_command(_command)


def _print_report(report: Report, markdown: str | None, as_json: bool) -> None:
    """Print a report, write it, and end with the gate's exit code if that failed."""
    from softq.report import to_json, to_markdown, to_text
    from softq.textfile import write_text

    terminal = sys.stdout.isatty()
    click.echo(to_json(report) if as_json else to_text(report, terminal=terminal), nl=False)
    if markdown is not None:
        write_text(markdown, to_markdown(report))
    if not report.passed:
        click.get_current_context().exit(EXIT_GATE)


def _check_outputs(outputs: Sequence[str | None], inputs: Sequence[str | None]) -> None:
    """Refuse an output that is an input or another output, or that has no folder to go into."""
    taken: dict[tuple[int, int] | str, str] = {}
    for name in inputs:
        if name is None:
            continue
        path = Path(name)
        for file in [path, *path.glob("*.npz")] if path.is_dir() else [path]:
            taken[_identity(file)] = str(file)
        # Weights lie beside the model that names them.
        taken |= {_identity(file): str(file) for file in _weights(path)}
    for name in outputs:
        if name is None:
            continue
        path = Path(name)
        if _identity(path) in taken:
            raise UsageError(f"output {name!r} is {taken[_identity(path)]!r} too; inputs are never written")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {name!r}: the folder '{path.parent}' does not exist or is not writable")
        taken[_identity(path)] = name


def _weights(model: Path) -> list[Path]:
    if model.suffix != ".onnx" or not model.is_file():
        return []
    from softq.modelfile import data_files

    return [Path(file) for file in data_files(model)]


def _identity(path: Path) -> tuple[int, int] | str:
    """Return what two names of one file have in common."""
    try:
        status = path.stat()
    except OSError:
        return str(path.resolve())
    return (status.st_dev, status.st_ino)


def _settings(pairs: Sequence[str], bits: int | None) -> dict[str, int | float | str]:
    settings: dict[str, int | float | str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {pair!r}; expected KEY=VALUE")
        if key in settings:
            raise UsageError(f"--set {key} is given twice")
        settings[key] = value
    if bits is not None and str(settings.setdefault("bits", bits)) != str(bits):
        raise UsageError(f"--bits {bits} and --set bits={settings['bits']} contradict each other")
    return settings


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def _progress() -> Generator[Callable[[str, int, int | None], None]]:
    """Give a callback that draws a progress bar on a terminal, and nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda step, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], completed=done, total=total)

        yield show


if __name__ == "__main__":
    main()
