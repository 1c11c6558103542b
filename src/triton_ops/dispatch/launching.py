"""The launches of one `Autotuner`: of this package's own, which is one too, or of anybody's that it takes over.

Configs, cache, hooks and pruning are the `Autotuner`'s own, and are asked when a call is decided, so that whatever a
program changes there counts from then on, as with Triton. A call whose key is in the cache takes what stands there, as
with Triton; what this package has put there itself it decides by the ladder.

Facts used, from Triton 3.6 to 3.9: `run` of a kernel takes `grid` and `warmup` beside the kernel's arguments, and gives
the compiled kernel; hooks of configs are called with all of these by name; a launch sets `best_config`, and `nargs` is
None after it; what a config makes impossible is a `TritonError`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, Layers, Operation, TritonProcess, replaced
from triton_ops.base import canonical_json, require
from triton_ops.dispatch import triton_autotuner as own_loop
from triton_ops.dispatch.calls import CalledWith, Calls, GridWatch, checked_grid, checked_when_called, refuse_tuned
from triton_ops.dispatch.deciding import KernelCall, Options, decide, foretold, known
from triton_ops.dispatch.decision import EXPLICIT, FALLBACK, Decision, Found, register
from triton_ops.dispatch.fast_launch import Entrance, FastLaunch
from triton_ops.dispatch.ladder import capturing, ladder_of
from triton_ops.exceptions import DeviceError, SpaceError, TritonKernelError
from triton_ops.request import KnownCalls
from triton_ops.values import TuningResult


def _at(decision: Decision, call: KernelCall) -> Decision:
    """The decision for a call: nothing is tuned for it, since its bucket was."""
    try:
        refused = call.space.why_not(decision.found.config)
        if refused is None and ladder_of(call.options.tune.cache_dir).lockfile is None:
            return decision
        here = known(call)
        config = here.config or own_loop.to_triton(here.found.config, call.configs or (), call.space.members)
        here = replace(here, config=config)
    except TritonKernelError:  # such a call was decided without a description, and its bucket with it
        return decision
    if refused is None:
        return decision if here.unmeasured or here.found.config == decision.found.config else here
    why = f"{decision.found.rung}: the config ({decision.found.config}) of its bucket cannot be taken here: {refused}"
    return replace(here, passed=(why, *here.passed))


@dataclass
class Launch:
    """One call of a kernel on its way to its launch.

    `run` tunes and launches as Triton does, given the `Autotuner` first; `launched` is true where it has launched the
    call, so that it is not launched again. `key` is where Triton looks for the config in the cache, and `place` where
    the decision stands. `listed` are the configs that are left after pruning; None where there is a space, or nothing
    was pruned.
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
        """Values that Triton gives to hooks."""
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs, "grid": self.grid, "warmup": False,
                **config.all_kwargs()}  # fmt: skip


_log = logging.getLogger("triton_ops")
_SINGLE, _SET = "the only config", "set by others"
_TritonError: Any = require("triton.errors", "triton_ops.autotune").TritonError

WithoutLaunch = Callable[[KernelCall], Decision]


class Launches:
    """Decides and launches the calls of one `Autotuner`, which it does not keep alive."""

    def __init__(self, autotuner: Any, options: Options, entrance: Entrance | None = None) -> None:
        self._autotuner, self.options, self._entrance = weakref.ref(autotuner), options, entrance
        self.decided, self.shown = KnownCalls[Decision](), own_loop.Shown(self._autotuner)
        # Without it a thread would take the arguments of another's call: triton-lang/triton#11494.
        self._guard = threading.RLock()  # held while the `Autotuner` has the `nargs` of a call, which all threads share
        self._members, self._grids = KnownCalls[tuple[Decision, Decision]](), GridWatch()
        self._take_kernel()

    def _take_kernel(self) -> None:
        autotuner = self.autotuner
        self.calls = Calls.of(autotuner.fn, autotuner.keys, self.options.mapper)
        self.fast = FastLaunch(autotuner.fn, tuple(autotuner.keys), weakref.proxy(autotuner), self._entrance)
        self._name = f"{autotuner.base_fn.__module__}:{autotuner.base_fn.__name__}"

    @classmethod
    def adopting(cls, autotuner: Any, options: Options) -> Launches:
        """Those of an `Autotuner` that somebody else has made, which has from now on what it has after a launch."""
        launches = cls(autotuner, options)
        autotuner.nargs = getattr(autotuner, "nargs", None)
        register(launches)
        return launches

    @property
    def autotuner(self) -> Any:
        """The `Autotuner`."""
        return self._autotuner()

    @property
    def decisions(self) -> list[Decision]:
        """Copies of the decisions so far, which share their counts of launches."""
        return [decision.copy for decision in list(self.decided.values())]

    def forget(self) -> None:
        """Have every call decided again, but for those whose winner others have set."""
        self.decided.clear()
        self.fast.forget()

    def begin_anew(self) -> None:
        """Forget every decision and every lock, in a forked child, whose other threads are gone."""
        self._guard = threading.RLock()
        self.decided.begin_anew()
        self.fast.forget()

    def launched(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch a call; returns Triton's compiled kernel."""
        launched = self.fast.call(grid, *args, **kwargs)
        return self.plainly(grid, args, kwargs) if launched is None else launched

    def compiled(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Triton's compiled kernel for a call; nothing is launched."""
        positional, named = self._passed(args, kwargs, self.known(grid, args, kwargs).config)
        return self.autotuner.fn.run(*positional, grid=grid, warmup=True, **named)

    def plainly(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch as Triton does, and remember what was launched for the next call."""
        if (self.fast.function, self.fast.keys) != (self.autotuner.fn, tuple(self.autotuner.keys)):
            self.forget()
            self._take_kernel()
        launch, changes = Launch(grid, args, kwargs), self.fast.changes
        decision = self._decided(launch)
        if not launch.launched:
            try:
                launch.compiled = self._launched(decision, launch)
            except _TritonError as error:
                if decision.found.rung in (EXPLICIT, FALLBACK) or not self.options.listed:
                    raise
                decision = self._without(decision, error, launch)
                launch.compiled = self._launched(decision, launch)
        decision.counted.count.up()
        if decision.kept and decision.config.pre_hook is None and launch.compiled is not None:
            self._learn(decision, launch, changes)
        return launch.compiled

    def by_another(self, run: Callable[..., Any], grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch while something else than what is expected stands in the place of `Autotuner.run`."""
        if own_loop.is_tritons(run):
            own_loop.Expected.run = run
            return self.launched(grid, *args, **kwargs)
        if own_loop.Expected.installed:  # what it calls in the end is this package's again
            return run(self.autotuner, *args, grid=grid, warmup=False, **kwargs)
        return self.through(run, grid, args, kwargs)

    def through(self, run: Callable[..., Any], grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch by what somebody has put in the place of Triton's `run`, which finds the winner in the cache."""
        autotuner, launch = self.autotuner, Launch(grid, args, kwargs, run)
        decision = self._decided(launch)
        if not self.listed:
            autotuner.configs[:] = [decision.config]
        if not launch.launched:
            launch.compiled = run(autotuner, *args, grid=grid, warmup=False, **kwargs)
        decision.counted.count.up()
        return launch.compiled

    def why(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Decision:
        """The decision that a launch would take; what is not known is not tuned."""
        return self._decided(Launch(grid, args, kwargs), foretold).copy

    def known(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Decision:
        """The best that is known for a call where nothing can be tuned, whatever the policy; nothing is launched."""
        return self._decided(Launch(grid, args, kwargs), known).copy

    def call_of(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KernelCall:
        """A call with these arguments, as the tuner and the ladder are told of it; nothing is launched."""
        return self._call(Launch(grid, args, kwargs))

    def _learn(self, decision: Decision, launch: Launch, changes: int) -> None:
        """Launch calls like this one directly from now on, while the cache shows what it shows now."""
        cache, place, shown = self.autotuner.cache, None, None
        if self.decided.get(_SINGLE) is not decision:
            place = own_loop.triton_key(self.autotuner, launch.args, launch.kwargs)
            shown = own_loop.standing(cache, place)
        self.fast.learn(
            launch.args, launch.kwargs, launch.grid, launch.compiled, decision, place, shown,
            told=isinstance(cache, own_loop.Winners) and cache.tells(self.autotuner), changes=changes,
        )  # fmt: skip

    def _launched(self, decision: Decision, launch: Launch) -> Any:
        autotuner, config = self.autotuner, decision.config
        autotuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook(launch.given(autotuner.arg_names, config))
        grid = checked_when_called(launch.grid, self._name)
        args, named = self._passed(launch.args, launch.kwargs, config)
        try:
            return TritonProcess.launcher_of(autotuner.fn)(*args, grid=grid, warmup=False, **named)
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            self._explain(error, self.calls.problem(launch.args, launch.kwargs))
            raise

    def _explain(self, error: Exception, called: CalledWith) -> None:
        """Raise as `CalledWith.check`, or DeviceError, if the tensors of a call are why its launch failed.

        Triton raises of a sparse tensor that it has no storage, of one on the CPU a `ValueError`, or without a GPU that
        there is no driver.
        """
        called.check()
        if not self.fast.compiled:
            return
        Arguments.check_for_triton(self.fast.name, called.given.keyword)
        if called.device == "cpu" and (isinstance(error, ValueError) or not self.fast.driven):
            message = "the tensors are on the CPU, and a Triton kernel runs on a GPU"
            hint = "move them to a GPU: tensor.cuda(); or run it as Python with TRITON_INTERPRET=1"
            raise DeviceError(message, "cuda", "cpu", hint=hint) from error

    def _passed(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a launch with this config; raises ConfigCollisionError."""
        values = config.all_kwargs()
        refuse_tuned(kwargs, values, self._name)
        return Layers.placed(self.autotuner.fn, args, {**kwargs, **values})

    def _decided(self, launch: Launch, without_launch: WithoutLaunch | None = None) -> Decision:
        """The decision for a call; that of an equal call before, if it still holds. Only that of a launch is kept."""
        checked_grid(launch.grid, self._name)
        if len(self.autotuner.configs) == 1 and self.listed and not self.options.widen:
            return self._chosen(_SINGLE, self.autotuner.configs[0], "", "the kernel has no other config")
        called = self.calls.problem(launch.args, launch.kwargs)
        launch.key = own_loop.triton_key(self.autotuner, launch.args, launch.kwargs)
        for place in self.shown.taken_away(launch.key):
            self.decided.pop(place, None)
        if (config := self.shown.by_others(launch.key)) is not None:
            place = (_SET, called.device, called.text)
            return self._chosen(place, config, called.label, "it was set in the kernel's cache")
        launch.place = (called.device, called.text, *launch.kwargs.keys() & {"maxnreg"})  # which a winner may have
        decision = self._at(launch, called, without_launch)
        if self.calls.mapper.buckets:
            decision = self._of_bucket(decision, launch, called, without_launch)
        if without_launch is None and decision.kept and not capturing():  # a graph would reset arguments each time
            self._first(launch, decision)
        return decision

    def _of_bucket(
        self, shared: Decision, launch: Launch, called: CalledWith, without_launch: WithoutLaunch | None
    ) -> Decision:
        """The decision for one problem of a bucket: the bucket's, unless its config cannot be taken here."""
        own = (called.device, canonical_json(dict(called.asked)))
        if (member := self._members.get(own)) is None or member[0] is not shared or not member[1].holds:
            member = (shared, _at(shared, self._call(launch, called)))
            self._members.keep(own, member)
        decision = member[1]
        if decision is not shared and without_launch is None:
            launch.place = (*own, "in a bucket")
            self.decided[launch.place] = decision
        return decision

    def _at(self, launch: Launch, called: CalledWith, without_launch: WithoutLaunch | None) -> Decision:
        if (before := self.decided.get(launch.place)) is not None and before.edited:
            why = "its values were changed after it was chosen"
            return self._chosen(launch.place, before.config, called.label, why)
        return self.decided.of(
            launch.place, lambda: self._newly(launch, called, without_launch),
            kept=lambda decision: without_launch is None and decision.kept,
        )  # fmt: skip

    def _chosen(self, place: Any, config: Any, problem: str, why: str) -> Decision:
        before = self.decided.get(place)
        if before is not None and before.config is config and before.found.why == why and not before.edited:
            return before
        answer = Found(config=own_loop.from_triton(config), rung=EXPLICIT, why=why)
        decision = Decision(found=answer, kernel=self._name, problem=problem, config=config)
        self.decided.keep(place, decision)
        return decision

    def _newly(self, launch: Launch, called: CalledWith, without_launch: WithoutLaunch | None) -> Decision:
        refuse_tuned({*called.given.keyword, *launch.kwargs}, self._tuned_names, self._name)
        called.check(launched=without_launch is None)
        call = self._call(launch, called)
        if without_launch is not None:
            return _with_config(without_launch(call), call)
        self._grids.look(call.grid, call.function, called.given.keyword, call.first, self._name, self._tuned_names)
        asks = self.autotuner.cache_results and not own_loop.is_tritons(self.autotuner.check_disk_cache)
        if launch.listed is not None and asks:  # somebody's own `check_disk_cache` for winners
            return self._by_its_own_disk(launch, called, lambda: _with_config(decide(call), call))
        return _with_config(decide(call), call)

    def _first(self, launch: Launch, decision: Decision) -> None:
        """Show a decision in the cache; where nothing stood there, do what Triton does before the first launch."""
        autotuner, config = self.autotuner, decision.config
        if any(map(Arguments.is_tensor, launch.key)):  # Triton's cache keeps such tensors alive
            first = not decision.count.value
        else:
            first = self.shown.put(launch.key, launch.place, config)
        alone = launch.listed is not None and len(launch.listed) == 1 and not own_loop.MEASURES_ONE
        if not first or launch.launched or alone:
            return
        own_loop.reset(autotuner, launch.given(autotuner.arg_names, config))
        if not launch.measured:
            autotuner.bench_time, autotuner.configs_timings = 0.0, {}
        own_loop.tell_listener(autotuner, Layers.of(autotuner.fn)[-1], launch.key, config, measured=launch.measured)

    def _by_triton(self, launch: Launch) -> Any:
        """The config that Triton's own loop finds for a call, which it launches once.

        The `Autotuner` is not pruned once more: its own functions are called once for each miss.
        """
        with self._guard, replaced(self.autotuner, {"prune_configs": lambda _kwargs: list(launch.listed or ())}):
            launch.compiled = launch.run(self.autotuner, *launch.args, grid=launch.grid, warmup=False, **launch.kwargs)
            launch.launched = launch.measured = True
            return self.autotuner.best_config

    def _by_its_own_disk(self, launch: Launch, called: CalledWith, decided: Callable[[], Decision]) -> Decision:
        """The decision where somebody's own `check_disk_cache` knows the winner, or else as everywhere."""
        autotuner, decisions = self.autotuner, list[Decision]()

        def bench() -> None:
            decisions.append(decided())
            self._first(launch, decisions[0])

        asks_no_more = replaced(autotuner, {"cache_results": False})  # Triton's own loop would ask once more
        with self._with_nargs(launch.args), asks_no_more:
            autotuner.check_disk_cache(launch.key, list(launch.listed or ()), bench)
        if decisions:
            return decisions[0]
        return self._chosen(launch.place, autotuner.cache[launch.key], called.label, "its check_disk_cache knows it")

    def _without(self, decision: Decision, error: Exception, launch: Launch) -> Decision:
        """The decision for the default, in place of a config that does not launch."""
        listed = self.fitting(launch.grid, launch.args, launch.kwargs) if self.listed else self.autotuner.configs
        reason = str(error).partition("\n")[0]
        why = f"the config ({decision.found.config}) of the rung {decision.found.rung} does not launch: {reason}"
        _log.warning("%s %s runs its default config: %s", decision.kernel, decision.problem, why)
        answer = Found(config=own_loop.from_triton(listed[0]), rung=FALLBACK, why=why)
        changed = replace(decision, found=answer, config=listed[0], passed=(*decision.passed, why))
        for key, one in list(self.decided.items()):
            if one is decision:
                self.decided[key] = changed
        self._first(launch, changed)
        return changed

    @contextmanager
    def _with_nargs(self, args: Sequence[Any]) -> Iterator[None]:
        """Inside, the `Autotuner` has the positional arguments of the call that is decided, as under Triton."""
        autotuner = self.autotuner
        with self._guard:
            before = getattr(autotuner, "nargs", None)
            autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
            try:
                yield
            finally:
                autotuner.nargs = before

    def fitting(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The configs that are left for a call, after hooks that are given all that Triton gives; raises SpaceError."""
        configs = tuple(self.autotuner.configs)
        if Layers.prunes(self.autotuner):
            with self._with_nargs(args):
                configs = tuple(self.autotuner.prune_configs({**kwargs, "grid": grid, "warmup": False}))
        if not configs:
            message = f"no config of {self._name} is left after pruning: top_k is {self.autotuner.configs_top_k}"
            raise SpaceError(message, hint="let prune_configs_by leave one or more")
        return configs

    @property
    def operation(self) -> Operation:
        """The kernel with its configs, without a grid and without problems: enough to check and compile configs."""
        nothing = CalledWith(problem={}, loose=frozenset(), label="", given=Arguments())
        listed = tuple(self.autotuner.configs) if self.listed else None
        return self._described(Launch((1,), (), {}, listed=listed), nothing).operation

    def _call(self, launch: Launch, called: CalledWith | None = None) -> KernelCall:
        """A call as the tuner and the ladder are told of it, with the configs that are left; nothing is launched."""
        if self.listed:
            launch.listed = self.fitting(launch.grid, launch.args, launch.kwargs)
        return self._described(launch, called or self.calls.problem(launch.args, launch.kwargs))

    def _described(self, launch: Launch, called: CalledWith) -> KernelCall:
        autotuner = self.autotuner
        return KernelCall(
            function=autotuner.fn, grid=launch.grid, called=called, configs=launch.listed, options=self.options,
            reset_to_zero=tuple(autotuner.reset_to_zero), restore_value=tuple(autotuner.restore_value),
            pre_hook=own_loop.BeforeLaunch(autotuner.pre_hook) if autotuner.user_defined_pre_hook else None,
            triton_key=own_loop.triton_key(autotuner, launch.args, launch.kwargs),
            own_bench=own_loop.measures_itself(autotuner), triton_tunes=partial(self._by_triton, launch),
            beside={name: value for name, value in launch.kwargs.items() if name not in autotuner.arg_names},
            tuned_as=partial(self._timed, launch),
        )  # fmt: skip

    def _timed(self, launch: Launch, result: TuningResult) -> None:
        """Show the times of a tune as Triton does."""
        autotuner, launch.measured = self.autotuner, True
        autotuner.bench_time = result.elapsed_s
        autotuner.configs_timings = own_loop.timings(result.trials, launch.listed or ())

    @property
    def listed(self) -> bool:
        """Tell whether the configs are those of a list, and of no space."""
        return self.options.space is None and self.options.listed

    @property
    def _tuned_names(self) -> set[str]:
        """The parameters and options to which configs give values; but for tiles, which a call decides."""
        names = {name for each in self.autotuner.configs for name in each.all_kwargs()}  # or of one that stands for all
        return names if self.listed or self.options.space is None else {*names, *self.options.space.tunables}


def _with_config(decision: Decision, call: KernelCall) -> Decision:
    """The decision with the `triton.Config` that is launched: the one in the list, where there is one."""
    if decision.config is not None:
        return decision
    return replace(decision, config=own_loop.to_triton(decision.found.config, call.configs or (), call.space.members))
