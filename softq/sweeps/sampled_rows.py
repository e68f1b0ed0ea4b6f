"""A bounded sample of the rows of every site, from the data that a sweep measures on, and what settings do to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from softq.calibration import collect_rows
from softq.errors import SoftqError
from softq.methods import METHODS
from softq.sweeps.evaluate.evaluator import Subject
from softq.sweeps.evaluate.row_errors import SiteRows
from softq.sweeps.planner import Planner
from softq.sweeps.records import Setting, SiteErrors
from softq.sweeps.task import Task
from softq.wording import by_reason

BATCHES = 16
"""Batches, spread evenly over the data, that rows are taken from. Four maps per head are kept of them, so that more
would hardly say more, and the cost is bounded whatever the size of the data."""


class Rows:
    """The sampled rows of the sites that take one of some methods.

    Args:
        planner: The planner of the model.
        subject: What is measured with; its data are sampled.
        task: What is measured.
        methods: Names of the methods.

    Attributes:
        unseen: Why there are no rows of a site, by id; known after `sample`.
    """

    def __init__(self, planner: Planner, subject: Subject, task: Task, methods: Iterable[str]) -> None:
        self._planner, self._subject, self._task, self._methods = planner, subject, task, tuple(methods)
        self._rows: dict[str, SiteRows] = {}
        self.unseen: dict[str, str] = {}

    def sample(self, report: Callable[[int, int | None], None] | None = None) -> None:
        """Take the sample, by one run of the float model over a bounded part of the data.

        Args:
            report: Called with the samples done and the samples there are.

        Raises:
            InputError: the data cannot be read.
        """
        planner, subject = self._planner, self._subject
        data = subject.data.spread(BATCHES, subject.batch)
        # The sites of methods that give logarithms hold those of the others.
        for flag in sorted({METHODS.get(method).logarithms for method in self._methods}):
            wanted = [site.id for site in planner.found(flag) if site.takes_method and site.id not in self._known()]
            if not wanted:
                continue
            found = collect_rows(
                planner.model, wanted, data, flag, self._task.selection.assumed, batch=subject.batch, progress=report,
                threads=self._task.threads, unseen=self.unseen,
            )  # fmt: skip
            for site, samples in found.items():
                rows = SiteRows(samples)
                if rows.heads:
                    self._rows[site] = rows
                else:
                    self.unseen[site] = "the data have no row with an unmasked element there"

    def of(self, site: str) -> SiteRows | None:
        """Return the rows of a site, None where they cannot be seen."""
        return self._rows.get(site)

    def everywhere(self, setting: Setting) -> dict[str, SiteErrors]:
        """Return what a setting of all sites does to the rows of each site that can be seen, by id.

        Raises:
            SoftqError: the setting is none that can be measured.
        """
        choice = (setting.method, setting.options)
        return {
            site: rows.errors(self._planner.site_plan(site, choice))
            for site in self._planner.sites(setting.method)
            if (rows := self._rows.get(site)) is not None
        }

    def _known(self) -> set[str]:
        return {*self._rows, *self.unseen}


def sample_or_note(rows: Rows, notes: list[str], report: Callable[[int, int | None], None] | None) -> None:
    """Sample rows whose errors are a by-product: what goes wrong is a note."""
    try:
        rows.sample(report)
    except SoftqError as error:
        notes.append(f"no errors of sites: {error}")
    notes += [f"no errors of {sites}: {why}" for sites, why in by_reason(rows.unseen)]
