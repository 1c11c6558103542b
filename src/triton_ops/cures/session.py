"""`cure_spills`: the changes of a config that may cure its spill, each tried by compiling, and measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from triton_ops.backend import CompilesAhead, Kernel, Operation
from triton_ops.backend.config_hooks import values_of
from triton_ops.backend.offline import AheadOfTime
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.cures.changes import changes
from triton_ops.cures.evidence import Examiner
from triton_ops.cures.report import CURES, HELPS, TOGETHER, SpillReport, Tried, healthy, with_time
from triton_ops.exceptions import ConfigValueError, TargetError
from triton_ops.expectation.rank import expected_of
from triton_ops.hardware import Target, gpu_missing, named_target, probe, spec_called, target_of
from triton_ops.hardware.target import TARGETS
from triton_ops.runner.session import tune, uninterrupted
from triton_ops.space import Config, ConfigSpace

_UNCHECKED = "nothing was checked"


def cure_spills(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    arch: str | None = None,
    measure: bool | None = None,
) -> SpillReport:
    """Say what a config spills to local memory, and try what may cure it; no GPU is needed.

    Each change is compiled from the config alone, one kind at a time: a smaller tile, more warps, fewer stages. Where
    none cures it, those that help are tried together. A change is kept only if it helps.

    Args:
        target: An `Operation`, a `TritonKernel` or a `LauncherKernel`.
        args: Positional arguments of the kernel, `TensorSpec`s in place of tensors or tensors on any device.
        kwargs: Keyword arguments of the kernel.
        config: Values of tunables, also as a `triton.Config`; the rest as in the space's default. They need not be in
            the space.
        space: The space, as for `tune`; None takes the operation's; a kernel's is then the config alone.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        arch: What to compile for: an architecture such as `sm_90`, or a GPU's name; None takes the GPU that is here.
        measure: Whether to time the config and the changes that help, and to drop those that make it slower; None
            does so where `arch` is None.

    Returns:
        What the config takes, every change that was tried, and the one that cures the spill, if any.

    Raises:
        TargetError: The kernel is none that Triton compiles.
        DeviceError: The architecture is not known, or none is named and no GPU is here.
        ConfigValueError: `config` is no mapping, or a value belongs to no tunable.
        SpaceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError: An argument does not fit.

    Cost: a compilation for each of up to a dozen configs; with a measurement some seconds more.
    """
    config = _checked_config(config)
    goal = _target(arch)
    if space is None and config and not isinstance(target, Operation):
        space = {name: [value] for name, value in config.items()}
    expected = expected_of(target, args, kwargs, space=space, shape=shape, dtype=dtype)
    kernel = expected.kernel.compiled_ahead if isinstance(expected.kernel, CompilesAhead) else None
    if kernel is None:
        raise TargetError(
            f"{expected.name} is no kernel that Triton compiles, so it spills nothing that can be seen",
            hint="name an Operation with a TritonKernel, or give the kernel itself",
        )
    chosen = _chosen(expected.space, expected.name, config or {})
    ahead = AheadOfTime(kernel, expected.arguments, goal, expected.space.members)
    with CompilePool(ahead) as pool:
        report = _examined(Examiner(ahead, pool), chosen, expected.space, goal)
    if not (arch is None if measure is None else measure) or not report.spills:
        return report
    return _measured(report, lambda configs: _times(target, args, kwargs, configs, shape, dtype))


def _checked_config(config: Any) -> Mapping[str, Any] | None:
    given = None if config is None else values_of(config)
    if given is not None and not isinstance(given, Mapping):
        raise ConfigValueError(f"config is {config!r}; it must be a mapping", hint="config={'BM': 64, 'num_warps': 8}")
    return given


def _target(arch: str | None) -> Target:
    if arch is None:
        return target_of(probe("cuda") if gpu_missing() is None else probe())
    if (spec := spec_called(arch)) is not None and arch.strip().lower() not in TARGETS:
        return target_of(spec)
    return named_target(arch)


def _chosen(space: ConfigSpace, name: str, values: Mapping[str, Any]) -> Config:
    """The default config with the given values, which need not be in the space; launch options may be added."""
    options = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    wrong = [one for one in values if one not in space.tunables and one not in options]
    if wrong:
        raise ConfigValueError(f"{name} has no tunable {', '.join(wrong)}", hint=f"it has {', '.join(space.tunables)}")
    known = {one: value for one, value in values.items() if one in space.tunables}
    return Config({**space.default_config, **values, **space.with_names(known)})


def _examined(examiner: Examiner, config: Config, space: ConfigSpace, target: Target) -> SpillReport:
    before = examiner.evidence(config)
    notes = [] if (why := space.why_not(config)) is None else [f"the config is not in the space: {why}"]
    if before.compiled and not healthy(before) and before.accumulator is None:
        notes.append(f"{_UNCHECKED}: a tile that must hold a whole row cannot become smaller than the row")
    if not before.compiled and config.get("maxnreg") is not None:
        notes += _without_limit(examiner, config)
    if not before.compiled or healthy(before):
        return SpillReport(target.arch, before, notes=tuple(notes))
    tried: list[Tried] = []
    for change in changes(config, space, target, lru_cache(maxsize=None)(examiner.tile)):
        one = Tried(change.name, change.why, before, ())
        for step in change.steps():
            one = Tried(change.name, change.why, before, (*one.steps, examiner.evidence(step)))
            if one.verdict == CURES:
                break
        tried.append(one)
    helps = [one for one in tried if one.verdict == HELPS]
    if len(helps) > 1 and not any(one.verdict == CURES for one in tried):
        whole = Config({**config, **{name: value for one in helps for name, value in _changed(one).items()}})
        named = " and ".join(one.name for one in helps)
        tried.append(Tried(TOGETHER, named, before, (examiner.evidence(whole),)))
    return SpillReport(target.arch, before, tuple(tried), tuple(notes))


def _without_limit(examiner: Examiner, config: Config) -> list[str]:
    """What a config that does not compile takes without its own limit of registers; nothing if it does not then."""
    freed = examiner.evidence(Config({name: value for name, value in config.items() if name != "maxnreg"}))
    if not freed.compiled:
        return []
    return [
        f"without maxnreg={config['maxnreg']} it takes {freed.registers} registers of a thread and spills "
        f"{freed.spill_bytes:,} bytes"
    ]


def _changed(tried: Tried) -> dict[str, Any]:
    if tried.best is None:
        return {}
    return {name: value for name, value in tried.best.config.items() if tried.before.config.get(name) != value}


def _measured(report: SpillReport, times: Callable[[list[Config]], dict[str, float]]) -> SpillReport:
    """The report with the times of the config and of every change that helps."""
    kept = [one.best.config for one in report.tried if one.kept and one.best is not None]
    median_ms = times(list(dict.fromkeys([report.before.config, *kept])))
    tried = tuple(one.timed(median_ms) for one in report.tried)
    notes = (note for note in report.notes if not note.startswith(_UNCHECKED))
    return SpillReport(report.target, with_time(report.before, median_ms), tried, tuple(notes))


def _times(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, configs: Iterable[Config],
    shape: Sequence[int] | None, dtype: str | None,
) -> dict[str, float]:  # fmt: skip
    """Median milliseconds of verified configs by their texts; a config that did not run is left out."""
    result = tune(
        target, args, kwargs, space=[dict(one) for one in configs], shape=shape, dtype=dtype, search="exhaustive",
        effort="quick", keep=False,
    )  # fmt: skip
    return {trial.config.text: trial.median_ms for trial in uninterrupted(result).trials if trial.ok}
