"""Triton's own loop, for calls that this package's tuner cannot be told about.

Facts used, from Triton 3.6 to 3.9: `Autotuner.run` tunes and launches the winner once; `configs_timings` and
`bench_time` are there after a tune; `num_warmups`, `num_reps` and `use_cuda_graph` of an `Autotuner` are the deprecated
options from which it makes a function that measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_ops._optional import require

_upstream: Any = require("triton.runtime.autotuner", "triton_ops.autotune")
_run_of_triton = _upstream.Autotuner.run  # `install` puts another one in its place


def tuned_by_triton(kernel: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The `triton.Config` that Triton's loop finds for a call of a decorated kernel, which it launches once."""
    inner = _upstream.Autotuner(
        kernel.fn, kernel.arg_names, kernel.configs, kernel.keys, kernel.reset_to_zero, kernel.restore_value,
        pre_hook=kernel.pre_hook if kernel.user_defined_pre_hook else None,
        post_hook=kernel.post_hook if kernel.user_defined_post_hook else None,
        prune_configs_by={"perf_model": kernel.perf_model, "top_k": kernel.configs_top_k,
                          "early_config_prune": kernel.early_config_prune},
        do_bench=kernel._do_bench, cache_results=kernel.cache_results,
    )  # fmt: skip
    _run_of_triton(inner, *args, grid=grid, warmup=False, **kwargs)
    for name in ("configs_timings", "bench_time"):  # not there after a look-up in Triton's own cache
        if hasattr(inner, name):
            setattr(kernel, name, getattr(inner, name))
    return inner.best_config


def own_bench(autotuner: Any) -> Any:
    """The function that measures which somebody has given to an `Autotuner`; not that of the deprecated options."""
    deprecated = autotuner.num_warmups is not None or autotuner.num_reps is not None or autotuner.use_cuda_graph
    return None if deprecated else autotuner._do_bench
