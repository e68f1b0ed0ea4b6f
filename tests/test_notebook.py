"""The notebook runs, and prints what it holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "softq.ipynb"


def _printed(book: Any) -> list[str]:
    """Return what each cell printed; the last digits of numbers are those of the machine."""
    texts = ["".join(out.get("text", "") for out in cell.get("outputs", ())) for cell in book.cells]
    return [re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.1f}", text) for text in texts]


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_it_holds() -> None:
    pytest.importorskip("ipykernel", reason="pip install '.[notebook]'")
    nbclient = pytest.importorskip("nbclient", reason="pip install '.[notebook]'")
    nbformat = pytest.importorskip("nbformat", reason="pip install '.[notebook]'")
    held = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    for cell in fresh.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell["outputs"] = []
    client = nbclient.NotebookClient(fresh, timeout=600, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    assert _printed(fresh) == _printed(held)
    assert sum(map(bool, _printed(held))) >= 6
