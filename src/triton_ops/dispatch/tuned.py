"""The decorated kernel: what Triton, torch and libraries know as an `Autotuner`, with this package behind it.

Facts used, from Triton 3.6 to 3.9: the constructor's parameters, `configs`, `cache`, `best_config`, `nargs`, `keys`,
`configs_timings`, `bench_time`, `prune_configs(kwargs)` and `run(*args, grid, warmup, **kwargs)` of `Autotuner`, which
others read, change and call.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments, Operation, is_tensor
from triton_ops.backend.as_python import is_interpreted, launcher_of
from triton_ops.backend.fast_launch import FastLaunch, Known
from triton_ops.dispatch import ledger
from triton_ops.dispatch.calls import CalledWith, Calls, refuse_tuned
from triton_ops.dispatch.configs import BeforeLaunch, from_triton, timings, to_triton
from triton_ops.dispatch.deciding import KernelCall, decide, foretold, known
from triton_ops.dispatch.decision import EXPLICIT, FALLBACK, Decision, Found, copied
from triton_ops.dispatch.decisions import Decisions
from triton_ops.dispatch.grids import GridWatch, checked_grid, checked_when_called
from triton_ops.dispatch.members import Members
from triton_ops.dispatch.named import by_name
from triton_ops.dispatch.options import Options
from triton_ops.dispatch.own_loop import own_bench, tuned_by_triton
from triton_ops.dispatch.policy import within
from triton_ops.dispatch.printed import printed_listener
from triton_ops.dispatch.traced import Traced
from triton_ops.dispatch.winners import Winners, seeded_in, triton_key
from triton_ops.exceptions import KernelTypeError, SpaceError
from triton_ops.trial import TuningResult

_log = logging.getLogger("triton_ops")
_upstream: Any = require("triton.runtime.autotuner", "triton_ops.autotune")
_MOST = 4_096  # problems of one kernel; then all are decided anew
_SINGLE = "the only config"
_TritonError: Any = require("triton.errors", "triton_ops.autotune").TritonError


class Tuned(_upstream.Autotuner):  # type: ignore[misc]
    """A kernel whose configs are chosen by the ladder, and launched directly once they are known.

    It is made by `triton_ops.autotune`, and used as a kernel under `triton.autotune` is.

    Attributes:
        options: What the decorator asks for beyond Triton's own parameters.
    """

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: Any, key: Sequence[str] | None, *rest: Any,
                 options: Options, do_bench: Any = None, **more: Any) -> None:  # fmt: skip
        self.options = options
        self._own_bench = do_bench
        self._grids = GridWatch()
        self._begin(fn, key or ())
        super().__init__(fn, arg_names, configs, list(key or ()), *rest, do_bench=do_bench, **more)
        part: Any = self.configs_top_k
        if self.perf_model and isinstance(part, float):  # torch would take the part of the configs that are left
            self.configs_top_k: Any = max(1, int(len(self.configs) * part))

    def _begin(self, fn: Any, key: Sequence[str]) -> None:
        """Begin without decisions."""
        self._local, self._last = threading.local(), SimpleNamespace()
        self._only: Any = None  # the one config of a kernel that has no other
        self._decisions = Decisions()
        self._members = Members(_MOST)
        self._fast = FastLaunch(fn, tuple(key), self._last)
        self._calls = Calls.of(fn, key, self.options.mapper)
        self._traced = Traced(self, self._calls, interpreted=is_interpreted(fn))
        ledger.register(self)

    def __copy__(self) -> Tuned:
        """A kernel that decides for itself, so that other configs of the one are never launched by the other."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._begin(self.fn, self.keys)
        made.early_config_prune, made.cache = self._traced.own, self._cache.seeded
        return made

    def __deepcopy__(self, memo: Any) -> Tuned:
        """As `__copy__`: what surrounds a kernel may be copied, such as a module, and the kernel stays what it is."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A kernel is pickled by its name, as functions are."""
        return by_name(self)

    @classmethod
    def adopting(cls, autotuner: Any, options: Options) -> Tuned:
        """What launches in place of an `Autotuner` that somebody else has made, whose cache it shares."""
        hooks = {
            name: getattr(autotuner, name)
            for name in ("pre_hook", "post_hook")
            if getattr(autotuner, f"user_defined_{name}")
        }
        prune = {"perf_model": autotuner.perf_model, "top_k": autotuner.configs_top_k,
                 "early_config_prune": autotuner.early_config_prune}  # fmt: skip
        made = cls(
            autotuner.fn, autotuner.arg_names, autotuner.configs, autotuner.keys, autotuner.reset_to_zero,
            autotuner.restore_value, prune_configs_by=prune, do_bench=own_bench(autotuner),
            cache_results=autotuner.cache_results, options=options, **hooks,
        )  # fmt: skip
        autotuner.cache = made._cache = Winners(made.forget, seeded_in(autotuner.cache))
        made._fast.owner = weakref.proxy(autotuner)  # which is the key to this one
        return made

    def differs_from(self, autotuner: Any) -> bool:
        """Whether the `Autotuner` that this one stands for has been given other configs or another cache."""
        return autotuner.configs is not self._configs or autotuner.cache is not self._cache

    def give_back(self, autotuner: Any) -> None:
        """Leave to the `Autotuner` that this one stood for what others have put into its cache, and no decision."""
        if autotuner.cache is self._cache:
            autotuner.cache = dict(self._cache.seeded)

    @property
    def configs(self) -> list[Any]:
        """The `triton.Config`s; other ones may be set, and are used from the next launch on."""
        return self._configs

    @configs.setter
    def configs(self, configs: list[Any]) -> None:
        self._configs = configs
        self.forget()

    @property
    def cache(self) -> Winners:
        """The configs by Triton's key; to clear it is to have every call decided again, to set an item decides."""
        return self._cache

    @cache.setter
    def cache(self, winners: Mapping[Any, Any]) -> None:
        self._cache = Winners(self.forget, winners)
        self.forget()

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The positional arguments of the call that this thread is about to decide."""
        return getattr(self._local, "nargs", None)

    @nargs.setter
    def nargs(self, named: dict[str, Any] | None) -> None:
        self._local.nargs = named

    @property
    def early_config_prune(self) -> Callable[..., Any] | None:
        """What leaves the configs that fit a call: the caller's own function, and while torch traces the ladder."""
        return self._traced.early_config_prune if "torch" in sys.modules else self._traced.own

    @early_config_prune.setter
    def early_config_prune(self, own: Callable[..., Any] | None) -> None:
        self._traced.use(own)

    @property
    def operation(self) -> Operation:
        """The kernel with its configs, without a grid and without problems: enough to check and compile configs."""
        listed = None if self.options.space is not None else tuple(self.configs)
        return self._call(
            (1,), CalledWith(problem={}, loose=frozenset(), label="", given=Arguments()), listed, (), {}
        ).operation

    def forget(self) -> None:
        """Have every call decided again."""
        self._decisions.clear()
        self._fast.forget()
        self._traced.forget()

    def begin_anew(self) -> None:
        """Forget every decision and every lock: in a forked child, whose other threads are gone."""
        self._decisions.begin_anew()
        self._fast.forget()

    @property
    def decisions(self) -> list[Decision]:
        """Copies of the decisions so far, which share their counts of launches."""
        return [replace(decision) for decision in list(self._decisions.values())]

    @property
    def best_config(self) -> Any:
        """A copy of the config that was launched last; to change it changes no launch."""
        return copied(self._last.best_config)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A function that launches with this grid."""
        fast = self._fast
        if self._traced.outside is not None:
            return partial(self._traced.outside, grid)

        def launch(*args: Any, **kwargs: Any) -> Any:
            launched = fast.call(grid, *args, **kwargs)
            return self._plainly(grid, args, kwargs) if launched is None else launched

        return launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - whatever a call without a grid gives
        """Refuse a call without a grid.

        Raises:
            KernelTypeError: Always.
        """
        raise KernelTypeError(
            f"{self._name} is called without a grid", hint=f"write {self.base_fn.__name__}[grid](...)"
        )

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config of the call; returns Triton's compiled kernel. With `warmup` only compile it."""
        if warmup:
            config = self.known(*args, grid=grid, **kwargs).config
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs, **config.all_kwargs())
        return (self._traced.outside or self.launched)(grid, *args, **kwargs)

    def launched(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch as `run` does."""
        launched = self._fast.call(grid, *args, **kwargs)
        return self._plainly(grid, args, kwargs) if launched is None else launched

    def why(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Decision:
        """The config that a call with these arguments takes, the rung that it comes from, and why; nothing is launched.

        What is not known is not tuned: the decision of a miss is the default, and its reason says what a launch would
        do instead, such as to tune first.
        """
        return replace(self._decided(grid, args, kwargs, foretold))

    def known(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Decision:
        """The best that is known for a call where nothing can be tuned, whatever the policy; nothing is launched."""
        return replace(self._decided(grid, args, kwargs, known))

    def _plainly(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch as Triton does, and remember what was launched for the next call."""
        decision = self._decided(grid, args, kwargs)
        try:
            compiled = self._launched(decision, grid, args, kwargs)
        except _TritonError as error:
            if decision.found.rung in (EXPLICIT, FALLBACK):
                raise
            decision = self._without(decision, error, grid, args, kwargs)
            compiled = self._launched(decision, grid, args, kwargs)
        ledger.counted(decision).count.up()
        if decision.kept and decision.config.pre_hook is None and compiled is not None:
            known = Known(compiled=compiled, brings=decision.config.all_kwargs(), config=decision.shown,
                          count=decision.count, holds=self._condition(decision))  # fmt: skip
            self._fast.learn(args, kwargs, known)
        return compiled

    def _launched(self, decision: Decision, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        config, self._last.best_config, self._fast.owner.best_config = decision.config, decision.shown, decision.shown
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()})
        grid = checked_when_called(grid, self._name)
        try:
            return launcher_of(self.fn)(*args, grid=grid, warmup=False, **kwargs, **config.all_kwargs())
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            refuse_tuned(kwargs, config.all_kwargs(), self._name)
            self._calls.problem(args, kwargs).explain(error, self._fast)
            raise

    def _condition(self, decision: Decision) -> Callable[[], bool] | None:
        """What must hold for the decision of a miss to be launched again; None for a winner."""
        return (lambda: decision.holds(within)) if decision.missed and decision.policy is not None else None

    def _decided(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
        without_launch: Callable[[KernelCall], Decision] | None = None,
    ) -> Decision:  # fmt: skip
        """The decision for a call; that of an equal call before, if it still holds. Only that of a launch is kept."""
        checked_grid(grid, self._name)
        if len(self.configs) == 1 and self.options.space is None:
            return self._single()
        called = self._calls.problem(args, kwargs)
        own = (called.device, called.own_text)
        decide_as = partial(self._shared, grid, called, args, kwargs, without_launch)
        if self._calls.mapper.buckets and triton_key(self, args, kwargs) in self._cache.seeded:
            return decide_as(own)
        shared = decide_as((called.device, called.text))
        if not self._calls.mapper.buckets:
            return shared
        decision = self._members.of(shared, own, lambda: self.call_of(grid, args, kwargs))
        if decision is not shared and without_launch is None:
            self._decisions[(*own, "in a bucket")] = decision
        return decision

    def _shared(
        self, grid: Any, called: CalledWith, args: Sequence[Any], kwargs: Mapping[str, Any],
        without_launch: Callable[[KernelCall], Decision] | None, key: Any,
    ) -> Decision:  # fmt: skip
        """The decision of all problems with one key."""
        return self._decisions.of(
            key, lambda: self._newly(grid, called, args, kwargs, without_launch), self.forget,
            kept=without_launch is None,
        )  # fmt: skip

    def _single(self) -> Decision:
        """The decision of a kernel with one config."""
        known = self._decisions.get(_SINGLE)
        if known is None or self._only is not self.configs[0]:
            found = Found(config=from_triton(self.configs[0]), rung=EXPLICIT, why="the kernel has no other config")
            known = Decision(found=found, kernel=self._name, problem="", config=self.configs[0])
            self._only = self.configs[0]
            self._decisions[_SINGLE] = known
        return known

    def _newly(
        self, grid: Any, called: CalledWith, args: Sequence[Any], kwargs: Mapping[str, Any],
        without_launch: Callable[[KernelCall], Decision] | None,
    ) -> Decision:  # fmt: skip
        refuse_tuned(called.given.keyword, self._tuned_names, self._name)
        key = triton_key(self, args, kwargs)
        if (seeded := self._cache.seeded.get(key)) is not None:
            found = Found(config=from_triton(seeded), rung=EXPLICIT, why="it was set in the kernel's cache")
            return Decision(found=found, kernel=self._name, problem=called.label, config=seeded)
        called.check(launched=without_launch is None)
        listed = None if self.options.space is not None else self.fitting(grid, args, kwargs)
        call = self._call(grid, called, listed, args, kwargs)
        if without_launch is None:
            self._grids.look(call.grid, call.function, called.given.keyword, call.first, self._name, self._tuned_names)
        if without_launch is None:
            decision = decide(call, lambda: tuned_by_triton(self, grid, args, kwargs))
        else:
            decision = without_launch(call)
        if decision.config is None:
            decision = replace(decision, config=to_triton(decision.found.config, listed or (), call.space.members))
        if without_launch is None and not any(map(is_tensor, key)):  # Triton's cache keeps such tensors alive
            self.cache.keep(key, copied(decision.config))
        return decision

    def fitting(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The configs that are left for a call; hooks that choose them are given all that Triton gives them.

        Raises:
            SpaceError: None is left.
        """
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            found = tuple(self.prune_configs({**kwargs, "grid": grid, "warmup": False}))
        finally:
            self.nargs = None
        if not found:
            raise SpaceError(
                f"no config of {self._name} is left after pruning: top_k is {self.configs_top_k}",
                hint="let prune_configs_by leave one or more",
            )
        return found

    def call_of(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KernelCall:
        """A call with these arguments, as the tuner and the ladder are told of it; nothing is launched."""
        listed = None if self.options.space is not None else self.fitting(grid, args, kwargs)
        return self._call(grid, self._calls.problem(args, kwargs), listed, args, kwargs)

    def _call(
        self, grid: Any, called: CalledWith, listed: tuple[Any, ...] | None, args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> KernelCall:  # fmt: skip
        return KernelCall(
            function=self.fn, grid=grid, called=called, configs=listed, options=self.options,
            reset_to_zero=tuple(self.reset_to_zero), restore_value=tuple(self.restore_value),
            pre_hook=BeforeLaunch(self.pre_hook) if self.user_defined_pre_hook else None,
            listener=printed_listener(self.base_fn.__name__, triton_key(self, args, kwargs)),
            own_bench=self._own_bench is not None, tuned_as=partial(self._timed, listed or ()),
        )  # fmt: skip

    def _timed(self, listed: Sequence[Any], result: TuningResult) -> None:
        """Show the times of a tune as Triton does."""
        self.bench_time, self.configs_timings = result.elapsed_s, timings(result.trials, listed)

    def _without(
        self, decision: Decision, error: Exception, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision:
        """The decision for the default, in place of a config that does not launch."""
        listed = self.fitting(grid, args, kwargs) if self.options.space is None else self.configs
        reason = str(error).partition("\n")[0]
        why = f"the config ({decision.found.config}) of the rung {decision.found.rung} does not launch: {reason}"
        _log.warning("%s %s runs its default config: %s", decision.kernel, decision.problem, why)
        found = Found(config=from_triton(listed[0]), rung=FALLBACK, why=why)
        changed = replace(decision, found=found, config=listed[0], passed=(*decision.passed, why))
        for key, one in list(self._decisions.items()):
            if one is decision:
                self._decisions[key] = changed
        return changed

    @property
    def _tuned_names(self) -> set[str]:
        """The parameters to which configs give values."""
        space = self.options.space
        return set(space.tunables) if space is not None else {name for each in self.configs for name in each.kwargs}

    @property
    def _name(self) -> str:
        return f"{self.base_fn.__module__}:{self.base_fn.__name__}"
