"""The notebook of the examples runs, from a log that it makes to its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_python import environment

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "read_log.ipynb"


def test_the_notebook_goes_from_a_log_to_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("nbclient", "ipykernel", "duckdb", "pandas", "matplotlib"):
        pytest.importorskip(needed, reason=f"skipped: {needed} is not installed")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = "".join(output.get("text", "") for output in outputs)
    assert "nothing is known to be lost" in texts
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/png" in data for data in shown) == 2
    tables = [data["text/plain"] for data in shown if "text/html" in data]
    assert len(tables) == 1 and "simpler_run.runner_run" in tables[0]
