"""A decorated kernel's noted call, made again with arguments of its specs: tuned, or measured once more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_ops.backend import Operation
from triton_ops.dispatch.deciding import KernelCall
from triton_ops.dispatch.decorator import Tuned
from triton_ops.dispatch.grid_functions import GridByConfig
from triton_ops.dispatch.launching import Launches
from triton_ops.dispatch.options import Options
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.records import NotedCall
from triton_ops.request import chosen_effort
from triton_ops.space import ConfigSpace
from triton_ops.values import Key, TensorSpec, TuningResult, from_plain

_PASSED = ("seed", "isolate", "force", "transfer", "wait", "listener", "gate", "shared_cpus")


def tune_noted(
    decorated: Any, noted: NotedCall, device: str, folder: Path, options: Mapping[str, Any]
) -> tuple[TuningResult, Key]:
    """Tune a decorated kernel for a call that was noted; gives the result, and the key of the record.

    Args:
        decorated: As of `made_again`.
        noted: The call.
        device: Torch's name of the device.
        folder: The cache folder.
        options: Of `tune`: effort, search, trials, budget_s, seed, isolate, force, transfer, wait, listener; and
            the gate and the shared CPUs of `tune_request`.

    Raises:
        TargetError: It is no decorated kernel.
        TritonKernelError: The call does not fit the kernel as it is now, or `tune` fails.
    """
    call = made_again(decorated, noted, device)
    return tuned_again(call, call.space, folder, options), call.key


def tuned_again(call: KernelCall, space: ConfigSpace, folder: Path, options: Mapping[str, Any]) -> TuningResult:
    """Tune a call that was made again, among the configs of `space`; the options are those of `tune_noted`."""
    plan = chosen_effort(*(options.get(name) for name in ("effort", "search", "trials", "budget_s")))
    passed = {name: options[name] for name in _PASSED if name in options}
    return call.tuned(call.key, space=space, plan=plan, cache_dir=folder, **passed)


def made_again(decorated: Any, noted: NotedCall, device: str) -> KernelCall:
    """The call that was noted, with new tensors of the noted shapes, uniform in [-1, 1], integers 0 to 127.

    Args:
        decorated: The kernel, as it stands in its module: of `triton_ops.autotune` or of Triton's, with or without
            heuristics around it.
        noted: The call.
        device: Torch's name of the device.

    Raises:
        TargetError: It is no decorated kernel.
        KernelTypeError: The kernel has other parameters now, or an argument cannot be made.
    """
    kernel = launches_of(decorated)
    specs = {name: from_plain(value) for name, value in noted.arguments.items()}
    if strange := [name for name in specs if name not in kernel.autotuner.arg_names]:
        raise KernelTypeError(
            f"{kernel.autotuner.base_fn.__name__} has no parameter {', '.join(strange)} any more",
            hint="call the kernel as it is now, so that its call is noted anew",
        )
    values = {
        name: spec.create_tensor(device, place) if isinstance(spec, TensorSpec) else spec
        for place, (name, spec) in enumerate(specs.items())
    }
    return kernel.call_of(_grid(noted), (), values)


def _grid(noted: NotedCall) -> GridByConfig:
    names = tuple(noted.configs[0])
    pairs = zip(noted.configs, noted.grids, strict=False)
    extents = {tuple(config[name] for name in names): grid for config, grid in pairs if config.keys() == {*names}}
    return GridByConfig(names, {at: grid if isinstance(grid, str) else tuple(grid) for at, grid in extents.items()})


def operation_of(target: Any) -> Operation | None:
    """The operation of a decorated kernel, of Triton's own decorator too, with or without heuristics around it.

    It has no grid and no problems. None for what is no decorated kernel.
    """
    kernel = _decorated_in(target)
    return None if kernel is None else launches_of(kernel).asked.operation


def launches_of(decorated: Any) -> Launches:
    """Object that decides the calls of a decorated kernel; one of Triton's own decorator stays Triton's.

    Raises:
        TargetError: There is no decorated kernel below heuristics.
    """
    kernel = _decorated_in(decorated)
    if kernel is None:
        raise TargetError(
            f"{decorated!r} is no decorated kernel, and was one when the call was noted",
            hint="name the object that the program launches, in the module that it is defined in",
        )
    return kernel.launches if isinstance(kernel, Tuned) else Launches(kernel, Options(strict=False))


def _decorated_in(target: Any) -> Any:
    """Kernel that a decorator of this package or of Triton has made, below heuristics; None if there is none."""
    while hasattr(target, "fn"):
        if hasattr(target, "configs") and hasattr(target, "prune_configs"):
            return target
        target = target.fn
    return None
