"""The notebook runs, and writes the text that is committed; pictures are only counted. It trains a model with the Rust
program, so that it needs Rust and, the first time, minutes. ``python tests/test_notebook.py`` writes the new outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "attention.ipynb"
MOST_BYTES = 300_000


def execute(notebook: Any) -> None:
    """Runs all cells, in the folder of the notebook. Keeps what is the same in each run."""
    import nbclient

    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=3000, record_timing=False, resources=resources).execute()
    notebook.metadata["language_info"] = {"name": "python"}


def outputs(cell: Any) -> list[str]:
    """The text of each output of a cell; of a picture only that it is one."""
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        found.append("picture" if "image/png" in data else output.get("text", data.get("text/plain", "")))
    return found


@pytest.mark.notebook
def test_outputs_are_those_of_the_page() -> None:
    import nbformat

    assert NOTEBOOK.stat().st_size <= MOST_BYTES
    committed, notebook = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    execute(notebook)
    kinds = [output for cell in committed.cells for output in outputs(cell)]
    assert kinds.count("picture") == 7 and len(kinds) == 17
    for before, after in zip(committed.cells, notebook.cells, strict=True):
        assert outputs(after) == outputs(before), after.source


if __name__ == "__main__":
    import nbformat

    page = nbformat.read(NOTEBOOK, as_version=4)
    execute(page)
    nbformat.write(page, NOTEBOOK)
