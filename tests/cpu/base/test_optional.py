"""Optional packages are imported by several threads at once."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from triton_ops.base import require
from triton_ops.exceptions import MissingDependencyError


def test_a_package_and_its_module_are_imported_by_two_threads_at_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "slow_package"
    package.mkdir()
    # The other thread has time to begin with the module before the package imports it, and then waits for the package.
    (package / "__init__.py").write_text(
        "import time\ntime.sleep(0.3)\nneeded = 1\nfrom slow_package.part import wanted\n"
    )
    (package / "part.py").write_text("from slow_package import needed\nwanted = 2\n")
    failed = []

    def load(name):
        try:
            require(name, "a test")
        except MissingDependencyError as error:
            failed.append(error)

    threads = [threading.Thread(target=load, args=(name,)) for name in ("slow_package", "slow_package.part")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("slow_package", "slow_package.part"):
        sys.modules.pop(name, None)
    assert not failed


def test_a_log_that_torch_does_not_have_is_the_reason_why_torch_cannot_be_imported():
    """Torch refuses to be imported, and a second attempt in the same process fails for another reason."""
    pytest.importorskip("torch")
    asked = [sys.executable, "-m", "triton_ops", "torch", "modes", "simple-mlp"]
    source = str(Path(__file__).parents[3] / "src")
    environment = {**os.environ, "TORCH_LOGS": "+inductr,perf_hints", "PYTHONPATH": source}
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be imported: TORCH_LOGS is '+inductr,perf_hints', and torch has no log 'inductr'" in done.stderr
    assert done.stderr.endswith("(hint: correct TORCH_LOGS; close are inductor)\n")
    assert len(done.stderr.splitlines()) == 1


def test_a_part_of_torch_that_cannot_be_imported_leaves_the_rest(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (tmp_path / "lame_part.py").write_text("raise OSError('no such library')")
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    for _ in range(2):
        with pytest.raises(MissingDependencyError, match="a test, and cannot be imported: OSError: no such library"):
            require("torch.lame_part", "a test")
    assert require("torch", "a test") is torch
