"""The distribution of `serving`, as if it were installed: this process finds its package and its entry points."""

import importlib.metadata
import sys
import tempfile
from pathlib import Path

import tomllib

SERVING = Path(__file__).parents[1] / "serving"


def declare_serving():
    """Have Python find the package and its entry points, in a folder that lasts as long as what is returned."""
    project = tomllib.loads((SERVING / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tempfile.TemporaryDirectory(prefix="triton-ops-serving-")
    metadata = Path(folder.name, f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    metadata.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.path[:0] = [str(SERVING)]
    if not importlib.metadata.entry_points(group="triton_ops.commands", name="triton_ops_serving"):
        sys.path[:0] = [folder.name]
    return folder
