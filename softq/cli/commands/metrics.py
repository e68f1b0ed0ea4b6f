"""The command `softq metrics`."""

from __future__ import annotations

from softq.cli.command import Section, command
from softq.cli.options import JSON
from softq.cli.printing import print_json, print_text


@command(Section.LISTS)
@JSON
def metrics(as_json: bool) -> None:
    """List the metrics that --metric takes.

    A function of yours is one, too: module:function or file.py:function (docs/metrics.md).
    """
    from softq.formatting import describe_metrics, metrics_to_text

    if as_json:
        print_json({"schema": 1, "metrics": describe_metrics()})
    else:
        print_text(metrics_to_text())
