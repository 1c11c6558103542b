"""Decisions for single calls of a decorated kernel: the ladder first, then what the policy says about a miss.

The key of such a call holds what decides the config: values of the key's arguments, dtypes, and classes of the rest. To
make the call again takes more: shapes, numbers, and the grid, which was a function in the caller's code.

The processes of a job meet in the store that `torch.distributed` keeps for it, key by key. There is no collective: one
that never launches a kernel is never waited for, and one that waits too long runs the default.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

from triton_ops import dispatch, records, settings
from triton_ops.backend import (
    Arguments,
    FunctionKernel,
    KernelSource,
    Layers,
    Operation,
    Protection,
    TritonKernel,
    TritonProcess,
)
from triton_ops.base import cached_property, canonical_json, require, warn, warn_once
from triton_ops.dispatch.calls import CalledWith, extents_of, grid_of_call, note_of, space_around, space_of_call
from triton_ops.dispatch.decision import FALLBACK, TUNED, Decision, Found, within
from triton_ops.dispatch.ladder import (
    BACKGROUND,
    DEFAULT,
    ERROR,
    EXPECTED,
    MAY_MEASURE,
    MEASURING,
    QUEUE,
    RACE,
    TUNE,
    LadderQuestion,
    capturing,
    held,
    ladder_of,
    left_undecided,
    policy_of,
    wants_same_bits,
    word_or,
)
from triton_ops.dispatch.triton_autotuner import from_triton
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    MissingDependencyError,
    SettingsError,
    SpaceError,
    TritonKernelError,
    UntunedError,
)
from triton_ops.records import NotedCall, Record
from triton_ops.request import Effort, TuneOptions, TuneProblem, TuneRequest, device_of
from triton_ops.settings import cache_folder
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Key, Mapper, Tolerance, TuningResult, as_callable

TURN_S = 30.0  # for another thread of this process that tunes, or another process of the job that looks a winner up
_PREFIX = "triton_ops/"

writes_a_part: WeakSet[Any] = WeakSet()  # kernels whose tune has failed with what they only write as outputs


@dataclass(frozen=True)
class Meeting:
    """Place at which the processes of a job meet: `store` has `compare_set`, `set`, `wait` and `get`."""

    store: Any
    rank: int

    def agreed(
        self, key_id: str, alone: Callable[[], Decision], why_not: Callable[[Config], str | None],
        default: Callable[[str], Decision], wait_s: float,
    ) -> Decision:  # fmt: skip
        """The decision of the job for a key, whose id is equal in every process.

        The first process that asks decides by `alone`; if that raises, the others run `default`, given the reason why.
        Another process may take `wait_s`; a tune takes its budget. `why_not` says why a config cannot be taken here.
        """
        name = f"{_PREFIX}{key_id}"
        if self.store.compare_set(f"{name}/who", "", str(self.rank)).decode() == str(self.rank):
            return self._decided(name, alone)
        if isinstance(decision := self._waited(name, wait_s), str):
            warn("the default config runs: %s", decision)
            return default(decision)
        if (refused := why_not(decision.config)) is not None:
            return default(f"rank {self.rank} cannot take the config of the job ({decision.config}): {refused}")
        return replace(default(""), found=decision, policy=None)

    def _decided(self, name: str, alone: Callable[[], Decision]) -> Decision:
        content: dict[str, Any] = {"rank": self.rank}
        try:
            decision = alone()
            answer = decision.found
            content |= {"config": dict(answer.config), "rung": answer.rung, "why": answer.why, "record": answer.record}
        finally:
            self.store.set(f"{name}/config", canonical_json(content))
        return decision

    def _waited(self, name: str, wait_s: float) -> Found | str:
        try:
            self.store.wait([f"{name}/config"], timedelta(seconds=wait_s))
        except Exception as error:  # noqa: BLE001 - each store has its own error for a wait that was too long
            return f"no process of the job has decided within {wait_s:.0f} s ({type(error).__name__})"
        return _read(self.store.get(f"{name}/config"))


def meeting() -> Meeting | None:
    """Place at which the processes of this job meet; None if there is one process, or each decides alone."""
    if "torch.distributed" not in sys.modules or word_or("off", settings.ranks, "each process decides alone") == "off":
        return None
    distributed = require("torch.distributed", "agreeing on winners")
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() < 2:
        return None
    # Private, and the one store that every process of the job has. Processes that choose alone may choose differently,
    # and then wait for each other without end: flashinfer-ai/flashinfer#3186.
    store = require("torch.distributed.distributed_c10d", "agreeing on winners")._get_default_store()
    return Meeting(store, distributed.get_rank())


def _read(text: bytes) -> Found | str:
    try:
        content: Mapping[str, Any] = json.loads(text)
        if "config" not in content:
            return f"rank {content['rank']} failed to decide"
        why = f"decided by rank {content['rank']}: {content['why']}"
        config = Config.from_json(content["config"])
        return Found(config=config, rung=content["rung"], why=why, record=content["record"])
    except (ValueError, KeyError, TypeError, SpaceError) as error:
        return f"what another process decided cannot be read: {error}"


_UNLISTED_S = 14.0  # for a tune of a kernel without a list that a launch waits for, of 15 with its last steps
_LONGEST_TUNE_S = 600.0  # of an effort without a limit


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for tuning a decorated kernel, and for its launches before that, as of `triton_ops.autotune`.

    A `space` of None takes the list of configs, or, where nothing is `listed`, what is read from the kernel. `contents`
    are `Contents`, or None.
    """

    space: Any = None
    listed: bool = True
    widen: bool = False
    contents: Any = None
    reference: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    tolerance: float | Tolerance | None = None
    check: Callable[[Any, Any], Any] | None = None
    tune: TuneOptions = field(default_factory=TuneOptions)
    on_miss: str | None = None
    mapper: Mapper = field(default_factory=Mapper)
    same_bits: bool | str | Mapping[str, Any] | None = None  # or as `same_bits_as` of `tune`

    def __post_init__(self) -> None:
        asked = self.same_bits
        words, kinds = ("default", "lockfile"), (bool, type(None), Mapping)
        if not (asked in words if isinstance(asked, str) else isinstance(asked, kinds)):
            raise SettingsError(f"same_bits is {asked!r}, no truth value", hint="give True, False or None")
        if self.on_miss is not None:
            settings.one_of(settings.ON_MISS, self.on_miss, "on_miss")
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", Tolerance.of(self.tolerance))
        as_callable("check", self.check)
        folder, reference = self.tune.cache_dir, self.reference
        if folder is not None and not settings.is_path(folder):
            raise SettingsError(f"cache_dir is {folder!r}; it must be a path", hint="or leave it out")
        if reference is not None and not callable(reference):
            raise SettingsError(f"reference is {reference!r}; it must be a function", hint="or leave it out")
        if self.tune.effort is not None or self.tune.budget_s is not None:
            self.tune.settled()  # a word that is no effort is told now
        if self.reference is not None and not self.outputs:
            message = "a reference is given, and no outputs: the kernel's results would have no names"
            raise KernelTypeError(message, hint='name the arguments that the kernel writes: outputs=("out_ptr",)')


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """One call of a decorated kernel, and all that decides its config.

    `function` is the kernel below the decorator, with its heuristics, and `grid` what stood in the brackets. `configs`
    may be taken here, the default first; None where there is a config space. Triton calls it `triton_key` where it
    prints a tune. `own_bench` is what the kernel has been given to measure by, which only Triton's own loop asks; empty
    if nothing. `triton_tunes` tunes by that loop, where this package's tuner cannot be told of the call. `beside` are
    options that the call gives beside the arguments.
    """

    function: Any
    grid: Any
    called: CalledWith
    configs: tuple[Any, ...] | None
    options: Options
    triton_tunes: Callable[[], Any]
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    pre_hook: Callable[[dict[str, Any]], Any] | None = None
    triton_key: tuple[Any, ...] = ()
    own_bench: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)
    tuned_as: Callable[[TuningResult], Any] | None = None

    @property
    def name(self) -> str:
        """The kernel's name, for messages where it cannot be described."""
        inner = Layers.unwrap(self.function)
        return f"{inner.__module__}:{inner.__name__}"

    @cached_property
    def parts(self) -> tuple[TritonKernel, ConfigSpace]:
        """The kernel as the tuner takes it, and the space; raises KernelTypeError for a decorator inside of another."""
        if any(hasattr(layer, "configs") for layer in Layers.of(self.function)):
            message = f"{self.name} has two decorators that tune, one around the other"
            raise KernelTypeError(message, hint="leave one of them, with the configs of both")
        plain = TritonKernel(
            self.function, _no_grid, self._outputs, pre_hook=self.pre_hook, reset_to_zero=self.reset_to_zero,
            restore_value=self.restore_value, grid_of_call=True,
        )  # fmt: skip
        values = {**self.called.given.keyword, **self.beside}
        if self.configs is None and self.options.space is None:
            return plain, space_of_call(self.function, values, self.grid)
        part = self.options.space if self.configs is None else list(self.configs)
        kernel, without_hooks = FunctionKernel.kernel_and_space(plain, part)
        space = ConfigSpace.from_user(without_hooks)
        if self.options.widen:
            seeds = dict.fromkeys([space.default_config, *(space.listed or ())])
            space = space_around(self.function, values, list(seeds), space.tunables, self.grid)
        return kernel, space

    @property
    def _outputs(self) -> tuple[str, ...]:
        """The arguments that are named as written, else those that are only written and share no memory with others."""
        if self.options.outputs or Layers.unwrap(self.function) in writes_a_part:
            return self.options.outputs
        values = self.called.given.keyword
        places = list(map(_place, self.called.given.tensors()))
        source = KernelSource.of(self.function)
        written = source.written_only if source is not None else ()
        names = [name for name in written if Arguments.is_tensor(values.get(name))]
        alone = [name for name in names if places.count(_place(values[name])) == 1]
        return tuple(name for name in alone if name not in {*self.restore_value, *self.reset_to_zero})

    @property
    def first(self) -> dict[str, object]:
        """The values of one config that may be taken: the first of a list, else the space's default."""
        if self.configs is not None:
            return dict(self.configs[0].all_kwargs())
        return dict(self.space.default_config.with_members(self.space.members))

    @property
    def operation(self) -> Operation:
        """Kernel and configs as an operation without a grid and without problems."""
        kernel, space = self.parts
        return Operation(kernel.name, kernel, space, lambda: {})  # noqa: PIE807 - the parameters of `dict` cannot be seen

    @property
    def space(self) -> ConfigSpace:
        """The configs that may be taken here."""
        return self.parts[1]

    @cached_property
    def request(self) -> TuneRequest:
        """The request of a tune for this call."""
        kernel, space = self.parts
        values = dict(self.called.given.keyword)
        kernel = replace(kernel, grid=grid_of_call(self.grid, self.function, values, space))
        chosen = self.options
        request = TuneProblem(
            target=kernel, kwargs=values, space=space, device=self.device, reference=chosen.reference,
            tolerance=chosen.tolerance, check=chosen.check, contents=chosen.contents,
        ).request()  # fmt: skip
        asked = replace(request.key, problem=self.called.asked)
        request = held(request, asked, ladder_of(chosen.tune.cache_dir).lockfile, chosen.same_bits)
        if request.same_bits_as is not None and chosen.mapper.buckets:
            hint = "leave the buckets out: `explain classes --vary` says at which extents a class is"
            raise SettingsError("problems of a bucket compile to several classes of bits", hint=hint)
        return request

    @property
    def requests(self) -> list[TuneRequest]:
        """The request of a tune, and of one more without the outputs, where nobody has named them."""
        request: Any = self.request
        unnamed = request.kernel.outputs and not self.options.outputs
        return [request, *([replace(request, kernel=replace(request.kernel, outputs=()))] if unnamed else [])]

    @cached_property
    def device(self) -> str:
        """The torch name of the device that the tensors are on."""
        return device_of(self.called.given, None)

    @property
    def plan(self) -> Effort:
        """The effort of a tune: what the decorator asks for, else what suits a launch that waits."""
        tune = self.options.tune
        if tune.effort is not None or tune.budget_s is not None or self.device == "cpu":
            return tune.settled()
        return tune.settled().for_a_launch(self.space.size.total).within(None if self.options.listed else _UNLISTED_S)

    @cached_property
    def key(self) -> Key:
        """The key of the record for this call."""
        return replace(self.request.key, problem=self.called.problem, label=self.called.label)

    @property
    def keeps_bits(self) -> bool:
        """True if it may run no config of other bits, so that Triton's own loop cannot tune it."""
        with suppress(TritonKernelError):  # such as one that says why no class can be told
            return self.request.same_bits_as is not None
        return wants_same_bits(self.options.same_bits)

    @property
    def asked(self) -> Key:
        """The key with the problem as it is, which lockfiles are asked for: their own ranges are compared with it."""
        return replace(self.key, problem=self.called.asked)

    @cached_property
    def noted(self) -> NotedCall | str:
        """The call as it is noted for a later tune and in its record, or why it cannot be made again."""
        return note_of(self.called.given.keyword, self.function, self.grid, self.space)

    def question(self, policy: str) -> LadderQuestion:
        """Question to the ladder."""
        return LadderQuestion(
            key=self.key, asked=self.asked, loose=self.called.loose, space=self.space,
            enough=self._enough if policy == TUNE else None, near=policy != TUNE,
            expected=policy not in (TUNE, ERROR) and not self.key.bits and not capturing(),
        )  # fmt: skip

    def tuned(
        self, options: TuneOptions | None = None, space: ConfigSpace | None = None, **place: object
    ) -> TuningResult:
        """The result of a tune for this call, with options and a space in place of those that the call brings.

        `place` are fields of `RequestedTune`: who listens, and what lets this tune have its device.
        """
        return dispatch.tune_call(self, options, space, **place)

    def _enough(self, record: Record) -> str | None:
        """Reason for which a record does not spare a tune that was asked for; None if it does."""
        if record.space != self.space.fingerprint:
            return "it was found among other configs"
        if record.step:
            return None  # another tune would look at it alone again
        other = None if record.raced_over(self.request.contents_fingerprint) else "it was over other contents"
        if (lacking := other or left_undecided(record)) is not None:
            return lacking
        return None if record.covers(self.options.tune.settled()) else f"it was found with the effort {record.effort}"


def decide(call: KernelCall) -> Decision:
    """The config of a call: of the first rung that answers, else as the policy says.

    Raises UntunedError if none is known and the policy is `error`, and DeviceError for a tune of tensors on no GPU.
    """
    call, wish, policy = _policies(call)
    try:
        question = call.question(policy)
        job = meeting() if question.key.unknown is None and not capturing() else None
        if job is None or policy == ERROR:
            return _alone(call, question, wish, policy)
        return job.agreed(
            question.key.id,
            lambda: _alone(call, question, wish, policy),
            question.space.why_not,
            lambda why: _decision(call, question.key, question.fallback(why)).because(why, wish),
            TURN_S + (call.options.tune.settled().budget.seconds or _LONGEST_TUNE_S if policy in MEASURING else 0.0),
        )
    except (DeviceError, UntunedError):
        raise
    except TritonKernelError as error:
        return _undescribed(call, error, policy)


def foretold(call: KernelCall) -> Decision:
    """Decision that `decide` would take now, with nothing done; of a tune or an error the default's reason tells."""
    call, _, policy = _policies(call)
    will = {
        TUNE: "a launch tunes it first",
        ERROR: "a launch raises UntunedError",
        EXPECTED: "a launch compares the default with the model's first pick where the model is sure of a gain",
    }.get(policy, "")
    if policy == TUNE and call.own_bench and not call.keeps_bits:
        will = f"a launch has it tuned by Triton's own loop, since {call.own_bench}"
    elif policy == TUNE and call.options.tune.isolate is not False and Protection.names_of_addresses(call.called.given):
        will = "a launch does not tune it, since its arguments hold addresses of memory"
    return _without_a_launch(call, policy, will)


def known(call: KernelCall) -> Decision:
    """The best that is known for a call that cannot be tuned where it is; nothing is noted or warned of."""
    decision = _without_a_launch(call, DEFAULT, "")
    return _told(call, decision) if decision.missed and getattr(call.space, "made_up", False) else decision


def _without_a_launch(call: KernelCall, policy: str, will: str) -> Decision:
    try:
        question = call.question(policy)
        decision = _decision(call, question.key, *ladder_of(call.options.tune.cache_dir).ask(question))
    except TritonKernelError as error:
        return _by_first(call, error, policy)
    if not decision.missed:
        return decision
    return decision.because("; ".join(filter(None, [_why(call, policy), will])), policy)


def _alone(call: KernelCall, question: LadderQuestion, asked: str, policy: str) -> Decision:
    decision = _decision(call, question.key, *ladder_of(call.options.tune.cache_dir).ask(question))
    if not decision.unmeasured:
        return decision
    extents = extents_of(call.grid, call.function, call.called.given.keyword, call.first)
    if isinstance(extents, tuple) and 0 in extents:  # another call of the key may launch something: that one is decided
        return replace(decision.because("the call launches no program", DEFAULT), kept=False)
    if policy in MEASURING and call.called.hides_tiles(call.space, call.parts[0].outputs):
        why = "each tensor that it reads holds one value, with which wrong tiles may give equal results"
        return replace(_told(call, decision.because(why, DEFAULT)), kept=False)
    kept = asked == policy or TritonProcess.is_interpreted(call.function)
    decision = replace(decision, policy=asked, within=within(), kept=kept)
    if policy == TUNE and call.own_bench:
        return _undescribed(call, KernelTypeError(call.own_bench), policy)
    return _missed(call, decision, policy)


def _decision(call: KernelCall, key: Key, found: Found, passed: tuple[str, ...] = ()) -> Decision:
    return Decision(
        found=found, kernel=key.kernel, problem=call.called.label, device=str(key.device.get("name", "")),
        passed=passed, key=key, folder=call.options.tune.cache_dir,
    )  # fmt: skip


def _missed(call: KernelCall, decision: Decision, policy: str) -> Decision:
    if policy == ERROR:
        raise decision.error
    why = _why(call, policy)
    if policy in MAY_MEASURE and decision.missed and decision.key is not None:
        try:
            answer = dispatch.measured(call, decision.because(why, policy), policy, in_job=meeting() is not None)
        except TritonKernelError as error:
            why = _first_line(error)
            if policy == TUNE and isinstance(error, DeviceError):
                raise
            if policy == TUNE and isinstance(error, SpaceError):
                return _undescribed(call, error, policy)
            if policy == TUNE:
                return _told(call, decision.because(f"tuning failed: {why}", policy))
        else:
            return _told(call, answer) if answer.missed else answer
    if decision.key is not None and not TritonProcess.is_interpreted(call.function):
        noted_call = None if isinstance(call.noted, str) else call.noted
        records.Misses(Path(cache_folder(call.options.tune.cache_dir))).note(decision.key, call=noted_call)
    return _told(call, replace(decision, found=replace(decision.found, why=why))) if decision.missed else decision


def _told(call: KernelCall, decision: Decision) -> Decision:
    where = f"{decision.kernel} {decision.problem}".rstrip()
    if getattr(call.space, "made_up", False):
        raise UntunedError(
            f"{where} runs no config: {decision.found.why}, and its tiles have no values but those that were made up",
            decision.kernel, decision.problem,
            hint="tune it first, or give its tiles defaults in the kernel's signature",
        )  # fmt: skip
    warn_once(f"{where} runs its default config: {decision.found.why}")
    return decision


def _undescribed(call: KernelCall, error: TritonKernelError, policy: str) -> Decision:
    name, reason = call.name, _first_line(error)
    if not call.options.listed:  # no config of it can be launched
        raise error
    if policy == ERROR:
        raise UntunedError(f"no winner can be known for a call of {name}: {reason}", name) from error
    if policy == TUNE and call.configs is not None and len(call.configs) > 1 and not call.keeps_bits:
        warn_once(f"{name} is tuned by Triton's own loop: {reason}")
        config = call.triton_tunes()
        answer = Found(config=from_triton(config), rung=TUNED, why=f"found by Triton's own loop, since {reason}")
        return Decision(found=answer, kernel=name, problem=call.called.label, config=config)
    warn_once(f"{name} runs its default config: {reason}")
    return _by_first(call, error, policy)


def _by_first(call: KernelCall, error: TritonKernelError, policy: str) -> Decision:
    first = next(iter(call.configs or ()), None)
    answer = Found(config=Config() if first is None else from_triton(first), rung=FALLBACK, why=_first_line(error))
    return Decision(found=answer, kernel=call.name, problem=call.called.label, config=first).because(answer.why, policy)


def _policies(call: KernelCall) -> tuple[KernelCall, str, str]:
    """A call, the policy that is asked for, and the one that can be followed now.

    A race is a tune of little effort, and an expectation a comparison of still less, in the background too.
    """
    policy = policy_of(call.options.on_miss, TUNE)
    if effort := {RACE: RACE, EXPECTED: EXPECTED, BACKGROUND: EXPECTED}.get(policy):
        call = replace(call, options=replace(call.options, tune=replace(call.options.tune, effort=effort)))
    policy = TUNE if policy == RACE else policy
    return call, policy, policy if _possible(policy, call) else DEFAULT


def _possible(policy: str, call: KernelCall) -> bool:
    """Tell whether a policy can be followed now: captures stay undisturbed, interpreted kernels tune on request.

    A request is the decorator's `on_miss`, that of a `with on_miss`, or the environment's, and no policy that stands
    where there is none of these.
    """
    # To measure is to wait for the device, which ends a capture that is under way: triton-lang/triton#10596.
    if policy not in MAY_MEASURE or capturing():
        return policy not in MAY_MEASURE
    return not TritonProcess.is_interpreted(call.function) or policy_of(call.options.on_miss, DEFAULT) in MAY_MEASURE


def _why(call: KernelCall, policy: str) -> str:
    if policy == QUEUE and not TritonProcess.is_interpreted(call.function):
        return "no winner is known for this problem, which is queued for a later tune"
    if capturing():
        return "no winner is known for this problem, and nothing is measured while a CUDA graph is captured"
    if TritonProcess.is_interpreted(call.function):
        advice = (
            'an interpreted kernel is tuned only where that is asked for, by on_miss="tune" or TRITON_OPS_ON_MISS=tune'
        )
        return f"no winner is known for this problem, and {MissingDependencyError.of_extra('tune', 'a tune') or advice}"
    if policy == BACKGROUND:
        return "no winner is known for this problem, which a model looks at in the background"
    return f"no winner is known for this problem, and on_miss is {policy}"


def _place(tensor: Any) -> int:
    """The address of a tensor's storage; that of the object where the storage has no memory."""
    storage = tensor.untyped_storage()
    return int(storage.data_ptr() or storage._cdata)


def _no_grid(_meta: Mapping[str, object]) -> tuple[int, ...]:
    raise LookupError("the grid of the call takes this one's place")


def _first_line(error: TritonKernelError) -> str:
    return error.message.partition("\n")[0]
