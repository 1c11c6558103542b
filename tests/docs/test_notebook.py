"""The page on notebooks, run by Jupyter itself: cells, event loop and outputs are those of a real kernel."""

import nbclient
import nbformat
import pytest

from tests.docs.test_code_blocks import PROJECT, python_blocks


@pytest.mark.filterwarnings("default")  # those of Jupyter's own packages
def test_jupyter_runs_the_page(tmp_path):
    blocks = [block for block in python_blocks(PROJECT / "docs/start/notebook.md") if not block.gpu]
    cells = [nbformat.v4.new_code_cell(block.text) for block in blocks]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = (one for one in cells[0].outputs if one.output_type == "execute_result")
    assert shown.data["text/plain"].startswith("Best config: {rows=64}\n")
    assert "<td>rows=64</td>" in shown.data["text/html"]
