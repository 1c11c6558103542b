"""The page on notebooks, run by Jupyter itself: cells, event loop and outputs are those of a real kernel."""

import pytest

from tests.docs.test_code_blocks import PROJECT, python_blocks

nbformat = pytest.importorskip("nbformat", reason="there is no Jupyter: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="there is no Jupyter: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="there is no Jupyter: pip install nbclient ipykernel")


@pytest.mark.filterwarnings("default")  # those of Jupyter's own packages
def test_jupyter_runs_the_page(tmp_path):
    blocks = [block for block in python_blocks(PROJECT / "docs/start/notebook.md") if not block.gpu]
    cells = [nbformat.v4.new_code_cell(block.text) for block in blocks]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = (one for one in cells[0].outputs if one.output_type == "execute_result")
    assert shown.data["text/plain"].startswith("Best config: {rows=64}\n")
