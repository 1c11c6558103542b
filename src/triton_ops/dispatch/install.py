"""`install`: kernels under `triton.autotune` are tuned and launched by this package, without an edit of their code.

Facts used, from Triton 3.6 to 3.9: `triton.autotune`, `triton.runtime.autotune` and
`triton.runtime.autotuner.autotune` are the decorator; every autotuned kernel is launched by `Autotuner.run`, also those
of subclasses that call it.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from triton_ops._optional import require
from triton_ops.dispatch.options import Options
from triton_ops.dispatch.policy import TUNE, policy_of
from triton_ops.dispatch.tuned import Tuned
from triton_ops.exceptions import SettingsError
from triton_ops.history.recall import cache_folder, may_have_records
from triton_ops.task.effort import Effort

_IDLE_WORKER = "triton_ops.evaluation.idle_worker"  # most programs that launch kernels never tune
_PLACES = ("triton", "triton.runtime", "triton.runtime.autotuner")
_guard = threading.RLock()


@dataclass
class _Installed:
    """What stands in Triton's place, and what stood there before."""

    options: Options
    decorators: list[tuple[Any, Any]] = field(default_factory=list)  # a module, and its decorator before
    autotune: Any = None
    run: Any = None
    run_before: Any = None
    adopted: WeakKeyDictionary[Any, Tuned] = field(default_factory=WeakKeyDictionary)


_installed: list[_Installed] = []


def install(
    *,
    on_miss: str | None = None,
    effort: str | Effort | None = None,
    budget_s: float | None = None,
    cache_dir: str | Path | None = None,
    isolate: bool | None = None,
) -> _Uninstalls:
    """Let this package tune and launch every kernel under `triton.autotune` in this process, until `uninstall`.

    Kernels that are decorated from now on, kernels that were decorated before, and those of subclasses of Triton's
    `Autotuner` are taken alike. It may be used as a context manager, which uninstalls at the end.

    Where misses are tuned and nothing is recorded yet, the process in which the first tune will run is started at once,
    so that its imports are over by then. It ends after a minute if no tune has come.

    Args:
        on_miss: As for `triton_ops.autotune`.
        effort: As for `triton_ops.autotune`.
        budget_s: As for `triton_ops.autotune`.
        cache_dir: As for `triton_ops.autotune`.
        isolate: As for `triton_ops.autotune`.

    Returns:
        A context manager whose end uninstalls; it may be ignored.

    Raises:
        SettingsError: It is installed already, or an argument is out of range.
        MissingDependencyError: Triton is not installed.
    """
    options = Options(
        on_miss=on_miss, effort=effort, budget_s=budget_s, cache_dir=cache_dir, isolate=isolate, strict=False
    )  # fmt: skip
    with _guard:
        if _installed:
            raise SettingsError("triton_ops is installed already", hint="call triton_ops.uninstall() first")
        found = _Installed(options)
        _put_decorator(found)
        _put_run(found)
        _installed.append(found)
    will_tune = policy_of(on_miss, TUNE) == TUNE and not may_have_records(cache_folder(cache_dir))
    if will_tune and isolate is not False:
        importlib.import_module(_IDLE_WORKER).start_one_early()
    return _Uninstalls()


def uninstall() -> None:
    """Put Triton's own decorator and launch back in their places.

    Kernels that were decorated meanwhile stay with this package; all others are Triton's again. Where something else
    was put in the places meanwhile, that stays. Nothing happens if nothing is installed.
    """
    with _guard:
        if not _installed:
            return
        found = _installed.pop()
        for kernel, adopted in list(found.adopted.items()):
            adopted.give_back(kernel)
        for module, before in found.decorators:
            if module.autotune is found.autotune:
                module.autotune = before
        autotuner = require("triton.runtime.autotuner", "uninstalling").Autotuner
        if autotuner.run is found.run:
            autotuner.run = found.run_before


class _Uninstalls:
    """The end of an installation, for `with`."""

    def __enter__(self) -> None:
        """It is installed already."""

    def __exit__(self, *_: object) -> None:
        uninstall()


def _put_decorator(found: _Installed) -> None:
    before = require("triton.runtime.autotuner", "installing").autotune

    def autotune(
        configs: Any, key: Sequence[str] | None = None, prune_configs_by: Mapping[str, Any] | None = None,
        *rest: Any, **more: Any,
    ) -> Callable[[Any], Tuned]:  # fmt: skip
        if (
            str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "torch"
        ):  # it has chosen, and wraps anew
            return before(configs, key, prune_configs_by, *rest, **more)  # type: ignore[no-any-return]
        return lambda kernel: _decorated(found.options, kernel, configs, key, prune_configs_by, *rest, **more)

    found.autotune = autotune
    for name in _PLACES:
        module: Any = require(name, "installing")
        found.decorators.append((module, module.autotune))
        module.autotune = autotune


def _decorated(
    options: Options, kernel: Any, configs: Any, key: Sequence[str] | None,
    prune_configs_by: Mapping[str, Any] | None = None, reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None, pre_hook: Any = None, post_hook: Any = None, *rest: Any, **more: Any,
) -> Tuned:  # fmt: skip
    """A kernel as Triton's own decorator takes it; what it would accept is accepted."""
    return Tuned(
        kernel, kernel.arg_names, configs, list(key or ()), reset_to_zero, restore_value, pre_hook, post_hook,
        prune_configs_by, *rest, options=options, **more,
    )  # fmt: skip


def _put_run(found: _Installed) -> None:
    autotuner = require("triton.runtime.autotuner", "installing").Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        adopted = found.adopted.get(self)
        if adopted is None or adopted.differs_from(self):
            adopted = found.adopted[self] = Tuned.adopting(self, found.options)
        return adopted.run(*args, **kwargs)

    found.run, found.run_before = run, autotuner.run
    autotuner.run = run
