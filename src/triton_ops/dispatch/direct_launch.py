"""What a launch of a compiled kernel comes to, and what tells that it may no longer be the same.

Others may change what Triton does at a launch: hooks, knobs, the driver, globals of a kernel, its `run`. The conditions
that tell are source, for functions that are written for known launches; their names follow an @, for which a beginning
is put that nothing else there has.

Triton's launchers are Python objects. Each call of one defines functions that would allocate scratch, looks at sizes
that never change, and then calls a C function with some constants added: about a microsecond of a launch. A launcher
that needs no scratch adds the same constants each time, so it is asked once, with marks in place of arguments.

Facts used, from Triton 3.6 to 3.9: a launcher keeps its C function as the attribute `launch`, is called with the grid,
the stream, the function, four things of the launch and the kernel's arguments, and hands on the latter either one by
one or, from 3.7 on, in one tuple at the end. `global_scratch_size` and `profile_scratch_size` say what it allocates;
`gsan_enabled` says that it does more. Where a kernel has descriptors, `launch` is a function of Python's that encodes
them for the GPU, by the address and the layout of each, and calls the C function, which it closes over as `launcher`.
"""

from __future__ import annotations

import copy
import importlib
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple, cast

from triton_ops.backend import Arguments, launches_are_taken
from triton_ops.base import BoundedDict
from triton_ops.dispatch.calls import runs_of

_ABSENT = object()
_AXES = 3
_OF_RUNTIME = ("launch_enter_hook", "launch_exit_hook", "debug", "add_stages_inspection_hook")
_OF_COMPILATION = ("instrumentation_mode", "fpsan_homomorphic_casts")


class LaunchWith(NamedTuple):
    """What a kernel is launched with: the values of its parameters by name, other options, and the grid's extents."""

    values: dict[str, Any]
    options: dict[str, Any]
    extents: tuple[int, ...]


def launch_with(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any) -> LaunchWith:
    """What a launch comes to whose arguments are these."""
    names = [param.name for param in kernel.params]
    values = {param.name: param.default for param in kernel.params if param.has_default}
    values |= dict(zip(names, args, strict=False)) | {name: kwargs[name] for name in names if name in kwargs}
    own = grid(values) if callable(grid) else grid
    extents = [each if isinstance(each, int) else operator.index(each) for each in own]
    options = {name: value for name, value in kwargs.items() if name not in values}
    return LaunchWith(values, options, (*extents, 1, 1)[:_AXES])


def values_of_knobs() -> tuple[dict[str, Any], dict[str, Any]]:
    """The knobs of Triton's launches and of its compiler that are set now."""
    knobs = importlib.import_module("triton.knobs")
    return dict(vars(knobs.runtime)), dict(vars(knobs.compilation))


def process_space(driver: Any, values: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """What the names in conditions on the process mean, for launches by `driver` with these values of knobs."""
    knobs = importlib.import_module("triton.knobs")
    runtime, compilation = knobs.runtime, knobs.compilation
    return {
        "taken": launches_are_taken,
        "driver": triton_driver(), "seen_driver": driver, "device_of": device_teller(driver),
        "runtime": runtime, "compilation": compilation, "runtime_values": vars(runtime),
        "compilation_values": vars(compilation), "seen_runtime": values[0], "seen_compilation": values[1],
        **{name: getattr(runtime, name, None) for name in _OF_RUNTIME},
        **{name: getattr(compilation, name, None) for name in _OF_COMPILATION},
        "calls_before": getattr(runtime.launch_enter_hook, "calls", runtime.launch_enter_hook),
        "calls_after": getattr(runtime.launch_exit_hook, "calls", runtime.launch_exit_hook),
    }  # fmt: skip


def process_doubts(space: Mapping[str, Any]) -> list[str]:
    """Conditions on the process under which a launch goes the plain way.

    A knob that is set stands in the dictionary of its group, so that one comparison tells whether any was; one that
    Triton computes at each access is read.
    """
    conditions = [
        "@taken()", "@calls_before", "@calls_after", "@runtime_values != @seen_runtime",
        "@compilation_values != @seen_compilation",
    ]  # fmt: skip
    for group, names in (("runtime", _OF_RUNTIME), ("compilation", _OF_COMPILATION)):
        computed_names = [name for name in names if hasattr(getattr(type(space[group]), name, None), "__get__")]
        conditions += [f"@{group}.{name} != @{name}" for name in computed_names]
    if space["add_stages_inspection_hook"] is not None:
        conditions.append("@add_stages_inspection_hook is not None")
    return conditions


KERNEL_DOUBTS = ("@kind.run is not @run_of_kind", "'run' in @own", "@hooks_before", "@jit.debug is not @jit_debug")
"""Conditions on a kernel under which a launch of it goes the plain way."""


def kernel_space(jit: Any) -> dict[str, Any]:
    """What the names in conditions on a kernel mean."""
    return {
        "kind": type(jit), "run_of_kind": type(jit).run, "own": vars(jit), "jit": jit, "jit_debug": jit.debug,
        "hooks_before": jit.pre_run_hooks, "caches": jit.device_caches, "used_globals": jit.used_global_vals,
    }  # fmt: skip


def runs_as_triton(function: Any) -> bool:
    """Tell whether nobody has put something in the place of a `run`, which direct launches pass by.

    None as the function asks for the classes alone.
    """
    modules = [importlib.import_module(name) for name in ("triton.runtime.jit", "triton.runtime.autotuner")]
    runs = [(None, modules[0].JITFunction.run, None)] if function is None else runs_of(function)
    return all(
        put is None and any(getattr(run, "__globals__", None) is vars(each) for each in modules) for _, run, put in runs
    )


def globals_changed(used: Mapping[Any, tuple[Any, Mapping[str, Any]]]) -> bool:
    """Whether a global that the kernel was compiled with has another value now; the plain way then raises."""
    # Over a list, since a compilation on another thread may add to what is used.
    return any(scope.get(name, _ABSENT) != value for (name, _), (value, scope) in list(used.items()))


def device_teller(active: Any) -> Callable[[], int]:
    """The function that tells the current device: torch's own below the one that looks first whether CUDA has started.

    It has where a kernel was launched, and in a forked child, where it has not, every launch is forgotten.
    """
    torch: Any = sys.modules.get("torch")
    direct = getattr(getattr(torch, "_C", None), "_cuda_getDevice", None)
    if direct is None or active.get_current_device is not torch.cuda.current_device:
        return cast(Callable[[], int], active.get_current_device)
    return cast(Callable[[], int], direct)


def triton_driver() -> Any:
    """Triton's place for the driver by which it launches."""
    return importlib.import_module("triton.runtime.driver").driver


_GRID = (1, 1, 1)
_LEAD = 5  # arguments of the C function that come first: the grid, the stream and the function
_NEEDS = ("global_scratch_size", "profile_scratch_size")


def launch_of(compiled: Any) -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    """The call that launches a compiled kernel: its C function where that always takes the same, else its launcher.

    With it come the values between the launch's function and the kernel's arguments, and whether these are one tuple.
    """
    by_launcher = compiled.run, (compiled.packed_metadata, None, None, None), False
    return _direct_launch(compiled.run, compiled.packed_metadata) or by_launcher


def _direct_launch(launcher: Any, packed_metadata: Any) -> tuple[Callable[..., Any], tuple[Any, ...], bool] | None:
    """The call of a launcher's C function, without hooks and launch metadata; None unless that is always the same.

    It is the function, what it takes between the launch's function and the kernel's arguments, and whether the latter
    are one tuple.
    """
    state = getattr(launcher, "__dict__", {})
    function = state.get("launch")
    if not callable(function) or any(state.get(name) != 0 for name in _NEEDS) or state.get("gsan_enabled"):
        return None
    # Asked with one argument and with two: what is equal in both does not follow from the arguments.
    one, two = (_between(launcher, packed_metadata, marks) for marks in ((object(),), (object(), object())))
    return None if one is None or one != two else (function, *one)


def _between(launcher: Any, packed_metadata: Any, marks: tuple[object, ...]) -> tuple[tuple[Any, ...], bool] | None:
    """The values that a call hands to the C function before `marks`, its arguments, and whether these are one tuple.

    None if the call does more, or where the marks do not come last.
    """
    calls: list[tuple[Any, ...]] = []
    # A copy, since other threads may launch by the launcher itself meanwhile.
    recorder = copy.copy(launcher)
    recorder.launch = lambda *handed: calls.append(handed)
    stream, kernel = object(), object()
    try:
        recorder(*_GRID, stream, kernel, packed_metadata, None, None, None, *marks)
    except (TypeError, AttributeError):
        return None
    if len(calls) != 1 or calls[0][:_LEAD] != (*_GRID, stream, kernel):
        return None
    handed = calls[0][_LEAD:]
    if handed and handed[-1] == marks:
        return handed[:-1], True
    if handed[-len(marks) :] == marks:
        return handed[: -len(marks)], False
    return None


class Encoded(NamedTuple):
    """The C function of a launch with descriptors, and what it is handed after the launch's function.

    `known` gives that for the addresses of a launch that was encoded before; `encode` for other ones, with the
    kernel's arguments. Whoever uses it sees to it that nothing else of these may change.
    """

    run: Callable[..., Any]
    known: Callable[[tuple[int, ...]], Any]
    encode: Callable[[tuple[int, ...], tuple[Any, ...]], tuple[Any, ...]]

    @classmethod
    def of(cls, run: Callable[..., Any], added: tuple[Any, ...], in_one: bool) -> Encoded | None:
        """For a launch as `launch_of` has it; None unless it encodes descriptors in this way."""
        if not isinstance(run, FunctionType) or _BELOW not in (names := run.__code__.co_freevars):
            return None
        cells = dict(zip(names, run.__closure__ or (), strict=True))
        # The same code over another cell gives back what it would hand to the C function, and launches nothing.
        instead = tuple({**cells, _BELOW: CellType(lambda *handed: handed)}.values())
        handed = FunctionType(run.__code__, run.__globals__, run.__name__, run.__defaults__, instead)
        known = BoundedDict[tuple[int, ...], tuple[Any, ...]](_MOST_ENCODED)

        def encode(addresses: tuple[int, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            rest = handed(*_GRID, 0, 0, *added, *((arguments,) if in_one else arguments))[_LEAD:]
            if not any(map(Arguments.is_tensor, rest[-1] if in_one else rest)):  # else it would stay alive
                known[addresses] = rest
            return cast(tuple[Any, ...], rest)

        return cls(cells[_BELOW].cell_contents, known.get, encode)


_BELOW = "launcher"
_MOST_ENCODED = 1_024  # of one launch: a model calls it with the weights of each layer
