"""Without torch: the demo, and which results of NumPy's can be judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NO_TORCH = "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
DEMO = "import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
PARTS = """
import numpy as np
from triton_ops import tune

def doubled(x, *, rows):
    return np.concatenate([2 * x[at : at + rows] for at in range(0, len(x), rows)])

def off_by_one(x, *, rows):
    return doubled(x, rows=rows) + (rows == 64)

x = np.arange(256, dtype=DTYPE)
result = tune(off_by_one, (x,), space={"rows": [256, 64]}, reference=lambda x: 2 * x, CHECK)
print({trial.config["rows"]: f"{trial.status} {trial.error}".strip() for trial in result.trials})
"""


@pytest.fixture
def without_torch(tmp_path):
    """Runs code in a process in which neither torch nor Triton can be imported."""

    def run(code, *arguments):
        return subprocess.run(
            [sys.executable, "-c", NO_TORCH + code, *arguments],
            cwd=tmp_path, text=True, capture_output=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT / 'examples'}",
                 "TRITON_OPS_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip

    return run


def test_the_demo_needs_no_torch(without_torch, tmp_path):
    done = without_torch(DEMO, str(PROJECT / "examples" / "demo.py"))
    assert done.returncode == 0, done.stderr
    assert "Trials: 6: 6 ok" in done.stdout
    assert "Verified: results compared with the reference" in done.stdout
    assert "from its record in" in done.stdout
    assert "$ triton-ops cache show" in done.stdout
    assert f"file://{tmp_path}/build/demo/report.html" in done.stdout
    assert "nearest_in_parts" in (tmp_path / "build/demo/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("dtype", "check"), [("'int64'", ""), ("'float64'", "check=np.array_equal")])
def test_equal_results_are_told_from_others_without_torch(without_torch, dtype, check):
    done = without_torch(PARTS.replace("DTYPE", dtype).replace("CHECK", check))
    assert done.returncode == 0, done.stderr
    assert "{256: 'ok', 64: 'wrong " in done.stdout


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_numbers_that_may_differ_are_not_judged_without_torch(without_torch, dtype):
    done = without_torch(PARTS.replace("DTYPE", repr(dtype)).replace("CHECK", ""))
    assert done.returncode != 0
    assert "MissingDependencyError: torch is needed" in done.stderr
    assert f"numbers of {dtype} may differ (a `check` needs none)" in done.stderr
