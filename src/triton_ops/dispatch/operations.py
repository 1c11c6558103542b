"""Calls of operations, shipped kernels among them: the config that each runs with.

A shipped kernel takes the caller's own config, or what the ladder answers: lockfile, record, record of a problem
nearby, what a model expects to be faster than the default, default. It is asked once for each problem, folder and
process. Nothing is tuned unless the caller asks for it: by `tune=True`, inside `with tuning():`, or by the policy
`tune` of `on_miss`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from triton_ops import backend, cost_model, device, settings
from triton_ops.backend import Arguments, CompilesAtLaunch, Executable, LaunchesAlone, MayCrash, Operation, Source
from triton_ops.base import inform, require, warn
from triton_ops.dispatch.decision import EXPLICIT, FALLBACK, RECORD, TUNED, Decision, Found, asked, register
from triton_ops.dispatch.fast_launch import FastLaunch, KnownGrids
from triton_ops.dispatch.ladder import (
    DEFAULT,
    ERROR,
    EXPECTED,
    MEASURING,
    QUEUE,
    RACE,
    TUNE,
    Ladder,
    LadderQuestion,
    capturing,
    held,
    ladder_of,
    left_undecided,
    policy_of,
    tune,
    wants_same_bits,
)
from triton_ops.dispatch.plans import forget_plans
from triton_ops.dispatch.recorder import launched_by, unseen
from triton_ops.dispatch.traced import plain, taken
from triton_ops.exceptions import (
    ConfigValueError,
    KernelTypeError,
    SettingsError,
    TritonKernelError,
    UnknownTunableError,
    UntunedError,
)
from triton_ops.records import Lockfile, Misses, Record, recalled
from triton_ops.request import MISS, KnownCall, KnownCalls, TuneOptions, TuneProblem, TuneRequest
from triton_ops.settings import cache_folder
from triton_ops.space import Config
from triton_ops.values import TensorSpec, TuningResult, is_aligned, is_fake, typical_argument, typical_memory

_DYNAMO = "torch._dynamo"  # imported once something is compiled
_MOST = 256  # operations
_PLAIN = (bool, int, float, str, type(None))  # of which equal ones of one class are one to a kernel


def decided(
    operation: Operation, values: Mapping[str, Any], *, args: Sequence[Any] = (), on_miss: str | None = None,
    options: Mapping[str, Any] | None = None, tuner: Callable[..., TuningResult] | None = None,
) -> Decision:  # fmt: skip
    """The config of one problem of an operation: of the first rung of the ladder that answers, else by the policy.

    `args` have a place and no name. `on_miss` None takes that of `with on_miss`, the environment's, else `default`.
    `options` are those of a tune that is asked for; `cache_dir` is also where winners are looked up. `tuner` tunes in
    place of `tune`, and takes an effort. Raises UntunedError if no winner is known and the policy is `error`, and what
    `tune` raises.
    """
    policy = policy_of(on_miss, DEFAULT)
    folder: str | Path | None = (options or {}).get("cache_dir")
    request = TuneProblem(target=operation, args=args, kwargs=dict(values)).request()
    request = held(request, request.key, ladder_of(folder).lockfile)
    searches = policy in (TUNE, RACE)
    captured = capturing()
    enough = left_undecided if searches and not captured else None
    policy_now = None if captured else policy
    decision = answered(operation, request, ladder_of(folder), near=not searches, enough=enough, policy=policy_now)
    if not decision.unmeasured:
        return decision
    if policy == ERROR:
        raise replace(decision, problem=request.problem.label).error
    why = f"no winner is known for this problem, and on_miss is {policy}"
    if policy in MEASURING and decision.missed and not capturing():
        effort = {} if policy == TUNE else {"effort": policy}
        more = {**(options or {}), "same_bits_as": request.same_bits_as, **effort}
        run = tuner or partial(tune, operation, args, kwargs=dict(values), **more)
        try:
            return replace(decision, policy=policy).tuned(run(**effort))
        except TritonKernelError as error:
            if policy != EXPECTED and not isinstance(error, UntunedError):
                raise
            if policy != EXPECTED:  # as where its memory is limited
                warn("%s", error.message)
            why = error.message
    assert decision.key is not None
    Misses(Path(cache_folder(folder))).note(decision.key)
    return decision.because(why if decision.missed else decision.found.why, policy)


def would_run(
    operation: Operation, *, shape: Sequence[int] | None = None, dtype: str | None = None, device: str | None = None,
    cold: bool = True, cache_dir: str | Path | None = None, lockfile: Lockfile | None = None,
) -> Decision:  # fmt: skip
    """The config that a call with a problem by shape would run with, and why; nothing is run, compiled or noted.

    `cold=False` prefers a record that was measured with warm caches, which no call asks for. The lockfile that is asked
    first is that of the process, if None is given. Raises ShapeMismatchError, UnsupportedDtypeError, DeviceError or
    CacheError if an argument does not fit.
    """
    problem = TuneProblem(target=operation, shape=shape, dtype=dtype, device=device, cold=cold)
    ladder = ladder_of(cache_dir)
    if lockfile is not None:
        ladder = replace(ladder, lockfile=lockfile, refused="")
    if not cold:
        warm = answered(operation, problem.request(), ladder, near=False)
        if warm.found.rung == RECORD:
            return warm
    request = replace(problem, cold=True).request()
    request = held(request, request.key, ladder.lockfile)
    return answered(operation, request, ladder, near=True, policy=policy_of(None, DEFAULT))


def answered(
    operation: Operation, request: TuneRequest, ladder: Ladder, *, near: bool,
    enough: Callable[[Record], str | None] | None = None, policy: str | None = None,
) -> Decision:  # fmt: skip
    """Answer of a ladder to a request; `enough` says why a record of the very problem does not answer.

    By the policy of a call what a model expects comes before the default; None asks for winners alone. Where a winner
    of a problem nearby may answer, an operation whose configs hold by class is asked for the problem that stands for
    its class.
    """
    shared = False
    if near and operation.by_class and request.same_bits_as is None:
        of_class = request.of_class
        shared = not ladder.tells_apart(operation.name, request.problem, dict(of_class.problem.arguments))
        request = of_class if shared else request
    space, key = operation.space_for(request.problem), request.key
    expected = policy not in (None, TUNE, RACE, ERROR) and request.same_bits_as is None
    question = LadderQuestion(
        key=key, asked=key, loose=frozenset(), space=space, enough=enough, near=near, expected=expected,
        pick=partial(_first_pick, request) if expected and policy != EXPECTED else None,
    )  # fmt: skip
    answer, passed = ladder.ask(question)
    return Decision(
        found=answer, kernel=operation.name, problem=key.label, device=request.device.name,
        passed=(*passed, *getattr(space, "remarks", ())), key=key, folder=ladder.folder,  # remarks of a user's space
        shared=shared,
    )  # fmt: skip


def _first_pick(request: TuneRequest, winners: Iterable[Config]) -> Found | None:
    """What a model of the declared work expects to be faster than the default, by the operation's least gain."""
    if (ranked := request.ranked) is None:
        return None
    work, least_gain = ranked
    pick = cost_model.Model(work, device.Machine.of(request.device)).first_pick(request.space, winners, least_gain)
    return pick and Found(config=pick.config, rung=EXPECTED, why=f"{pick}; nobody has measured it")


class _Calls:
    """What is known of the calls of operations of this process, and of the configs of shipped kernels."""

    def __init__(self) -> None:
        self._of_operations: dict[int, _OfOperation] = {}
        self.shipped = KnownCalls[Decision]()
        self.apart: set[Any] = set()  # places of classes of which each problem is decided by itself
        register(self)

    @property
    def decisions(self) -> list[Decision]:
        """The decisions so far, those of shipped kernels first."""
        of_operations = list(self._of_operations.values())
        return [*self.shipped.values(), *(call.decision for calls in of_operations for call in list(calls.values()))]

    def call(self, operation: Operation, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the winner of the call's problem, or the default."""
        if (calls := self._of_operations.get(id(operation))) is None:
            if len(self._of_operations) >= _MOST:
                self._of_operations.clear()
            calls = self._of_operations.setdefault(id(operation), _OfOperation(operation))
        return calls.call(*args, **kwargs)

    def forget(self) -> None:
        """Have every call decided again."""
        self._of_operations.clear()
        self.shipped.clear()
        self.apart.clear()

    def begin_anew(self) -> None:
        """Forget every decision and the locks, in a forked child, whose other threads are gone."""
        self._of_operations.clear()
        self.shipped.begin_anew()
        self.apart.clear()


class _OfOperation(KnownCalls[KnownCall]):
    """The calls of one operation."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(self._known)
        self._operation = operation
        self._launches: dict[Config, _DirectLaunches] = {}

    def _known(self, args: Sequence[object], kwargs: Mapping[str, object], place: object) -> KnownCall:
        values = _named(self._operation, args, kwargs)
        if place is None:  # such as a tensor without strides or an address
            for name, value in values.items():
                if Arguments.is_tensor(value):
                    TensorSpec.check_strided(value, name)
        return self.of(place, lambda: self._decided(values, list(values)[: len(args)]))

    def _decided(self, values: Mapping[str, object], names: Sequence[str]) -> KnownCall:
        """What a call comes to, whose positional arguments have these `names`."""
        operation = self._operation
        decision, arguments = safely_decided(operation, values), Arguments(keyword=dict(values))
        if isinstance(operation.kernel, MayCrash):  # what is launched on no memory ends the use of the GPU
            for tensor in arguments.tensors():
                TensorSpec.check_memory(tensor, f"an argument of {operation.name}")
        operation.kernel.check(decision.found.config, arguments)  # else it would overrule the call
        config = decision.found.config.with_named_members()
        run = self._direct(config) or partial(_launched, executable_of(operation, config, values), names)
        return KnownCall(run, decision.counted.count.up, decision.ask, decision.within, decision)

    def _direct(self, config: Config) -> Callable[..., object] | None:
        kernel = self._operation.kernel
        if not isinstance(kernel, LaunchesAlone) or (alone := kernel.alone) is None:
            return None
        if (launches := self._launches.get(config)) is None:
            launches = self._launches[config] = _DirectLaunches(kernel.name, *alone, config)
        return launches.run


def _launched(executable: Executable, names: Sequence[str], *args: object, **kwargs: object) -> object:
    return executable.launch(Arguments(keyword={**dict(zip(names, args, strict=False)), **kwargs}))


class _DirectLaunches:
    """The launches of a kernel with one config, known as those of a decorator that has this one alone."""

    def __init__(self, name: str, function: Any, grid: Callable[[Mapping[str, Any]], Any], config: Config) -> None:
        self._function, self._config = function, config
        grids = KnownGrids((*function.arg_names, *config))
        self._grid = lambda meta: grids.of(grid, {**meta, **config})
        own = SimpleNamespace(kwargs=dict(config), all_kwargs=lambda: config)
        self._owner = SimpleNamespace(fn=function, configs=[own], cache={}, best_config=own)
        self._fast = FastLaunch(function, (), self._owner)
        answer = Found(config=config, rung=EXPLICIT, why="it is this config's kernel")
        self._decision = Decision(found=answer, kernel=name, problem="", config=own)

    def run(self, *args: object, **kwargs: object) -> None:
        """Launch."""
        if self._fast.call(self._grid, *args, **kwargs) is not None:
            return
        changes, launcher = self._fast.changes, backend.TritonProcess.launcher_of(self._function)
        launch = partial(launcher, *args, grid=self._grid, warmup=False, **kwargs, **self._config)
        compiled = backend.ScratchAllocator.around(launch)()
        plain = all(Arguments.is_tensor(value) or type(value) in _PLAIN for value in (*args, *kwargs.values()))
        if plain and not getattr(getattr(compiled, "metadata", None), "global_scratch_size", 1):
            self._fast.learn(
                args, kwargs, self._grid, compiled, self._decision, (), self._owner, told=True, changes=changes
            )


_calls = _Calls()


def called(operation: Operation, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Return what an operation's kernel returns with the config of the problem; raises UntunedError."""
    return (_outside_of_graphs() if _DYNAMO in sys.modules else _calls.call)(operation, args, kwargs)


@cache
def _outside_of_graphs() -> Any:
    """The call as torch's compiler leaves it alone: traced, it would end in the launcher's own code."""
    return require("torch", "torch.compile").compiler.disable(_calls.call)


def _named(operation: Operation, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a call by name; raises KernelTypeError if there are too many, or one is given twice."""
    names = list(getattr(operation.kernel, "parameter_names", ()))
    if len(args) > len(names):
        message = f"{operation.name} takes {len(names)} positional arguments, and the call gives {len(args)}"
        raise KernelTypeError(message, hint=f"its parameters are {', '.join(names)}" if names else "give them by name")
    values = dict(zip(names, args, strict=False))
    if twice := [name for name in values if name in kwargs]:
        message = f"the call of {operation.name} gives {', '.join(twice)} twice, by place and by name"
        raise KernelTypeError(message, hint="give it once")
    return {**values, **kwargs}


def safely_decided(
    operation: Operation, values: Mapping[str, Any], args: Sequence[Any] = (), on_miss: str | None = None, **more: Any
) -> Decision:
    """As `decided`; no unreadable cache stops it, unless a tune or an error is asked for."""
    try:
        return decided(operation, values, args=args, on_miss=on_miss, **more)
    except UntunedError:
        raise
    except TritonKernelError as error:
        if policy_of(on_miss, DEFAULT) != DEFAULT and not (isinstance(error, SettingsError) and wants_same_bits(None)):
            raise
        problem = TuneProblem(target=operation, args=args, kwargs=dict(values)).request().problem
        warn("%s runs with its default config: %s", operation.name, error)
        answer = Found(config=operation.space_for(problem).default_config, rung=FALLBACK, why=error.message)
        return Decision(found=answer, kernel=operation.name, problem=problem.label).because(answer.why, DEFAULT)


def _of_other_space(
    operation: Operation, miss: Decision, ladder: Ladder, checked: Callable[[Config, str], Config]
) -> Decision:
    """The winner of a record that was found in another space, such as the documented one, if the kernel takes it."""
    reference = None if operation.reference is None else Source.of(operation.reference).fingerprint
    if miss.key is None or (record := recalled(miss.key, ladder.store, reference=reference)) is None:
        return miss
    try:
        config = checked(record.winner, operation.name)
    except (UnknownTunableError, ConfigValueError):
        return miss
    winner = Found(config=config, rung=RECORD, why="a record of another space", record=record.id)
    return replace(miss, found=winner, policy=None)


def executable_of(operation: Operation, config: Config, values: Mapping[str, object]) -> Executable:
    """The operation's kernel with a config, for arguments by name."""
    if isinstance(operation.kernel, CompilesAtLaunch):
        return operation.kernel.executable(config)
    return operation.kernel.compile(config, Arguments(keyword=dict(values)))


_tuning: ContextVar[Mapping[str, Any] | None] = ContextVar("triton_ops_tuning", default=None)


@contextmanager
def tuning(**options: object) -> Iterator[None]:
    """Inside, the shipped kernels of this package tune each problem that has no winner yet, before they run it.

    The arguments of a call are copied for its tune, so that the call itself computes what it always does.

    Args:
        **options: Options of `tune`, such as `effort`, `budget_s`, `cache_dir` and `listener`.

    Raises:
        SettingsError: `tune` has no such option, or it is not one of these.

    Cost: a tune for every new problem, from seconds to minutes by its effort.
    """
    TuneOptions.check_names(options, "tuning takes", "the options")
    with asked(_tuning, options):
        yield


def config_for(
    operation: Operation,
    values: Mapping[str, Any],
    check: Callable[[Mapping[str, Any], str], Config],
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> Config:
    """The config of one call of a shipped kernel.

    `check` makes a config of the caller's own one that the kernel of a name takes; `config` None asks the ladder.
    `values` are the arguments that decide which config is best, in the order of the kernel's parameters. `tune` tunes a
    problem without a winner, as inside `with tuning():`.

    Raises:
        UnknownTunableError, ConfigValueError: `config` does not fit the kernel.
        UntunedError: No winner is known, and `on_miss` is `error`.
        TuningFailedError and others: What `tune` raises, if it is asked for.
    """
    if config is not None:
        return check(config, operation.name)
    around = _tuning.get()
    options = {} if tune and around is None else around
    folder = cache_folder((options or {}).get("cache_dir"))
    decide = partial(unseen, _of_shipped, operation, values, check, options)
    shares = options is None and not any(map(is_fake, values.values()))
    decision = _by_class(values, operation.name, folder, decide) if shares else None
    if decision is None:
        place = plain(_calls.shipped.place((), taken(values), operation.name, folder))
        earlier = _calls.shipped.get(place)
        if earlier is not None and earlier.policy is not None and options is not None:
            _calls.shipped.pop(place, None)
        decision = _calls.shipped.of(place, decide)
    again = decision.policy is None or options is None  # else it is tuned at the next call
    told = settings.teller_of_cache_dir()
    launched_by(decision, (_tuning.get, around if again else MISS), (told, told()))
    return decision.found.config


def _by_class(values: Mapping[str, object], name: str, folder: str, decide: Callable[[], Decision]) -> Decision | None:
    """The decision that a call shares with its class of sizes; None where each problem of it is decided by itself."""
    numbers = tuple((key, _of_class(value)) for key, value in values.items())
    hash(numbers)  # sizes that are traced are taken as they are from here on
    place = (name, folder), plain(numbers)
    earlier = _calls.shipped.get(place)
    stays = earlier is not None and earlier.policy is None
    if place in _calls.apart or not (stays or policy_of(None, DEFAULT) in (DEFAULT, QUEUE)):
        return None
    decision = _calls.shipped.of(place, decide)
    if decision.shared:
        return decision
    _calls.apart.add(place)
    _calls.shipped.pop(place, None)
    return None


def _of_class(value: Any) -> Any:
    """What counts of an argument where one config holds for a class of sizes."""
    if Arguments.is_tensor(value):
        return value.dtype, value.device, is_aligned(value), *typical_memory(value.shape, value.stride())
    return isinstance(value, bool) or not isinstance(value, int), typical_argument(value)


def _of_shipped(
    operation: Operation, values: Mapping[str, Any], check: Callable[[Config, str], Config],
    options: Mapping[str, Any] | None,
) -> Decision:  # fmt: skip
    on_miss, folder = None if options is None else TUNE, (options or {}).get("cache_dir")
    decision = safely_decided(operation, values, on_miss=on_miss, options=options)
    if decision.found.rung == TUNED:
        forget_plans()
    ladder = ladder_of(folder)
    if decision.unmeasured and not ladder.only_lockfile:
        decision = _of_other_space(operation, decision, ladder, check)
    inform("%s", decision.text)
    return decision.counted
