"""The config that a call of an operation runs with, and the call itself."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, CompilesAtLaunch, Executable, MayCrash, Operation, is_tensor
from triton_ops.base import require
from triton_ops.dispatch import ledger
from triton_ops.dispatch.decision import FALLBACK, RECORD, Decision, Found
from triton_ops.dispatch.ladder import Ladder, Question, ladder_of, left_undecided
from triton_ops.dispatch.policy import DEFAULT, ERROR, TUNE, capturing, policy_of, tune, within
from triton_ops.exceptions import (
    ConfigValueError,
    KernelTypeError,
    TritonKernelError,
    UnknownTunableError,
    UntunedError,
)
from triton_ops.records import Lockfile, Misses, Record, cache_folder, recall
from triton_ops.request import TuneProblem, TuneRequest, spec_of
from triton_ops.space import Config
from triton_ops.values import ALIGNMENT_BYTES, TuningResult, check_memory, check_strided

_DYNAMO = "torch._dynamo"  # imported once something is compiled
_MOST = 4_096  # problems of all operations
_log = logging.getLogger("triton_ops")


def decided(
    operation: Operation,
    values: Mapping[str, Any],
    *,
    args: Sequence[Any] = (),
    default: Config | None = None,
    on_miss: str | None = None,
    options: Mapping[str, Any] | None = None,
    tuner: Callable[[], TuningResult] | None = None,
) -> Decision:
    """The config of one problem of an operation: of the first rung of the ladder that answers, else by the policy.

    `args` have a place and no name. `default` None takes the space's. `on_miss` None takes that of `with on_miss`, the
    environment's, else `default`. `options` are those of a tune that is asked for; `cache_dir` is also where winners
    are looked up. `tuner` tunes in place of `tune`. Raises UntunedError if no winner is known and the policy is
    `error`, and what `tune` raises.
    """
    policy = policy_of(on_miss, DEFAULT)
    folder: str | Path | None = (options or {}).get("cache_dir")
    request = TuneProblem(target=operation, args=args, kwargs=dict(values)).request()
    enough = left_undecided if policy == TUNE and not capturing() else None
    decision = answered(operation, request, default, ladder_of(folder), near=policy != TUNE, enough=enough)
    if not decision.missed:
        return decision
    if policy == ERROR:
        raise decision.error
    if policy == TUNE and not capturing():
        result = tuner() if tuner is not None else tune(operation, args, kwargs=dict(values), **(options or {}))
        return decision.tuned(result)
    Misses(Path(cache_folder(folder))).note(request.key)
    return decision.because(f"no winner is known for this problem, and on_miss is {policy}", policy, within())


def would_run(
    operation: Operation,
    *,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    cold: bool = True,
    cache_dir: str | Path | None = None,
    lockfile: Lockfile | None = None,
) -> Decision:
    """The config that a call with a problem by shape would run with, and why; nothing is run, compiled or noted.

    `cold=False` prefers a record that was measured with warm caches, which no call asks for. The lockfile that is asked
    first is that of the process, if None is given. Raises ShapeMismatchError, UnsupportedDtypeError, DeviceError or
    CacheError if an argument does not fit.
    """
    problem = TuneProblem(target=operation, shape=shape, dtype=dtype, device=device, cold=cold)
    ladder = ladder_of(cache_dir)
    if lockfile is not None:
        ladder = ladder.with_lockfile(lockfile)
    if not cold:
        warm = answered(operation, problem.request(), None, ladder, near=False)
        if warm.found.rung == RECORD:
            return warm
    return answered(operation, replace(problem, cold=True).request(), None, ladder, near=True)


def answered(
    operation: Operation,
    request: TuneRequest,
    default: Config | None,
    ladder: Ladder,
    *,
    near: bool,
    enough: Callable[[Record], str | None] | None = None,
) -> Decision:
    """Answer of a ladder to a request; `enough` says why a record of the very problem does not answer."""
    space, key = operation.space_for(request.problem), request.key
    chosen = space.default_config if default is None else default
    question = Question(
        key=key, asked=key, loose=frozenset(), default=chosen, why_not=space.why_not, enough=enough, near=near
    )  # fmt: skip
    answer = ladder.ask(question)
    return Decision(
        found=answer.found, kernel=operation.name, problem=key.label, device=request.device.name,
        passed=(*answer.passed, *getattr(space, "remarks", ())), key=key,  # of a user's space, or a choice
    )  # fmt: skip


class _Calls:
    """Calls of the operations of this process, with what ran."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Operation, Decision, Executable]] = {}
        self._guard = threading.RLock()

    @property
    def decisions(self) -> list[Decision]:
        return [decision for _, decision, _ in list(self._known.values())]

    def call(self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the winner of the call's problem, or the default."""
        values = _named(operation, args, kwargs) if args else dict(kwargs)
        try:
            place = (id(operation), *values, *map(told, values.values()))
        except RuntimeError:  # a tensor without strides or an address
            for name, value in values.items():
                if is_tensor(value):
                    check_strided(value, name)
            raise
        entry = self._known.get(place)
        if entry is None or not entry[1].holds(within):
            with self._guard:  # one thread decides; the others wait for it
                entry = self._known.get(place)
                if entry is None or not entry[1].holds(within):
                    entry = self._decided(operation, values, place)
        result = entry[2].launch(Arguments(keyword=values))
        entry[1].count.up()
        return result

    def forget(self) -> None:
        self._known.clear()

    def begin_anew(self) -> None:
        """Forget every decision and the lock, in a forked child, whose other threads are gone."""
        self._guard = threading.RLock()
        self._known.clear()

    def _decided(self, operation: Operation, values: Mapping[str, Any], place: Any) -> Any:
        decision, given = safely_decided(operation, values), Arguments(keyword=dict(values))
        if isinstance(operation.kernel, MayCrash):  # what is launched on no memory ends the use of the GPU
            for tensor in given.tensors():
                check_memory(tensor, f"an argument of {operation.name}")
        operation.kernel.check(decision.found.config, given)  # else it would overrule the call
        entry = (operation, ledger.counted(decision), _executable(operation, decision.found.config, values))
        if len(self._known) >= _MOST:
            self.forget()
        self._known[place] = entry
        return entry


_calls = _Calls()
ledger.register(_calls)


def called(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what an operation's kernel returns with the config of the problem; raises UntunedError."""
    call = _outside_of_graphs() if _DYNAMO in sys.modules else _calls.call
    return call(operation, args, kwargs)


@cache
def _outside_of_graphs() -> Any:
    """The call as torch's compiler leaves it alone: traced, it would end in the launcher's own code."""
    return require("torch", "torch.compile").compiler.disable(_calls.call)


def _named(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; raises KernelTypeError if there are too many, or one is given twice."""
    names = list(getattr(operation.kernel, "parameter_names", ()))
    if len(args) > len(names):
        raise KernelTypeError(
            f"{operation.name} takes {len(names)} positional arguments, and the call gives {len(args)}",
            hint=f"its parameters are {', '.join(names)}" if names else "give them by name",
        )
    values = dict(zip(names, args, strict=False))
    if twice := [name for name in values if name in kwargs]:
        raise KernelTypeError(
            f"the call of {operation.name} gives {', '.join(twice)} twice, by place and by name", hint="give it once"
        )
    return {**values, **kwargs}


def told(value: Any) -> Any:
    """Key of a problem's argument: of a tensor its spec and device; else itself, or its text if it cannot be hashed."""
    if not is_tensor(value):
        try:
            hash(value)
        except TypeError:
            return (type(value), str(spec_of(value)))
        return (type(value), value)
    aligned = value.data_ptr() % ALIGNMENT_BYTES == 0
    return (type(value), value.shape, value.dtype, value.stride(), aligned, value.device)


def safely_decided(
    operation: Operation,
    values: Mapping[str, Any],
    *,
    args: Sequence[Any] = (),
    default: Config | None = None,
    on_miss: str | None = None,
    options: Mapping[str, Any] | None = None,
    tuner: Callable[[], TuningResult] | None = None,
) -> Decision:
    """As `decided`; no unreadable cache stops it, unless a tune or an error is asked for."""
    try:
        return decided(operation, values, args=args, default=default, on_miss=on_miss, options=options, tuner=tuner)
    except UntunedError:
        raise
    except TritonKernelError as error:
        if policy_of(on_miss, DEFAULT) != DEFAULT:
            raise
        label, why = "", error.message
        if default is None:
            problem = TuneProblem(target=operation, args=args, kwargs=dict(values)).request().problem
            default, label = operation.space_for(problem).default_config, problem.label
        else:
            _log.warning("%s runs with its default config: %s", operation.name, error)
        answer = Found(config=default, rung=FALLBACK, why=why)
        return Decision(found=answer, kernel=operation.name, problem=label, policy=DEFAULT, within=within())


class Choices:
    """The configs with which functions run that launch their kernels themselves: the caller's, or the ladder's.

    The ladder is asked once for each problem, folder and process.
    """

    def __init__(self) -> None:
        self._by_problem: dict[Any, Decision] = {}
        ledger.register(self)

    @property
    def decisions(self) -> list[Decision]:
        """The decisions so far."""
        return list(self._by_problem.values())

    def forget(self) -> None:
        """Look every winner up again: for a process that should see what others have tuned since."""
        self._by_problem.clear()

    begin_anew = forget

    def of(
        self, operation: Operation, values: Mapping[str, Any], default: Callable[[], Config],
        checked: Callable[[Config, str], Config], options: Mapping[str, Any] | None,
    ) -> Config:  # fmt: skip
        """The config of one problem; with options of a tune, a problem without a winner is tuned.

        `checked` raises for a config that the kernel of a name does not take, such as one of a record of another space.
        """
        folder = (options or {}).get("cache_dir")
        place = (operation.name, cache_folder(folder), *map(told, values.values()))
        decision = self._by_problem.get(place)
        if decision is None or not decision.holds(within) or (options is not None and decision.missed):
            on_miss = None if options is None else TUNE
            decision = safely_decided(operation, values, default=default(), on_miss=on_miss, options=options)
            if decision.missed and decision.key is not None and not ladder_of(folder).only_lockfile:
                decision = _of_other_space(operation, values, decision, folder, checked)
            if len(self._by_problem) >= _MOST:
                self.forget()
            self._by_problem[place] = ledger.counted(decision)
            _log.info("%s", decision.text)
        decision.count.up()
        return decision.found.config


def _of_other_space(
    operation: Operation, values: Mapping[str, Any], miss: Decision, folder: Any,
    checked: Callable[[Config, str], Config],
) -> Decision:  # fmt: skip
    """The winner of a record that was found in another space, such as the documented one, if the kernel takes it."""
    record = recall(operation, kwargs=values, cache_dir=folder)
    if record is None:
        return miss
    try:
        config = checked(record.winner, operation.name)
    except (UnknownTunableError, ConfigValueError):
        return miss
    winner = Found(config=config, rung=RECORD, why="a record of another space", record=record.id)
    return replace(miss, found=winner, policy=None)


def _executable(operation: Operation, chosen: Config, values: Mapping[str, Any]) -> Executable:
    config = chosen.with_named_members()
    if isinstance(operation.kernel, CompilesAtLaunch):
        return operation.kernel.executable(config)
    return operation.kernel.compile(config, Arguments(keyword=dict(values)))
