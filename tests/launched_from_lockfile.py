"""Print, as JSON, the modules of the package that a process has imported once it has launched from a lockfile.

The lockfile is made first, by modules that the process then forgets.
"""

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import torch

from tests.launches import launches_that_do_nothing

KERNELS = "tests.decorated_kernels"
ARGUMENTS = (*(torch.zeros(1024) for _ in range(3)), 1024)


def grid(meta):
    return (-(-ARGUMENTS[-1] // meta["BLOCK"]),)


def lockfile(folder):
    """A lockfile with a winner for the call."""
    from triton_ops.records import LockedDevice, LockEntry, Lockfile
    from triton_ops.space import Config

    key = import_module(KERNELS).add.launches.call_of(grid, ARGUMENTS, {}).key
    device = LockedDevice(alias="here", kind=key.device["kind"], name=key.device["name"])
    winner = Config(BLOCK=128, num_warps=8, num_stages=3)
    problem = {**key.problem, "n": ARGUMENTS[-1]}
    entry = LockEntry(kernel=key.kernel, device="here", config=winner, problem=problem, identity=key.identity)
    Lockfile((device,), (entry,)).write(folder / "lock.json")
    return folder / "lock.json"


def ours():
    return sorted(name for name in sys.modules if name.partition(".")[0] == "triton_ops")


def main():
    with tempfile.TemporaryDirectory() as folder, launches_that_do_nothing() as launches:
        os.environ["TRITON_OPS_CACHE_DIR"] = folder
        path = lockfile(Path(folder))
        for name in [*ours(), KERNELS]:
            del sys.modules[name]
        import_module("triton_ops").use_lockfile(path)
        kernel = import_module(KERNELS).add
        for _ in range(3):
            kernel[grid](*ARGUMENTS)
        assert [decision.found.rung for decision in kernel.decisions] == ["lockfile"]
        assert len(launches.made) == 3
        sys.stdout.write(json.dumps(ours()))


if __name__ == "__main__":
    main()
