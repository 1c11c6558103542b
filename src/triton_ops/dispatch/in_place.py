"""`tune_in_place`: finalists of kernels run where they are launched, and the time of the whole step decides.

A config that wins alone can lose beside its neighbours, with which it shares caches, clocks and power. Every run begins
in the state in which the step was handed over: tensors that a first run has changed are restored.
"""

from __future__ import annotations

import gc
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_ops import timing
from triton_ops.backend import Arguments, CandidateError, Layers, Protection
from triton_ops.base import ForkSafeLock, canonical_json, require, warn
from triton_ops.device import TorchDevice, Turns, probe
from triton_ops.dispatch.deciding import meeting
from triton_ops.dispatch.decision import EXPLICIT, LOCKFILE, Decision, decisions
from triton_ops.dispatch.ladder import DEFAULT, RACE, capturing, change_limits, deciding_by, on_miss, policy_of
from triton_ops.evaluation import ReferenceResults
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, TargetError
from triton_ops.records import Runs, store_in
from triton_ops.request import Budget
from triton_ops.settings import cache_folder
from triton_ops.space import Config
from triton_ops.values import Tolerance

_FINALISTS = 4  # of a problem: what runs, the winner alone, the default, and the next
_ZONE = 0.002  # of the step's time: 2 % of a kernel that takes a tenth of it
_LAUNCH_MS = 0.0005  # by which equal binaries differ in graphs of other memory, 101 of 102 times
_DUEL_S = 3.0
_SMALL = 1 << 20  # elements of a tensor on the CPU that a step of a GPU may write, such as an optimizer's count
_WATCH_S = 0.25  # without a run of the step, in which its tensors have to stay as they are
_one_at_a_time = ForkSafeLock(threading.RLock)  # what launches take holds for all threads


@dataclass(kw_only=True)
class StepKernel:
    """One problem of a kernel in a step, launched with the config `before`, and with `after` from now on.

    `share` is its part of the step's time, by that of a launch alone. `gains` has for each rival by how much the step
    took longer without it, relative, with its 95 % interval; `whys` has that in words, or why a rival failed. Where no
    rival has `raced`, since the budget left no time, the winner of the problem's own tune is left alone.
    """

    kernel: str
    problem: str
    before: Config
    after: Config
    whys: list[str]
    launches: int = 0
    share: float = 0.0
    rivals: Sequence[Config] = ()
    raced: bool = False
    gains: dict[Config, timing.Interval] = field(default_factory=dict)
    keep: Callable[[str], object] | None = None  # in the record, given the name of the step; None without a record

    @classmethod
    def of(cls, decision: Decision) -> StepKernel:
        """The problem of a decision, with its rivals where there is a record of it, and this decides."""
        key, config, folder = decision.key, decision.found.config, cache_folder(decision.folder)
        why = decision.found.why
        one = cls(kernel=decision.kernel, problem=decision.problem, before=config, after=config, whys=[why])
        record = None if key is None or decision.found.rung in (EXPLICIT, LOCKFILE) else store_in(folder).get(key.id)
        if record is None:
            return one
        run = Runs(Path(folder), record.id).run(record.run)
        finalists = [config, record.winner, record.default, *(record.ties if run is None else run.finalists)]

        def keep(step: str) -> None:
            if not one.raced:
                one.after = record.winner
                return
            trial = None if run is None else run.trials.get(one.after)
            store_in(folder).put(record.in_step(step, one.after, trial, "; ".join(one.whys)))

        one.share, one.whys, one.keep = record.timing.median_ms, [], keep
        one.rivals = list(dict.fromkeys(filter(None, finalists)))[1:_FINALISTS]
        return one


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of `tune_in_place`; the time of the step as it was, and what it has gained, None for no change."""

    name: str
    kernels: tuple[StepKernel, ...]
    mode: str
    before_ms: float
    gain: timing.Interval | None
    elapsed_s: float


class _Step:
    """A callable that runs from the state in which it was handed over, with the configs that it is to take.

    `launched` are the decisions of its first run, each with its launches, `written` the tensors that it changes, and
    `before_ms` its time as it was.
    """

    def __init__(self, call: Callable[[], object], tolerance: object) -> None:
        gc.collect()  # in a circle of references, gradients of a step before would be added up on its stream
        torch = self.torch = require("torch", "tune_in_place")
        self._call, self._configs, before = call, dict[str, Config](), self._tensors()
        self._gradients = [(each, each.grad) for each in before if each.is_leaf and each.requires_grad]
        self.written, self._versions, self._others = list[Any](), list[int](), set[int]()
        self._watched = False
        self._random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        why = "there is no room for copies of the tensors that a step may write:"
        with CandidateError.as_error(DeviceError, why, "free memory or take a smaller step", RuntimeError, MemoryError):
            self._saved = Protection(before)
        try:
            start = time.monotonic()
            try:
                result = self()
            finally:
                self._own(max(_WATCH_S, 2 * (time.monotonic() - start)))
            self.launched = [(each, each.count.value) for each in decisions()]
            text = canonical_json([dict(each.key.problem) for each, _ in self.launched if each.key is not None])
            dtypes = dict.fromkeys(re.findall(r"b?float\d+(?:_\w+)?", text))
            self._expected = ReferenceResults.of_own([result, self.written], dtypes, tolerance)
            if why := self._expected.uncompared:
                raise TargetError(why, hint="return tensors")
        finally:
            self.restore()
        earlier = {id(each) for each in before}
        others = Protection([each for each in self._tensors() if id(each) not in earlier])
        wrong = self.difference({}, self._see_others)
        if wrong := wrong or ("it changes a tensor that it has made" if others.changed() else ""):
            hint = "run it once before, so that gradients and an optimizer's state are there"
            raise TargetError(f"the step did not do the same again from the same state: {wrong}", hint=hint)

    def _tensors(self) -> list[Any]:
        """Every tensor with memory that Python holds; beside a GPU only small ones of the CPU."""
        most = {"cuda": math.inf, "cpu": _SMALL if self.torch.cuda.is_initialized() else math.inf}
        tensors = [each for each in gc.get_objects() if type(each) in (self.torch.Tensor, self.torch.nn.Parameter)]
        return [t for t in tensors if t.layout == self.torch.strided and t.numel() <= most.get(t.device.type, -1)]

    def _own(self, watch_s: float) -> None:
        """Take the tensors that have changed for those that the step writes, and see for a while what others do."""
        written = self._saved.narrowed()
        versions, left = [each._version for each in written], Protection(written)
        time.sleep(watch_s)
        self.written, self._versions, self._left, self._others = written, versions, left, left.differing()
        self._watched = True

    def _see_others(self) -> None:
        """After the second run: what changed in the first one and not again was written by others, and is put back."""
        own = self._saved.differing()
        self._others |= {id(each) for each in self.written} - own
        self._left.leave(own)
        self._left.restore()
        del self._left

    def __call__(self) -> object:
        """Run once; the result has no gradient graph, which would keep streams of this run."""
        try:
            return Arguments((self._call(),)).map(lambda tensor: tensor.detach()).positional[0]
        finally:
            self._versions = [each._version for each in self.written]

    def restore(self) -> None:
        """Give tensors, gradients and random numbers back what they had.

        Raises TargetError, and leaves a tensor alone, if it was written while the step did not run.
        """
        if not self._watched:  # an interrupt came before it was known what others write
            self._own(_WATCH_S)
        now = zip(self.written, self._versions, strict=True)
        self._others |= {id(tensor) for tensor, version in now if tensor._version != version}
        self._saved.leave(self._others)
        self._saved.restore()
        self._versions = [each._version for each in self.written]
        for tensor, gradient in self._gradients:
            tensor.grad = gradient
        self.torch.set_rng_state(self._random[0])
        if self._random[1]:
            self.torch.cuda.set_rng_state_all(self._random[1])
        if self._others:
            shapes = ", ".join(str(tuple(each.shape)) for each in self.written if id(each) in self._others)
            message = f"tensors are written while the step does not run, and stay as they are: of shape {shapes}"
            raise TargetError(message, hint="stop the other threads that write them meanwhile, and call it again")

    def difference(self, configs: Mapping[str, Config], ran: Callable[[], None] = lambda: None) -> str:
        """The difference of the step's results with some configs, or its error, in words; empty for none."""
        self._take(configs)
        self.restore()  # samples are left as they end
        try:
            result = self()
            ran()
            return self._expected.fault([result, self.written])
        except Exception as error:  # noqa: BLE001 - a config may fail in any way, and an iterator be exhausted
            return CandidateError.one_line(error)
        finally:
            self.restore()

    def _take(self, configs: Mapping[str, Config]) -> bool:
        """Have launches take these configs; tell whether they took others before."""
        changes = configs != self._configs
        if changes:
            self._configs = dict(configs)
            change_limits(lambda limits: replace(limits, pins=self._configs))
        return changes

    def time_on(self, device: str, seed: int) -> None:
        """Choose the clock: that of graphs, or another one where the step as it is cannot be captured."""
        for mode in [None] if device == "cpu" else ["graph-warm", "event-warm"]:
            self._timer = timing.SharedTimer(probe(device), device, cold=False, mode=mode).start(timing.Launch(self))
            try:
                self.sampler({})
                break
            except (timing.CaptureError, timing.EmptyCaptureError) as error:
                warn("the step is timed without a graph: %s", str(error))  # whose frames hold tensors
        self.rounds, _ = timing.Rounds.guarded(self._timer, device, rng=random.Random(seed))

    def sampler(self, configs: Mapping[str, Config]) -> timing.Sampler:
        """A sampler of the step with some configs."""

        def enter() -> None:
            if self._take(configs):
                self.restore()
                self()  # which decides each launch
            self.restore()

        enter()
        reset = self.restore if "graph" in self._timer.mode else enter
        try:
            return self._timer.prepare(timing.Launch(self, reset), 1)
        finally:
            self.restore()

    def faster(self, after: Mapping[str, Config], before: Mapping[str, Config], launches: int, most_s: float) -> Any:
        """Tell whether the step is proven faster with some configs than with others, its relative gain, and a reason.

        They differ in so many launches. Two duels must say so, in whose graphs each has the place of the other. There
        is no gain if the step fails, or gives other results than at first.
        """
        if wrong := self.difference(after):
            return False, None, f"is not taken: {wrong}"
        try:
            duel = self._duel(after, before, launches, most_s)
            proven = duel.verdict == "faster" and self._duel(before, after, launches, most_s).verdict == "slower"
        except Exception as error:  # noqa: BLE001 - a config may fail in any way; the step goes on without it
            return False, None, f"is not taken: {CandidateError.one_line(error)}"
        gain = timing.Interval(*(each - 1 for each in vars(duel.gain.ratio).values()))
        words = "{:+.2%} ({:+.2%} to {:+.2%})".format(*vars(gain).values())
        return proven, gain, f"is {'' if proven else 'not proven '}faster in the step: {words}"

    def _duel(self, first: Mapping[str, Config], second: Mapping[str, Config], launches: int, most_s: float) -> Any:
        policy = timing.DuelPolicy.after_a_race(most_s, max(_ZONE, launches * _LAUNCH_MS / self.before_ms))
        arms = [timing.Arm(self.sampler(configs)) for configs in (first, second, first)]
        samples = policy.samples(self.rounds.sample_ms(arms[1].sampler))
        for arm in arms:
            arm.visit_samples = samples
        return self.rounds.duel((arms[0], arms[1], arms[2]), policy)

    def compared(self, names: set[str] | None, seconds: float, seed: int) -> Any:
        """The problems of the step after each has had its turn, and its gain, if any."""
        problems = self._found(names)
        kinds = {each.key.device.get("kind") for each, _ in self.launched if each.key is not None}
        device = "cpu" if kinds == {"cpu"} else "cuda"
        with TorchDevice(device).current(), Turns(device).turn(Turns.key_of(probe(device), device)):
            self.time_on(device, seed)
            end_s, before = time.monotonic() + seconds, {key: one.before for key, one in problems.items() if one.keep}
            now, self.before_ms = dict(before), self.rounds.sample_ms(self.sampler(before))
            for one in problems.values():
                one.share *= one.launches / self.before_ms
            ordered = dict(sorted(problems.items(), key=lambda item: -item[1].share))
            for key, one in ordered.items():
                for rival in one.rivals:
                    self._race(key, one, rival, now, end_s - time.monotonic())
            if now == before:
                return tuple(ordered.values()), None
            launches = sum(one.launches for one in ordered.values() if one.after != one.before)
            proven, gain, why = self.faster(now, before, launches, _DUEL_S)
        for one in ordered.values():
            if one.after != one.before and not proven:
                one.after = one.before
                one.whys.append(f"all that is taken, together, {why}")
        return tuple(ordered.values()), gain if proven else None

    def _found(self, names: set[str] | None) -> dict[str, StepKernel]:
        """The problems by the ids of keys, after a short tune of those without records; some kernels', or all for None.

        Raises TargetError if a kernel is not launched, or none can be compared.
        """
        one_thread = self.torch.autograd.set_multithreading_enabled(False)  # a policy holds for a thread
        with one_thread, deciding_by(lambda limits: replace(limits, most=None, packages=False)):
            self()
        missing, problems = set(names or ()), dict[str, StepKernel]()
        for each, launches in self.launched:
            known = {each.kernel, each.kernel.rpartition(":")[2]}
            missing -= known
            if names is None or known & names:
                key = f"{each.kernel} {each.problem}" if each.key is None else each.key.id
                problems.setdefault(key, StepKernel.of(each)).launches += launches
        if missing:
            launched = ", ".join(dict.fromkeys(each.kernel for each, _ in self.launched)) or "none"
            raise TargetError(f"the step launches no {', '.join(sorted(missing))}", hint=f"it launches {launched}")
        if not any(one.keep for one in problems.values()):
            whys = "; ".join(f"{one.kernel} {one.problem}: {one.whys[0]}" for one in problems.values())
            reasons = whys or "it launches none"
            raise TargetError(f"no kernel of the step can be compared: {reasons}", hint="torch.compile hides launches")
        return problems

    def _race(self, key: str, one: StepKernel, rival: Config, now: dict[str, Config], left_s: float) -> None:
        """Take a rival in the place of what the step has now, if it makes the step faster."""
        if left_s <= 0:
            one.whys.append(f"({rival}) is not reached: the budget left no time")
            return
        one.raced = True
        proven, gain, why = self.faster({**now, key: rival}, now, one.launches, min(left_s / 2, _DUEL_S))
        one.whys.append(f"({rival}) {why}")
        if gain is not None:
            one.gains[rival] = gain
        if proven:
            now[key] = one.after = rival


@contextmanager
def _own_stream() -> Iterator[None]:
    """Inside, steps run on the stream on which they are captured: gradients stay on that of the run that made them."""
    cuda = require("torch", "tune_in_place").cuda
    if not cuda.is_initialized():
        yield
        return
    cuda.synchronize()
    try:
        with cuda.stream(cuda.Stream()):
            yield
    finally:
        cuda.synchronize()


def tune_in_place(
    step: Callable[[], object],
    kernels: Iterable[object] | None = None,
    budget_s: float = 60.0,
    *,
    name: str | None = None,
    tolerance: float | Tolerance | None = None,
    seed: int = 0,
) -> StepResult:
    """Choose the configs with which a whole step is the fastest, among the finalists of its kernels' own tunes.

    The step runs once as it is, which shows the problems of decorated and shipped kernels, operations and choosers that
    it launches. A problem without a record of this machine gets a short tune, as by `on_miss("race")`. Then, the
    largest share of the step's time first, the step runs by turns with what a problem has and with a rival: the winner
    of its own tune, the default, the next of the finalists. A rival is taken if the step is proven faster with it, by
    more than 0.2 % of its time and 0.5 us for each launch, and once more in graphs of other memory; at the end all of
    them together must be so. The results of each step, and what it writes, must be those of the step as it was. What
    was chosen is kept in the problems' records with the step's name, which `why` names.

    Args:
        step: Called without arguments: a forward pass, or a whole training step. Run it once before, so that what it
            makes only once is there.
        kernels: What is to be chosen: decorated kernels, operations, or names; None takes all.
        budget_s: Seconds after which no rival runs any more; short tunes before do not count.
        name: The name of the step, one line; None takes that of the callable.
        tolerance: As for `tune`; None is the rule, with twice the rounding allowed.
        seed: Seed of the orders in which steps run.

    Returns:
        The times of the step, and for each problem its share, the configs before and after, each rival's gain, and why.

    Raises:
        KernelTypeError: `step` cannot be called.
        TargetError: The step does not launch a kernel, gives nothing to compare, does not do the same again from the
            same state, or a tensor that it changes is also written while it does not run, or in the first run alone, as
            by another thread; that tensor stays as it is.
        DeviceError: There is no room for copies of the tensors that the step might write.
        SettingsError: `budget_s` or `name` is wrong, or nothing can be tuned here, as while a lockfile is replayed.

    Cost: for the first runs a copy of every tensor in the process; then, for each problem without a record, about a
    second, and for each rival up to 3 s, in which the step runs hundreds of times, in the memory of three graphs of it.
    Steps of other threads meanwhile take the configs that run; those that call this wait. Launches inside of
    `torch.compile` are not seen. Tensors that `gc.freeze` has set aside are not restored.
    """
    start, seconds = time.monotonic(), Budget(seconds=budget_s).seconds or math.inf
    if not callable(step):
        raise KernelTypeError(f"the step is {step!r}, which cannot be called", hint="write lambda: model(x)")
    label: Any = getattr(step, "__qualname__", type(step).__qualname__) if name is None else name
    if not (isinstance(label, str) and label.strip() and label.isprintable()):
        raise SettingsError(f"the step's name is {name!r}; it must be a text of one line", hint="or leave it out")
    named = (str(getattr(each, "name", getattr(Layers.unwrap(each), "__name__", each))) for each in kernels or ())
    names = None if kernels is None else set(named)
    with _one_at_a_time, on_miss(RACE):
        if capturing() or meeting() is not None or policy_of(None, RACE) != RACE:
            reasons = "a lockfile is replayed, a graph captured, a step tuned, winners agreed on, or an extra missing"
            raise SettingsError(f"nothing can be tuned here: {reasons}", hint="call it alone, outside of replaying")
        with deciding_by(lambda limits: replace(limits, most=DEFAULT, pins={})), _own_stream():
            state = _Step(step, tolerance)
            try:
                problems, gain = state.compared(names, seconds, seed)
            finally:
                state.restore()
        for one in problems:
            if one.keep is not None:
                one.keep(label)
    mode, ms, elapsed_s = state.rounds.timer.mode, state.before_ms, time.monotonic() - start
    return StepResult(name=label, kernels=problems, mode=mode, before_ms=ms, gain=gain, elapsed_s=elapsed_s)
