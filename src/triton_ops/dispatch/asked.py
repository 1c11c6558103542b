"""What an `Autotuner` says about one call: its key, the configs that are left, and the call as the tuner takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, Operation
from triton_ops.dispatch import own_loop
from triton_ops.dispatch.calls import CalledWith, Calls
from triton_ops.dispatch.configs import BeforeLaunch, timings
from triton_ops.dispatch.deciding import KernelCall
from triton_ops.dispatch.options import Options
from triton_ops.dispatch.printed import printed_listener
from triton_ops.dispatch.winners import triton_key
from triton_ops.exceptions import SpaceError
from triton_ops.trial import TuningResult


@dataclass
class Launch:
    """One call of a kernel on its way to its launch.

    Attributes:
        grid: What stands in the brackets.
        args: The positional arguments.
        kwargs: The others.
        run: What tunes and launches as Triton does, given the `Autotuner` first.
        key: Where Triton looks for its config in the cache.
        place: Where its decision stands.
        listed: The configs that are left after pruning; None where there is a space, or nothing was pruned.
        launched: Whether `run` has launched it, so that it is not launched again.
        measured: Whether configs were measured for it.
        compiled: What `run` has given back.
    """

    grid: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    run: Callable[..., Any] = own_loop.RUN_OF_TRITON
    key: Any = None
    place: Any = None
    listed: tuple[Any, ...] | None = None
    launched: bool = False
    measured: bool = False
    compiled: Any = None

    def given(self, names: Sequence[str], config: Any) -> dict[str, Any]:
        """What Triton gives to hooks."""
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs, "grid": self.grid, "warmup": False,
                **config.all_kwargs()}  # fmt: skip


class Asked:
    """An `Autotuner` that is asked at each decision.

    Args:
        autotuner: Gives the `Autotuner`, which is not kept alive.
        options: What is asked for beyond Triton's own parameters.

    Attributes:
        calls: How its calls become problems.
        guard: Held while the `Autotuner` has the `nargs` of a call, which all threads share.
        name: The kernel's name.
    """

    def __init__(self, autotuner: Callable[[], Any], options: Options) -> None:
        self._autotuner, self.options = autotuner, options
        self.calls = Calls.of(autotuner().fn, autotuner().keys, options.mapper)
        self.guard = threading.RLock()
        self.name = f"{autotuner().base_fn.__module__}:{autotuner().base_fn.__name__}"

    @contextmanager
    def with_nargs(self, args: Sequence[Any]) -> Iterator[None]:
        """Inside, the `Autotuner` has the positional arguments of the call that is decided, as under Triton."""
        autotuner = self._autotuner()
        with self.guard:
            before = getattr(autotuner, "nargs", None)
            autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
            try:
                yield
            finally:
                autotuner.nargs = before

    @contextmanager
    def pruned(self, launch: Launch) -> Iterator[None]:
        """Inside, the `Autotuner` is not pruned once more: its own functions are called once for each miss."""
        held = vars(self._autotuner())
        with self.guard:
            before = held.get("prune_configs")
            held["prune_configs"] = lambda _kwargs: list(launch.listed or ())
            try:
                yield
            finally:
                del held["prune_configs"]
                held.update({} if before is None else {"prune_configs": before})

    def fitting(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The configs that are left for a call; hooks that choose them are given all that Triton gives them.

        Raises:
            SpaceError: None is left.
        """
        with self.with_nargs(args):
            found = tuple(self._autotuner().prune_configs({**kwargs, "grid": grid, "warmup": False}))
        if not found:
            raise SpaceError(
                f"no config of {self.name} is left after pruning: top_k is {self._autotuner().configs_top_k}",
                hint="let prune_configs_by leave one or more",
            )
        return found

    @property
    def operation(self) -> Operation:
        """The kernel with its configs, without a grid and without problems: enough to check and compile configs."""
        nothing = CalledWith(problem={}, loose=frozenset(), label="", given=Arguments())
        return self._described(Launch((1,), (), {}, listed=self._listed), nothing).operation

    def call(self, launch: Launch, called: CalledWith | None = None) -> KernelCall:
        """A call as the tuner and the ladder are told of it, with the configs that are left; nothing is launched."""
        if self.options.space is None:
            launch.listed = self.fitting(launch.grid, launch.args, launch.kwargs)
        return self._described(launch, called or self.calls.problem(launch.args, launch.kwargs))

    @property
    def _listed(self) -> tuple[Any, ...] | None:
        return None if self.options.space is not None else tuple(self._autotuner().configs)

    def _described(self, launch: Launch, called: CalledWith) -> KernelCall:
        autotuner, key = self._autotuner(), triton_key(self._autotuner(), launch.args, launch.kwargs)
        return KernelCall(
            function=autotuner.fn, grid=launch.grid, called=called, configs=launch.listed, options=self.options,
            reset_to_zero=tuple(autotuner.reset_to_zero), restore_value=tuple(autotuner.restore_value),
            pre_hook=BeforeLaunch(autotuner.pre_hook) if autotuner.user_defined_pre_hook else None,
            listener=printed_listener(autotuner.base_fn.__name__, key), own_bench=own_loop.measures_itself(autotuner),
            tuned_as=partial(self._timed, launch),
        )  # fmt: skip

    def _timed(self, launch: Launch, result: TuningResult) -> None:
        """Show the times of a tune as Triton does."""
        autotuner, launch.measured = self._autotuner(), True
        autotuner.bench_time, autotuner.configs_timings = result.elapsed_s, timings(result.trials, launch.listed or ())

    @property
    def tuned_names(self) -> set[str]:
        """The parameters to which configs give values."""
        space = self.options.space
        return set(space.tunables) if space is not None else {
            name for each in self._autotuner().configs for name in each.kwargs
        }  # fmt: skip
