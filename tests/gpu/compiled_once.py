"""One process that compiles a launch of a decorated kernel with Inductor, and tells what was launched, as JSON.

    python -m tests.gpu.compiled_once plain|triton_op

Folders of caches come from the environment. The record is put there by the test that starts it.
"""

from __future__ import annotations

import json
import sys
from unittest import mock

import torch
import triton
from torch._dynamo.utils import counters
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

import triton_ops
from tests.tuned_kernels import add_traced

N = 1 << 16
CONFIGS = [triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]


def decorated(**more):
    """The kernel, which never tunes."""
    return triton_ops.autotune(CONFIGS, ["n"], **{"on_miss": "default", **more})(add_traced)


def grid_of(n):
    """The grid of a launch over n elements."""
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


class Launches:
    """The configs of the kernels that Inductor launches, and how many of them it has benchmarked."""

    def __init__(self):
        self.configs, self.benchmarked = [], 0

    def __enter__(self):
        run, tune = CachingAutotuner.run, CachingAutotuner.autotune_to_one_config

        def recorded(autotuner, *args, **kwargs):
            result = run(autotuner, *args, **kwargs)
            if _is_ours(autotuner):
                (launcher,) = autotuner.launchers
                self.configs.append([launcher.config.kwargs.get("BLOCK"), launcher.config.num_warps])
            return result

        def counted(autotuner, *args, **kwargs):
            self.benchmarked += _is_ours(autotuner)
            return tune(autotuner, *args, **kwargs)

        self._patches = [
            mock.patch.object(CachingAutotuner, "run", recorded),
            mock.patch.object(CachingAutotuner, "autotune_to_one_config", counted),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_):
        for patch in self._patches:
            patch.stop()


def _is_ours(autotuner):
    """Whether Inductor launches the decorated kernel with it; one from a cache has no function."""
    told = [autotuner.inductor_meta.get("kernel_name"), getattr(autotuner.fn, "__name__", "")]
    return any("add_traced" in str(each) for each in told)


def function_of(kind, kernel):
    """A function of two tensors that launches the kernel: as it is, or inside a `triton_op`."""

    def launched(x, y):
        out = torch.empty_like(x)
        kernel[grid_of(out.numel())](x, y, out, out.numel())
        return out

    if kind == "plain":
        return launched

    @torch.library.triton_op("triton_ops_tests::added", mutates_args=())
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[grid_of(x.numel())](x, y, out, x.numel())
        return out

    return lambda x, y: added(x, y)


def main(kind):
    """Compile, launch, and tell."""
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    with Launches() as launches:
        result = torch.compile(function_of(kind, decorated()), fullgraph=True)(x, y)
    told = {
        "configs": launches.configs,
        "benchmarked": launches.benchmarked,
        "right": torch.equal(result, x + y),
        "hits": counters["aot_autograd"]["autograd_cache_hit"],
        "misses": counters["aot_autograd"]["autograd_cache_miss"],
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
