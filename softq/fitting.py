"""What fits options on calibration data: the rows of the sites that take a method, and a fit on them."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from softq import calibrate
from softq.data import Dataset, DataSource, open_data
from softq.methods import Fitted, Method, Options, Sample
from softq.methods._contract import OptionValue
from softq.modelfile import as_model
from softq.passes._forms._facts import Assumed
from softq.passes.locate import locate
from softq.passes.normalize import Normalize
from softq.progress import Progress
from softq.site import Site


def fitter(
    model: ir.Model,
    found: Sequence[Site],
    calibration: DataSource,
    method: Method,
    settings: Mapping[str, OptionValue],
    batch: int | None,
    assumed: Assumed,
    progress: Progress | None,
) -> tuple[Callable[[Site, Method, Options], Fitted], list[str]]:
    """Return what fits a site's options on the calibration data, and what the user should know about them.

    Args:
        model: The model as it was loaded; it is not changed.
        found: Its softmaxes with their verdicts.
        calibration: See `softq.data.open_data`.
        method: The method that the sites get.
        settings: Options of the method by name.
        batch: Samples a run; None for the data's own.
        assumed: As in `locate`.
        progress: As in `softq.conversion.convert`.

    Raises:
        RefusalError: a site to convert lies in a subgraph or function, whose values cannot be seen from outside.
        InputError: the data cannot be used.
    """
    data = open_data(calibration, calibrate.input_specs(model), reject_nan=True)
    options = method.resolve(method.configure(settings), True)
    if not options.fitted:
        for _ in data.batches(batch):  # so that damaged data are an error whether they are needed or not
            pass
        return lambda *_: {}, [
            f"the calibration data are not used: with these settings {method.name} has nothing to fit"
        ]
    wanted = [site.id for site in found if site.takes_method]
    report = None if progress is None else (lambda done, total: progress("calibrate", done, total))
    samples = attention_rows(model, wanted, data, method.logarithms, assumed, batch=batch, progress=report)

    def fit(site: Site, method: Method, options: Options) -> Fitted:
        if progress is not None:
            progress("fit", wanted.index(site.id), len(wanted))
        return calibrate.fit(method, options, samples[site.id])

    return fit, []


def attention_rows(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    logarithms: bool,
    assumed: Assumed,
    *,
    batch: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    threads: int | None = None,
    unseen: dict[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """Return a bounded sample of rows for each wanted site, by id; the model is not changed.

    Args:
        model: The model as it was loaded.
        wanted: Ids of sites that take a method.
        data: Data for `softq.calibrate.input_specs(model)`.
        logarithms: Whether the method to come gives logarithms of weights, as in `locate`.
        assumed: As in `locate`.
        batch: Samples a run; None for the data's own.
        progress: Called with the samples done and the samples there are, if known.
        threads: Threads of onnxruntime; all cores if None.
        unseen: As in `softq.calibrate.collect`.

    Raises:
        RefusalError: a wanted site lies in a subgraph or function, whose values cannot be seen from outside.
        InputError: the data give NaN scores at a site.
    """
    copy = as_model(model)
    chosen = [glob.escape(name) for name in wanted]
    locate(copy, select=chosen, rewrites=(), logarithms=logarithms, assumed=assumed)
    Normalize()(copy)
    return calibrate.collect(copy, wanted, data, batch=batch, progress=progress, threads=threads, unseen=unseen)
