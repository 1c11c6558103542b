"""Kernels at one call: one that a program has noted, or the launch of a function that is run without a device."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Layers, Operation, TritonKernel, standing_in
from triton_ops.base import warn
from triton_ops.device import Target
from triton_ops.dispatch.calls import Calls, GridByConfig, GridWatch, example_of, grid_of_call, space_around
from triton_ops.dispatch.deciding import KernelCall, Options
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.decorator import Tuned, autotune, decorated_in
from triton_ops.dispatch.launching import Launches
from triton_ops.dispatch.triton_autotuner import AUTOTUNER
from triton_ops.exceptions import KernelTypeError, TargetError, TritonKernelError, UnknownTunableError, alternatives
from triton_ops.records import Misses, NotedCall, matching
from triton_ops.request import device_for
from triton_ops.settings import cache_folder
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Mapper, TensorSpec


def _grid(noted: NotedCall) -> GridByConfig:
    names = tuple(noted.configs[0])
    pairs = zip(noted.configs, noted.grids, strict=False)
    extents = {tuple(config[name] for name in names): grid for config, grid in pairs if config.keys() == {*names}}
    return GridByConfig(names, {at: grid if isinstance(grid, str) else tuple(grid) for at, grid in extents.items()})


def operation_of(target: object) -> Operation | None:
    """The operation of a decorated kernel with its configs, of Triton's too, without grid and problems; else None."""
    launches = None if decorated_in(target) is None else launches_of(target)
    return launches.operation if launches is not None and launches.options.listed else None


@dataclass(frozen=True, kw_only=True)
class NotedOperation(Operation):
    """A kernel at one call, that a program has noted or a function makes: its list is the space, its grids the call's.

    `values` are the arguments by name, with specs of tensors. Of a kernel without a decorator, `decorated` has one.
    `launched` tells that a function made the call, with `author_grid`.
    """

    decorated: Any
    values: Mapping[str, Any]
    launched: bool = False
    author_grid: Any = None

    @classmethod
    def of(cls, decorated: object, cache_dir: str | Path | None) -> NotedOperation | None:
        """The operation at the call that costs most among misses, else at that of the newest record.

        None where no call is noted in the folder, and for what is no decorated kernel.
        """
        if (whole := operation_of(decorated)) is None:
            return None
        folder = cache_folder(cache_dir)
        misses = [miss.call for miss in Misses(Path(folder)).read() if miss.key.kernel == whole.name]
        calls = [*misses, *(record.call for record in matching(whole.name, folder))]
        call = next((each for each in calls if isinstance(each, NotedCall)), None)
        return None if call is None else cls.at(decorated, call)

    @classmethod
    def at(cls, decorated: object, call: NotedCall) -> NotedOperation:
        """The operation of a decorated kernel at a call that was noted.

        Raises TargetError if `decorated` is no decorated kernel of `triton_ops.autotune` or of Triton's, with or
        without heuristics around it, and KernelTypeError if the kernel has other parameters now.
        """
        kernel = launches_of(decorated)
        if strange := [name for name in call.arguments if name not in kernel.autotuner.arg_names]:
            message = f"{kernel.autotuner.base_fn.__name__} has no parameter {', '.join(strange)} any more"
            raise KernelTypeError(message, hint="call the kernel as it is now, so that its call is noted anew")
        return cls._at(kernel.operation, _grid(call), call.values, decorated)

    @classmethod
    def _at(
        cls, whole: Operation, grid: Any, values: Mapping[str, Any], decorated: Any, *, launched: bool = False
    ) -> NotedOperation:
        kernel = replace(whole.kernel, grid=grid)  # type: ignore[type-var]  # it is a TritonKernel
        return cls(
            whole.name, kernel, whole.space, lambda: values, decorated=decorated, values=values, launched=launched
        )

    @classmethod
    def launched_by(
        cls, function: Callable[..., object], kernel: object, specs: Mapping[str, object],
        space: Mapping[str, object] | None, target: Target, widen: bool | None = None,
    ) -> NotedOperation:  # fmt: skip
        """The operation of a kernel at its first launch by a function, which is run without a device.

        Nothing is launched, and the function goes no further than to that launch. `specs` are the function's arguments
        by name; `space` has values of tunables, and `target` is the GPU that stands in. Without a `space`, a `widen` of
        False reads that of a kernel without a list, True that around a list too, and None takes what is launched.
        Tensors have memory only where one of them has values of its own, or the function reads some. Raises TargetError
        if the function cannot be run so, or does not launch the kernel.
        """
        layers = Layers.of(kernel)
        outer = next((layer for layer in layers if hasattr(layer, "configs")), layers[-1])
        reached: list[NotedOperation] = []

        def told(launched: object, grid: object, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
            if launched is outer and not reached:
                reached.append(cls._of_launch(kernel, space, widen, grid, args, kwargs))
                raise SystemExit  # code of the user's takes it for no error, and a thread ends by it without a word

        with_values = [spec for spec in specs.values() if isinstance(spec, TensorSpec) and not _is_plain(spec)]
        with_values += Arguments.tensors_in(specs.values())
        tuners = {AUTOTUNER, Tuned, *([type(outer)] if isinstance(outer, AUTOTUNER) else [])}  # one may run its own way
        errors: list[BaseException] = []
        for memory in ["cpu"] if with_values else ["meta", "cpu"]:
            examples = {name: _light(value, memory) for name, value in specs.items()}
            try:
                with standing_in(target, told, memory, tuners):
                    function(**TensorSpec.with_tensors(examples, memory))
            except TritonKernelError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                errors.append(error)
            if reached:
                if memory == "cpu" and not with_values:
                    reason = next((one for one in errors if not isinstance(one, SystemExit)), None)
                    detail = "" if reason is None else f" ({CandidateError.one_line(reason)})"
                    why = f"{_name_of(function)} cannot be run on tensors without values{detail}"
                    warn("%s: where --arg gives none, floats are 0 and whole numbers 0 to 127", why)
                return reached[0]
        last = next(reversed(errors), None)
        raise _not_reached(function, kernel, last) from last

    @classmethod
    def _of_launch(
        cls, kernel: object, space: Mapping[str, object] | None, widen: bool | None, grid: object,
        args: Sequence[object], kwargs: Mapping[str, object],
    ) -> NotedOperation:  # fmt: skip
        if decorated_in(kernel) is None:
            around = grid if widen is not None and not space else None
            kernel, args, kwargs = _decorated_at(kernel, space or {}, args, kwargs, around)
        call = launches_of(kernel).call_of(grid, args, kwargs)
        if widen and not space and call.configs is not None:
            call = replace(call, options=replace(call.options, widen=True))
        arguments, whole = call.called.given.keyword, call.operation
        if call.space.size.total > 1:
            GridWatch().look(grid, call.function, arguments, call.first, whole.name, tuple(call.space.tunables))
        wide = call.space
        if space and wide.listed is not None and space.keys() <= wide.tunables.keys():  # what is typed is launched too
            parts = (wide, wide.with_values(space))
            wide = ConfigSpace.from_configs([one.with_members(part.members) for part in parts for one in part])
        grids = grid_of_call(grid, call.function, arguments, wide)
        if all(isinstance(each, tuple) and 0 in each for each in getattr(grids, "extents", {0: ""}).values()):
            raise TargetError(
                f"{whole.name} is launched with no programs: its grid is {next(iter(grids.extents.values()))}",  # type: ignore[attr-defined]
                hint="give the values that its grid follows from by --arg, such as ends=[0,16,64]:int32",
            )
        values = {name: example_of(value) for name, value in arguments.items()}
        return replace(cls._at(whole, grids, values, kernel, launched=True), author_grid=grid)

    @property
    def listed(self) -> Sequence[Config] | None:
        """The configs of its list; None if it has none."""
        return self.space.listed if isinstance(self.space, ConfigSpace) else None

    @property
    def has_whole_list(self) -> bool:
        """Tell whether it has a list, of which no function of the kernel's author leaves anything out at this call."""
        whole = {*map(str, launches_of(self.decorated).autotuner.configs)}
        return self.listed is not None and len(self.listed) >= len(whole)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process is sent it without its decorator."""
        return Operation, (self.name, self.kernel, self.space, self.arguments), {"device": self.device}

    def at_call(self, device: str | None) -> KernelCall:
        """The call, with new tensors on a device; None takes what the kernel needs, else a GPU where there is one."""
        values = TensorSpec.with_tensors(self.values, device_for(device, self.device, self.name))
        return launches_of(self.decorated).call_of(self.kernel.grid, (), values)  # type: ignore[attr-defined]

    def why(self, device: str | None) -> Decision:
        """The decision that a launch of the call would take; what is not known is not tuned."""
        call = self.at_call(device)
        return launches_of(self.decorated).why(call.grid, (), call.called.given.keyword)


def _name_of(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", function))


def _not_reached(function: Callable[..., object], kernel: object, error: BaseException | None) -> TargetError:
    name = _name_of(function)
    if error is None:
        message = f"{name} does not launch {Layers.unwrap(kernel).__name__} with these arguments"
        return TargetError(message, hint="name another function, KERNEL@FUNCTION, or give other arguments")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return TargetError(
        f"{name} cannot be run without a device up to its launch: {CandidateError.one_line(error)}, "
        f"raised in {frame.filename}, line {frame.lineno}",
        hint="give what it needs by --arg, such as values that it reads, or name another function",
    )


def _is_plain(spec: TensorSpec) -> bool:
    return isinstance(spec.fill, str) and spec.fill == "uniform"


def _light(value: object, memory: str) -> object:
    """An argument, or a spec that costs no time where its values mean nothing further: of floats, or without memory."""
    if not isinstance(value, TensorSpec) or not _is_plain(value) or (memory != "meta" and "float" not in value.dtype):
        return value
    return replace(value, fill="zeros")


def _decorated_at(
    kernel: Any, space: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any],
    around: Any,
) -> tuple[Tuned, tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """A kernel with a decorator whose one config is what its launch brings, or `space` in part, and the rest of a call.

    Tunable are launch options and whole numbers that are constexpr; any other argument decides the config. Where
    `around` is the grid, other values of those that are tiles or options are read from the kernel.
    """
    names, computed = list(kernel.arg_names), Layers.heuristics(kernel)
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    constexprs = Calls.of(kernel, (), Mapper()).constexprs - computed.keys()
    numbers = {name: value for name, value in values.items() if name in constexprs and type(value) is int}
    options = {name: value for name, value in kwargs.items() if name in TritonKernel.LAUNCH_OPTIONS - {*names}}
    brings: dict[str, Any] = {**numbers, "num_warps": 4, **options}
    if strange := [name for name in space if name not in {*names, *TritonKernel.LAUNCH_OPTIONS} - computed.keys()]:
        message = (
            f"{Layers.unwrap(kernel).__name__} has no tunable {', '.join(strange)}; {alternatives(strange[0], brings)}"
        )
        raise UnknownTunableError(message, hint="correct the name in --space")
    tunables = {**{name: [value] for name, value in brings.items() if value is not None}, **space}
    rest = {name: values[name] for name in names if name in values.keys() - tunables.keys() - computed.keys()}
    configs = ConfigSpace(tunables)
    if around is not None:
        configs = space_around(kernel, values, [brings], configs.tunables, around)
    return autotune(configs, key=list(rest))(kernel), (), rest


def launches_of(decorated: object) -> Launches:
    """Object that decides the calls of a decorated kernel, of Triton's own decorator too; raises TargetError."""
    if (kernel := decorated_in(decorated)) is None:
        hint = "name the object that the program launches, in the module that it is defined in"
        raise TargetError(f"{decorated!r} is no decorated kernel, and was one when the call was noted", hint=hint)
    return kernel.launches if isinstance(kernel, Tuned) else Launches(kernel, Options())
