"""`triton_ops.autotune`: the decorator that takes the place of `triton.autotune`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.backend import LAUNCH_OPTIONS, unwrap
from triton_ops.dispatch.configs import to_triton
from triton_ops.dispatch.options import Options, mapper_of
from triton_ops.dispatch.tuned import Tuned
from triton_ops.exceptions import KernelTypeError, SettingsError, SpaceError, UnknownTunableError
from triton_ops.request import Effort
from triton_ops.space import as_space
from triton_ops.values import Mapper, Rule, Tolerance

_PRUNING = ("early_config_prune", "perf_model", "top_k")


def autotune(
    configs: Any,
    key: Sequence[str] | None = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    reference: Callable[..., Any] | None = None,
    outputs: Sequence[str] = (),
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    effort: str | Effort | None = None,
    budget_s: float | None = None,
    on_miss: str | None = None,
    buckets: Mapping[str, str | Rule | None] | Mapper | None = None,
    cache_dir: str | Path | None = None,
    isolate: bool | None = None,
) -> Callable[[Any], Tuned]:
    """Decorator that chooses the config of a `@triton.jit` kernel, in place of `triton.autotune`.

    The first launch of a problem looks for a known winner: in the lockfile, then in the records of earlier tunes.
    Where there is none, it does as `on_miss` says. Later launches of the problem go to the compiled kernel directly.

    Args:
        configs: A list of `triton.Config`s, as for Triton, or of mappings from names to values; or a `ConfigSpace`, or
            a mapping from names to lists of values.
        key: The arguments whose values decide the config. Dtypes always do.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`, as for Triton.
        reset_to_zero: Arguments that are filled with zeros before every launch of a tune, and before a problem's first.
        restore_value: Arguments that the kernel changes in place. A tune never writes the caller's tensors, so that
            naming them is not needed.
        pre_hook: Called with all arguments by name before every launch of a tune, and with `reset_only=True` before the
            first launch of a problem, as by Triton.
        post_hook: Called after every launch where Triton's own loop tunes; else not needed, and not called.
        warmup: Accepted, and not used: how long is measured follows from the effort.
        rep: As `warmup`.
        use_cuda_graph: Accepted, and not used: short kernels are timed as CUDA graphs in any case.
        do_bench: A function that measures; with it Triton's own loop tunes, in this process, and keeps nothing.
        cache_results: As for Triton; records are kept in any case.
        reference: Called with the kernel's arguments by name; returns the right outputs in order. Needs `outputs`.
        outputs: Names of the arguments that the kernel writes.
        tolerance: As for `tune`.
        check: As for `tune`.
        effort: As for `tune`.
        budget_s: As for `tune`.
        on_miss: What a launch without a known winner does: `tune`, `default`, `error` or `queue`. None takes
            `TRITON_OPS_ON_MISS`, else `tune`. `with triton_ops.on_miss(...)` comes before both.
        buckets: Rules by which values of key arguments share one winner, such as `{"n": "pow2"}`.
        cache_dir: Folder of records; None as for `tune`.
        isolate: As for `tune`.

    Returns:
        A decorator. What it returns is a `triton.runtime.autotuner.Autotuner`.

    Raises:
        SettingsError: A name in `key`, `reset_to_zero` or `restore_value` is no argument, one in `prune_configs_by` is
            not known, or a policy, an effort or a bucket is none.
        KernelTypeError: What is decorated is no kernel, or a reference is given without outputs.
        SpaceError: The config space is not well defined.
        UnknownTunableError: A config gives a value to what is neither a parameter nor a launch option.
        MissingDependencyError: Triton is not installed.

    Cost: a known launch takes about half the host time of a plain launch of Triton's; the first launch of a problem
    reads one file; a tune costs what `effort` allows.
    """
    if hasattr(configs, "arg_names"):
        raise SpaceError(
            f"{unwrap(configs).__name__} stands in the place of the configs",
            hint="write @triton_ops.autotune(configs, key=[...]) above @triton.jit",
        )
    listed = isinstance(configs, (list, tuple)) or configs is None
    space = None if listed else as_space(configs)
    _check_pruning(prune_configs_by)

    def decorate(kernel: Any) -> Tuned:
        parameters = _parameters(kernel)
        _check_names(kernel, {"key": key, "reset_to_zero": reset_to_zero, "restore_value": restore_value,
                              "outputs": outputs}, parameters)  # fmt: skip
        options = Options(
            space=space, reference=reference, outputs=tuple(outputs),
            tolerance=tolerance, check=check, effort=effort, budget_s=budget_s, on_miss=on_miss,
            mapper=mapper_of(buckets, parameters, key or ()), cache_dir=cache_dir, isolate=isolate,
        )  # fmt: skip
        offered = _offered(configs) if space is None else [to_triton(space.default_config, members=space.members)]
        tuned = space.tunables if space is not None else [name for one in offered for name in one.kwargs]
        _check_tunables(kernel, tuned, parameters)
        return Tuned(
            kernel, kernel.arg_names, offered, key, reset_to_zero, restore_value, pre_hook=pre_hook,
            post_hook=post_hook, prune_configs_by=prune_configs_by, warmup=warmup, rep=rep,
            use_cuda_graph=use_cuda_graph, do_bench=do_bench, cache_results=cache_results, options=options,
        )  # fmt: skip

    return decorate


def _check_pruning(prune_configs_by: Any) -> None:
    if not isinstance(prune_configs_by, (Mapping, type(None))):
        raise SettingsError(
            f"prune_configs_by is {prune_configs_by!r}, no mapping", hint='write {"early_config_prune": function}'
        )
    if strange := [name for name in prune_configs_by or () if name not in _PRUNING]:
        raise SettingsError(
            f"prune_configs_by has {', '.join(map(repr, strange))}; it takes {', '.join(_PRUNING)}",
            hint="correct the name, or leave it out",
        )


def _offered(configs: Sequence[Any] | None) -> list[Any]:
    """The `triton.Config`s of a list, in which mappings may stand for them."""
    offered = [to_triton(one) if isinstance(one, Mapping) else one for one in configs or ()]
    if strange := [one for one in offered if not hasattr(one, "all_kwargs")]:
        raise SpaceError(
            f"{strange[0]!r} in the list of configs is no triton.Config",
            hint='write triton.Config({"BLOCK": 128}, num_warps=4), or {"BLOCK": 128, "num_warps": 4}',
        )
    return offered


def _parameters(kernel: Any) -> list[str]:
    if not (hasattr(kernel, "arg_names") and hasattr(kernel, "run")):
        raise KernelTypeError(
            f"{kernel!r} is no Triton kernel", hint="write @triton_ops.autotune(...) above @triton.jit"
        )
    return list(kernel.arg_names)


def _check_tunables(kernel: Any, names: Iterable[str], parameters: Sequence[str]) -> None:
    if strange := list(dict.fromkeys(name for name in names if name not in parameters and name not in LAUNCH_OPTIONS)):
        raise UnknownTunableError(
            f"{unwrap(kernel).__name__} has no parameter {', '.join(map(repr, strange))} to be tuned; it has "
            f"{', '.join(parameters)}, and there are the launch options {', '.join(sorted(LAUNCH_OPTIONS))}",
            hint="correct the tunable's name",
        )


def _check_names(kernel: Any, named: Mapping[str, Sequence[str] | None], parameters: Sequence[str]) -> None:
    for what, names in named.items():
        if isinstance(names, str):
            raise SettingsError(f"{what} is the text {names!r}; it is a list of names", hint=f"write [{names!r}]")
        if not isinstance(names, (Iterable, type(None))):
            raise SettingsError(f"{what} is {names!r}; it is a list of names", hint='write ["n"]')
        if strange := [name for name in names or () if name not in parameters]:
            raise SettingsError(
                f"{what} names {', '.join(map(repr, strange))}, which is no argument of {unwrap(kernel).__name__}; "
                f"it has {', '.join(parameters)}",
                hint="correct the name, or leave it out",
            )
