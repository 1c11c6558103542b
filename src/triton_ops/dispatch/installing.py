"""`install`: kernels under `triton.autotune` are tuned and launched by this package, without an edit of their code.

Facts used, from Triton 3.6 to 3.9: `triton.autotune`, `triton.runtime.autotune` and
`triton.runtime.autotuner.autotune` are the decorator; every autotuned kernel is launched by `Autotuner.run`, also those
of subclasses that call it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from triton_ops.backend import Layers, TritonProcess
from triton_ops.base import ForkSafeLock, require, warn
from triton_ops.dispatch import triton_autotuner as own_loop
from triton_ops.dispatch.deciding import Options
from triton_ops.dispatch.decorator import Tuned
from triton_ops.dispatch.early_start import await_tune
from triton_ops.dispatch.launching import Launches
from triton_ops.request import Effort, TuneOptions

# Each has the function under a name of its own, which does not change with the others.
_PLACES = ("triton", "triton.runtime", "triton.runtime.autotuner")
_guard = ForkSafeLock(threading.RLock)


@dataclass(eq=False)
class _Installed:
    """Functions in Triton's place; the end of `undo` gives their places back."""

    options: Options
    undo: ExitStack = field(default_factory=ExitStack)
    adopted: WeakKeyDictionary[Any, Launches] = field(default_factory=WeakKeyDictionary)
    told: bool = False  # that other options were asked for later


_installed: list[_Installed] = []


def install(
    *,
    on_miss: str | None = None,
    effort: str | Effort | None = None,
    budget_s: float | None = None,
    cache_dir: str | Path | None = None,
    isolate: bool | None = None,
    same_bits: bool | None = None,
) -> AbstractContextManager[object]:
    """Let this package tune and launch every kernel under `triton.autotune` in this process, until `uninstall`.

    Kernels that are decorated from now on, kernels that were decorated before, and those of subclasses of Triton's
    `Autotuner` are taken alike. It may be used as a context manager, which uninstalls at the end.

    To call it again does nothing: what was installed first stays, and one warning tells of other options.

    Where misses are tuned and nothing is recorded yet, the process in which the first tune will run begins before it,
    here or with the first kernel that is decorated once torch is imported: as a copy of the program where a fork is
    safe, else as a new one. It ends after a minute if no tune has come.

    Args:
        on_miss: As for `triton_ops.autotune`.
        effort: As for `triton_ops.autotune`.
        budget_s: As for `triton_ops.autotune`.
        cache_dir: As for `triton_ops.autotune`.
        isolate: As for `triton_ops.autotune`.
        same_bits: As for `triton_ops.autotune`.

    Returns:
        A context manager whose end uninstalls what this call has installed; it may be ignored.

    Raises:
        SettingsError: An argument is out of range.
        MissingDependencyError: Triton is not installed.
    """
    folder = Path(cache_dir) if isinstance(cache_dir, str) else cache_dir
    tune = TuneOptions(effort=effort, budget_s=budget_s, isolate=isolate, cache_dir=folder)
    options = Options(on_miss=on_miss, tune=tune, same_bits=same_bits)
    with _guard:
        if _installed:
            _tell_other_options(_installed[0], options)
            return nullcontext()
        installed = _Installed(options)
        _put_decorator(installed)
        _put_run(installed)
        _installed.append(installed)
    await_tune(None, on_miss, tune)
    end = ExitStack()
    end.callback(_end, installed)
    return end


def uninstall() -> None:
    """Put Triton's own decorator and launch back in their places.

    Kernels that were decorated meanwhile stay with this package; all others are Triton's again. Where something else
    was put in the places meanwhile, that stays. Nothing happens if nothing is installed.
    """
    with _guard:
        if not _installed:
            return
        installed = _installed.pop()
        for adopted in list(installed.adopted.values()):
            adopted.shown.take_back()
        installed.undo.close()


def _end(installed: _Installed) -> None:
    with _guard:
        if installed in _installed:
            uninstall()


def _put(installed: _Installed, place: object, name: str, value: object) -> None:
    """Put something in a place until `uninstall`, unless something else stands there by then."""
    before = getattr(place, name)

    def give_back() -> None:
        if getattr(place, name) is value:
            setattr(place, name, before)

    setattr(place, name, value)
    installed.undo.callback(give_back)


def _tell_other_options(installed: _Installed, options: Options) -> None:
    if options != installed.options and not installed.told:
        installed.told = True
        own, names = installed.options, ("effort", "budget_s", "cache_dir", "isolate")
        before = {"on_miss": own.on_miss, "same_bits": own.same_bits, **{n: getattr(own.tune, n) for n in names}}
        first = ", ".join(f"{name}={value!r}" for name, value in before.items())
        warn(
            "triton_ops is installed already, and stays so, with %s; call triton_ops.uninstall() before other options",
            first,
        )


def _put_decorator(installed: _Installed) -> None:
    before = require("triton.runtime.autotuner", "installing").autotune

    def autotune(
        configs: Any, key: Sequence[str] | None = None, prune_configs_by: Mapping[str, Any] | None = None,
        *rest: Any, **more: Any,
    ) -> Callable[[Any], Tuned]:  # fmt: skip
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if caller.partition(".")[0] == "torch":  # it has chosen, and wraps anew
            return before(configs, key, prune_configs_by, *rest, **more)  # type: ignore[no-any-return]
        return lambda kernel: _decorated(installed.options, kernel, configs, key, prune_configs_by, *rest, **more)

    for name in _PLACES:
        _put(installed, require(name, "installing"), "autotune", autotune)


def _decorated(
    options: Options, kernel: Any, configs: Any, key: Sequence[str] | None,
    prune_configs_by: Mapping[str, Any] | None = None, reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None, pre_hook: Any = None, post_hook: Any = None, *rest: Any, **more: Any,
) -> Tuned:  # fmt: skip
    """A kernel as Triton's own decorator takes it; what it would accept is accepted."""
    tuned = Tuned(
        kernel, kernel.arg_names, configs, list(key or ()), reset_to_zero, restore_value, pre_hook, post_hook,
        prune_configs_by, *rest, options=options, **more,
    )  # fmt: skip
    if len(tuned.configs) > 1 and not TritonProcess.is_interpreted(kernel):
        await_tune(kernel, options.on_miss, options.tune)
    return tuned


def _put_run(installed: _Installed) -> None:
    before = own_loop.AUTOTUNER.run
    through = None if own_loop.is_tritons(before) else before

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches = self.launches if isinstance(self, Tuned) else installed.adopted.get(self)
        if installed not in _installed or "grid" not in kwargs:  # somebody kept this function, or it launches nothing
            return before(self, *args, **kwargs)
        if launches is None:
            if not hasattr(Layers.of(self.fn)[-1], "arg_names"):  # it is no kernel of Triton's
                return before(self, *args, **kwargs)
            with _guard:
                launches = installed.adopted.get(self) or Launches.adopting(self, installed.options)
                installed.adopted[self] = launches
        grid, warmup = kwargs.pop("grid"), kwargs.pop("warmup", False)
        if warmup:
            return launches.compiled(grid, *args, **kwargs)
        if through is not None:
            return launches.through(through, grid, args, kwargs)
        return launches.launched(grid, *args, **kwargs)

    for place, name, value in ((own_loop.AUTOTUNER, "run", run), (own_loop.Expected, "run", run),
                               (own_loop.Expected, "installed", True)):  # fmt: skip
        _put(installed, place, name, value)
