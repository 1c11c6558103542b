"""One process that makes a package of AOTInductor, or loads one and runs it; it tells each step as it begins.

    python -m tests.gpu.packaged_once make ours|sum FILE.pt2
    python -m tests.gpu.packaged_once load FILE.pt2

`ours` launches the decorated kernel, whose record the test has written; `sum` is torch's own addition, beside which a
failure of torch itself can be told. After `LIMIT_S` seconds the process prints its stack and ends. `DEVICE=cpu` does
the same on the CPU, for `sum` alone.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import time

import torch

from tests.gpu.compiled_once import decorated, function_of

LIMIT_S = 75.0
CONFIG = {"aot_inductor.precompile_headers": False}  # two headers take longer than one small wrapper without them
_began = time.monotonic()


def step(name):
    """A step begins."""
    sys.stderr.write(f"{time.monotonic() - _began:5.1f} s: {name}\n")
    sys.stderr.flush()


def inputs():
    """Two vectors of 65,536 elements."""
    device = os.environ.get("DEVICE", "cuda")
    return torch.ones(1 << 16, device=device), torch.ones(1 << 16, device=device)


def make(kind, path):
    """Write the package."""
    function = torch.add if kind == "sum" else function_of("triton_op", decorated())

    class Module(torch.nn.Module):
        def forward(self, x, y):
            return function(x, y)

    step("export")
    program = torch.export.export(Module(), inputs())
    step("compile and package")
    torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=CONFIG)


def load(path):
    """Load the package and run it."""
    x, y = inputs()
    step("load")
    package = torch._inductor.aoti_load_package(path)
    step("run")
    torch.testing.assert_close(package(x, y), x + y)


def main(what, *words):
    """Do what is asked for, within the limit."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the memory of a process with a GPU takes long to write
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    step(what)
    {"make": make, "load": load}[what](*words)
    step("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
