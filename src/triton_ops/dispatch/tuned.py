"""The decorated kernel: what Triton, torch and libraries know as an `Autotuner`, with this package behind it.

Facts used, from Triton 3.6 to 3.9: the constructor's parameters, `configs`, `cache`, `best_config`, `nargs`, `keys`,
`configs_timings`, `bench_time`, `prune_configs(kwargs)` and `run(*args, grid, warmup, **kwargs)` of `Autotuner`, which
others read, change and call.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from triton_ops.backend import Entrance, is_interpreted
from triton_ops.dispatch import ledger
from triton_ops.dispatch.calls import Calls
from triton_ops.dispatch.deciding import KernelCall
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.launching import Launches
from triton_ops.dispatch.options import Options
from triton_ops.dispatch.own_loop import AUTOTUNER, Expected
from triton_ops.dispatch.traced import Traced
from triton_ops.dispatch.winners import Winners
from triton_ops.exceptions import KernelTypeError


def named(module: str, name: str) -> Any:
    """The decorated kernel that stands under a name in a module, below heuristics around it; None if there is none."""
    kernel: Any = importlib.import_module(module)
    for part in name.split("."):
        kernel = getattr(kernel, part, None)
    while kernel is not None and not hasattr(kernel, "configs"):
        kernel = getattr(kernel, "fn", None)
    return kernel


def by_name(kernel: Any) -> tuple[Any, tuple[str, str]]:
    """Pickled form of a decorated kernel.

    Raises:
        PicklingError: The kernel is not what stands under its name in its module.
    """
    function = kernel.base_fn
    if named(function.__module__, function.__qualname__) is not kernel:
        raise pickle.PicklingError(
            f"the decorated kernel {function.__module__}:{function.__qualname__} cannot be pickled: another object "
            "stands under that name"
        )
    return named, (function.__module__, function.__qualname__)


class Tuned(AUTOTUNER):  # type: ignore[misc]
    """A kernel whose configs are chosen by the ladder, and launched directly once they are known.

    It is made by `triton_ops.autotune`, and used as a kernel under `triton.autotune` is.

    Attributes:
        options: What the decorator asks for beyond Triton's own parameters.
    """

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: Any, key: Sequence[str] | None, *rest: Any,
                 options: Options, **more: Any) -> None:  # fmt: skip
        self.options, self._local = options, threading.local()
        calls = Calls.of(fn, list(key or ()), options.mapper)
        self._traced = Traced(self, calls, interpreted=is_interpreted(fn))
        super().__init__(fn, arg_names, configs, list(key or ()), *rest, **more)
        part: Any = self.configs_top_k
        if self.perf_model and isinstance(part, float):  # torch would take the part of the configs that are left
            self.configs_top_k: Any = max(1, int(len(self.configs) * part))
        self._begin()

    def _begin(self) -> None:
        """Begin without decisions."""
        self._cache: Any = Winners(self._forget_known)
        names = {"autotuner": AUTOTUNER, "expected": Expected, "kind_of_owner": type(self), "own_run": _RUN}
        self.launches = Launches(self, self.options, Entrance(self._otherwise, _SOMEBODYS_RUN, names))
        ledger.register(self)

    def __copy__(self) -> Tuned:
        """A kernel that decides for itself, so that other configs of the one are never launched by the other."""
        kernel = type(self).__new__(type(self))
        kernel.__dict__.update(self.__dict__)
        kernel._local = threading.local()
        kernel._traced = Traced(kernel, self._traced.calls, interpreted=is_interpreted(self.fn))
        kernel._begin()
        kernel._cache.update(self.launches.shown.others)
        kernel.early_config_prune = self._traced.own
        return kernel

    def __deepcopy__(self, memo: Any) -> Tuned:
        """As `__copy__`: what surrounds a kernel may be copied, such as a module, and the kernel stays what it is."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A kernel is pickled by its name, as functions are."""
        return by_name(self)

    @property
    def configs(self) -> list[Any]:
        """The `triton.Config`s; other ones may be set, and count from the next decision on."""
        return self._configs

    @configs.setter
    def configs(self, configs: list[Any]) -> None:
        self._configs = configs
        self._forget_known()

    @property
    def cache(self) -> Any:
        """The configs by Triton's key; an object that is put here is asked in its place, at each launch."""
        return self._cache

    @cache.setter
    def cache(self, winners: Any) -> None:
        self._cache = winners
        self._forget_known()

    def _forget_known(self) -> None:
        """Have the next launch of each key look again at the cache and the configs, and compiled code made anew."""
        if (launches := self.__dict__.get("launches")) is not None:  # else the kernel is being made
            launches.fast.forget()
        self._traced.forget()

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The positional arguments of the call that this thread is about to decide."""
        return getattr(self._local, "nargs", None)

    @nargs.setter
    def nargs(self, named: dict[str, Any] | None) -> None:
        self._local.nargs = named

    @property
    def early_config_prune(self) -> Callable[..., Any] | None:
        """Function that leaves the configs that fit a call: the caller's own, and while torch traces the ladder."""
        return self._traced.early_config_prune if "torch" in sys.modules else self._traced.own

    @early_config_prune.setter
    def early_config_prune(self, own: Callable[..., Any] | None) -> None:
        self._traced.use(own)

    def call_of(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KernelCall:
        """A call with these arguments, as the tuner and the ladder are told of it; nothing is launched."""
        return self.launches.call_of(grid, args, kwargs)

    def forget(self) -> None:
        """Have every call decided again."""
        self.launches.forget()
        self._traced.forget()

    def begin_anew(self) -> None:
        """Forget every decision and every lock: in a forked child, whose other threads are gone."""
        self.launches.begin_anew()

    @property
    def decisions(self) -> list[Decision]:
        """Copies of the decisions so far, which share their counts of launches."""
        return self.launches.decisions

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A function that launches with this grid."""
        if self._traced.outside is not None:
            return partial(self._traced.outside, grid)
        return partial(self.launches.fast.enter, grid)

    def _otherwise(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch a call that is not known, or any while somebody's own function stands in the place of `run`."""
        if AUTOTUNER.run is not Expected.run or "run" in self.__dict__ or type(self).run is not _RUN:
            return self.run(*args, grid=grid, warmup=False, **kwargs)
        return self.launches.plainly(grid, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - whatever a call without a grid gives
        """Refuse a call without a grid.

        Raises:
            KernelTypeError: Always.
        """
        name = self.base_fn.__name__
        raise KernelTypeError(
            f"{self.base_fn.__module__}:{name} is called without a grid", hint=f"write {name}[grid](...)"
        )

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config of the call; returns Triton's compiled kernel. With `warmup` only compile it."""
        if warmup:
            return self.launches.compiled(grid, *args, **kwargs)
        return (self._traced.outside or self.launched)(grid, *args, **kwargs)

    def launched(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch as `run` does, by what somebody has put in the place of Triton's `run`, if there is such a thing."""
        if AUTOTUNER.run is Expected.run:
            return self.launches.launched(grid, *args, **kwargs)
        return self.launches.by_another(AUTOTUNER.run, grid, args, kwargs)

    def why(self, /, *args: Any, grid: Any = (1,), **kwargs: Any) -> Decision:
        """The config that a call with these arguments takes, the rung that it comes from, and why; nothing is launched.

        What is not known is not tuned: the decision of a miss is the default, and its reason says what a launch would
        do instead, such as to tune first.
        """
        return self.launches.why(grid, args, kwargs)

    def known(self, /, *args: Any, grid: Any = (1,), **kwargs: Any) -> Decision:
        """The best that is known for a call where nothing can be tuned, whatever the policy; nothing is launched."""
        return self.launches.known(grid, args, kwargs)


_RUN = Tuned.run
_SOMEBODYS_RUN = (
    "@autotuner.run is not @expected.run", "'run' in @state", "@kind_of_owner.run is not @own_run"
)  # fmt: skip
