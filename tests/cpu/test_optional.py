"""Optional packages are imported by several threads at once."""

import sys
import threading

from triton_ops._optional import require
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
