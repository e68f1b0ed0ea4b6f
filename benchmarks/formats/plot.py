"""The plots of docs/formats.md; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.formats.rows import LENGTHS, MEANS, SPREADS
from benchmarks.formats.settings import SETTINGS, Setting

_DRAWN = (
    "FP8 E4M3",
    "FP8 E5M2",
    "MXFP8 E4M3",
    "MXFP4",
    "NVFP4",
    "NVFP4 of p",
    "NVFP4, V too",
    "deferred-log",
    "EXAQ, clip fitted",
    "IndexSoftmax",
    "uniform",
)
_GREY = {"deferred-log": "black", "uniform": "grey", "exaq": "peru", "index-softmax": "teal"}


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Draw the error of P V against the length, a panel for each mean of V and each spread."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), sharex=True, sharey="row")
    drawn = [setting for setting in SETTINGS if setting.label in _DRAWN]
    cells = {(r["label"], r["bits"], r["mean"], r["spread"], r["length"]): r for r in found["rows"]}
    for line, mean in zip(panels, MEANS, strict=True):
        for panel, spread in zip(line, SPREADS, strict=True):
            for number, setting in enumerate(drawn):
                mine = [cells[*setting.key, mean, spread, length] for length in LENGTHS]
                panel.errorbar(
                    LENGTHS, [r["error"] for r in mine], [r["half"] for r in mine], marker="os^vDx"[number % 6],
                    color=_GREY.get(setting.method, f"C{number}"), markersize=4, capsize=2,
                    linestyle={8: "-", 5: "--", 4: ":"}.get(int(setting.bits), "-."), label=_name(setting),
                )  # fmt: skip
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
            panel.set_title(f"V of mean {mean:g}, scores of sd {spread:g}", fontsize=10)
            panel.grid(visible=True, linewidth=0.3)
    for panel in panels[1]:
        panel.set_xlabel("N")
    for panel in panels[:, 0]:
        panel.set_ylabel("relative error of P V")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 0.8, 1))
    figure.savefig(path, dpi=100)
    plt.close(figure)


def plot_models(found: Mapping[str, Any], path: Path) -> None:
    """Draw each model's distance from its float outputs against the bits of a weight."""
    import matplotlib.pyplot as plt

    models = found["models"]
    figure, panels = plt.subplots(2, 2, figsize=(12, 8), sharex=True)
    for panel, model in zip(panels.flat, models, strict=True):
        for number, setting in enumerate(s for s in SETTINGS if s.label in _DRAWN):
            (row,) = [r for r in model["rows"] if (r["label"], r["bits"]) == setting.key] or [None]
            if row is not None:
                panel.plot([setting.bits], [row["distance"]], marker="os^vDx"[number % 6], linestyle="",
                           color=_GREY.get(setting.method, f"C{number}"), label=_name(setting))  # fmt: skip
        panel.set_yscale("log")
        panel.set_title(f"{model['name']}, {model['samples']} of {model['of']} samples", fontsize=10)
        panel.set_ylabel(model["distance"])
        panel.grid(visible=True, linewidth=0.3)
    for panel in panels[1]:
        panel.set_xlabel("bits of a weight, block scales counted")
    found_labels: dict[str, Any] = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        found_labels |= dict(zip(labels, handles, strict=True))
    figure.legend([*found_labels.values()], [*found_labels], loc="center right", fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 0.8, 1))
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _name(setting: Setting) -> str:
    return f"{setting.label}, {setting.bits:g} bits"
