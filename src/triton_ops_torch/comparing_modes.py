"""`tune_compile`: every way to compile in a process of its own, measured in turn."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.backend import Packed
from triton_ops.base import require
from triton_ops.evaluation import Contest
from triton_ops.exceptions import SettingsError, TuningFailedError
from triton_ops.request import Patience, TuneOptions
from triton_ops.values import Status, Tolerance
from triton_ops_torch.backends import option_values
from triton_ops_torch.compile_mode import (
    CUDAGRAPHS,
    EAGER,
    MODES,
    OFF,
    READ,
    CompileMode,
    as_mode,
    check_mode,
    checked_logs,
    effective_options,
    log_switches,
    refusal,
    same_without_gpu,
    wrong_variables,
)
from triton_ops_torch.compiled_files import Collection, RunFolder, key_of, run_folder
from triton_ops_torch.mode_process import LEAST_CALLS, CallManner, ModeAssignment, ModeProcess
from triton_ops_torch.mode_report import WORTH_A_WORD, CompileReport, Culprit, ModeResult, variations, verdicts
from triton_ops_torch.model_workload import Loss, check_model, workload_by, workload_of

_log = logging.getLogger("triton_ops")
_MOST_ALIVE = 4  # compiled models that wait for the race beside eager: each holds the weights
_MOST_VARIED = 2  # slow modes, each with up to five variations
_MOST_MODEL_BYTES = 1 << 34  # of a model that is given with its inputs, and is sent to each process
LIMITS = Patience(setup_s=300.0, compile_s=1200.0, launch_s=120.0, trial_s=1920.0)
"""Limits of a mode's steps: `setup_s` is for the model, and for its reference; `launch_s` for the calls until they are
steady, or one visit."""


def _limited(compile_s: float) -> Patience:
    return replace(LIMITS, compile_s=compile_s, trial_s=LIMITS.trial_s - LIMITS.compile_s + compile_s)


@dataclass(frozen=True, kw_only=True)
class ModesRequest:
    """A comparison of compile modes: the checked arguments of `tune_compile`, and what they make together.

    `packed` makes the workload in each process; of `modes` eager is the first; `device` is the GPU that processes ready
    early, empty where it is not known.
    """

    packed: bytes
    modes: tuple[CompileMode, ...]
    manner: CallManner = field(default_factory=CallManner)
    limits: Patience = LIMITS
    warm: bool = False
    why: bool = False
    seconds: float = 20.0
    resume: bool = True
    collect: Path | None = None
    logs: tuple[str, ...] = ()
    options: TuneOptions = field(default_factory=TuneOptions)
    device: str = ""
    notes: tuple[str, ...] = ()


def request_of(
    model: Any, inputs: Any, *, modes: Sequence[Any] | None, training: bool, loss: Loss | None,
    tolerance: Tolerance | float | None, warmup: int, seconds: float, compile_s: float | None, options: TuneOptions,
    logs: Sequence[str], collect: str | Path | None = None, **rest: Any,
) -> ModesRequest:  # fmt: skip
    """The request that a caller makes; what does not fit is refused before any work, as `tune_compile` says."""
    ways = _modes(modes)
    if off := next((name for name in OFF if (name, "1") in settings.environment()), ""):
        raise SettingsError(f"{off} is 1, and torch.compile does nothing then", hint=f"unset {off}")
    if isinstance(logs, (str, bytes)):
        raise SettingsError(f"logs is {logs!r}; a list of names is needed", hint='logs=["inductor"]')
    check_model(model, inputs, loss)
    checked_logs(logs)
    _check_numbers(warmup=warmup, seconds=seconds, budget_s=options.budget_s, compile_s=compile_s)
    _check_warmup(int(warmup), ways)
    torch: Any = require("torch", "compiling a model")
    manner = CallManner(
        training=bool(training), tolerance=Tolerance.of(tolerance), seed=options.seed,
        warmup=int(warmup), threads=torch.get_num_threads(), matmul_precision=torch.get_float32_matmul_precision(),
    )  # fmt: skip
    device = ""
    folder = None if collect is None else _collecting(collect)
    make: Callable[[], Any] = partial(workload_by, model)
    if inputs is not None:
        workload = workload_of(model, inputs)
        device = workload.device_name if workload.device_name.startswith("cuda") else ""
        make = partial(workload_of, workload.model, list(workload.calls))
    packed = Packed.of((make, loss), _MOST_MODEL_BYTES)
    limits = LIMITS if compile_s is None else _limited(float(compile_s))
    return ModesRequest(
        packed=packed.content, modes=ways, manner=manner, limits=limits, seconds=float(seconds),
        options=options, device=device, logs=tuple(logs), collect=folder,
        notes=tuple(f"drawn anew in each process: {each}" for each in packed.drawn), **rest,
    )  # fmt: skip


def _collecting(folder: Any) -> Path:
    """The folder for logs and traces, which is made here: what cannot be kept is not worth minutes of compiling."""
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise SettingsError(f"collect is {folder!r}; it must be the path of a folder", hint='collect="traces"')
    with SettingsError.when(f"nothing can be collected in {folder}", "name another folder", OSError, RuntimeError):
        path = Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
    return path


def _modes(modes: Any) -> tuple[CompileMode, ...]:
    if modes is not None and (isinstance(modes, (str, bytes)) or not isinstance(modes, Sequence) or not modes):
        raise SettingsError(f"modes is {modes!r}; a list of ways to compile is needed", hint='modes=["default"]')
    ways = [as_mode(each) for each in ((EAGER, *MODES) if modes is None else modes)]
    for mode in ways:
        check_mode(mode)
    names = [mode.name for mode in ways]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"the mode {twice[0]} is asked for twice", hint="give CompileModes different names")
    eager = [mode for mode in ways if mode.eager] or [as_mode("eager")]
    return (*eager[:1], *(mode for mode in ways if not mode.eager))


def _check_numbers(*, warmup: Any, seconds: Any, budget_s: Any, compile_s: Any) -> None:
    SettingsError.checked("warmup", warmup, 1, whole=True)
    for name, value in (("seconds", seconds), ("budget_s", budget_s), ("compile_s", compile_s)):
        if value is not None or name == "seconds":
            SettingsError.checked(name, value)


def _check_warmup(warmup: int, ways: Sequence[CompileMode]) -> None:
    """Raise where fewer calls warm up than CUDA graphs need; modes that this torch does not know have none."""
    if warmup < LEAST_CALLS and (recorded := [way.name for way in ways if effective_options(way).get(CUDAGRAPHS)]):
        raise SettingsError(
            f"{warmup} warm-up {'call is' if warmup == 1 else 'calls are'} too few where CUDA graphs are used: call 1 "
            f"runs as usual, call 2 records, and call {LEAST_CALLS} is the first that replays ({', '.join(recorded)})",
            hint=f"warmup={LEAST_CALLS} or more",
        )


class Comparing:
    """A comparison that is under way; its processes end with it, and `follow` is told in words as each mode is done."""

    def __init__(
        self, request: ModesRequest, follow: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._request, self._follow, self._clock = request, follow, clock
        self._start = clock()
        self._contest = Contest(request.device or "cpu", request.options.wait, random.Random(request.manner.seed))
        self._processes: list[ModeProcess] = []
        self._rows: dict[str, ModeResult] = {}
        self._aliases: list[tuple[CompileMode, CompileMode]] = []
        self._folder: RunFolder | None = None
        self._key = ""
        self._collection = Collection(request.collect)
        self._notes = list(request.notes)
        self._resources = ExitStack()

    def __enter__(self) -> Comparing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for process in self._processes:
            process.close()
        if self._folder is not None and (kind is None or issubclass(kind, Exception)):
            self._folder.remove()  # what was interrupted from outside is gone on with
        self._resources.close()

    def run(self) -> CompileReport:
        """Run the comparison to its end."""
        _, texts = wrong_variables()
        for text in texts:
            _log.warning("%s", text)
        self._collection.check(self._request.modes)
        eager = self._open_eager()
        for mode in self._request.modes[1:]:
            self._try(mode, eager)
        if self._request.why:
            self._vary(eager)
        winner, confirmation = self._confirmed(self._raced(eager), eager)
        rows = tuple(self._rows.values())
        culprit = Culprit.among(rows)
        if self._request.why and culprit is None:
            self._notes.append("no single option that was tried makes a mode 5 % slower")
        return CompileReport(
            problem=eager.loaded.label, device=self._contest.device.name, modes=rows, recommended=winner.name,
            chosen=winner, culprit=culprit, confirmed=confirmation,
            notes=(*self._notes, *verdicts(rows), *self._contest.notes),
            folder=str(self._request.collect or ""),
        )  # fmt: skip

    def _open_eager(self) -> ModeProcess:
        """Load the model as it is; what it says of the workload decides device and folder."""
        mode = self._request.modes[0]
        process = self._process(mode, None)
        with self._contest.turn():
            answer = process.load(self._request.packed)
        if not answer.ok:
            if process.refusal is not None:
                raise process.refusal
            raise _eager_failed(answer.status, answer.error)
        loaded = process.loaded
        self._contest.move(loaded.device_name)
        key = self._key = key_of(loaded.facts, self._contest.device, self._request.manner, self._request.warm)
        cache_dir, resume = self._request.options.cache_dir, self._request.resume
        self._folder = self._resources.enter_context(run_folder(cache_dir, key, resume=resume))
        with self._contest.turn():
            self._contest.screen(process, process)
        if process.loss:
            raise _eager_failed(Status.CRASH, process.loss)
        self._keep(ModeResult.of(process, process))
        return process

    def _try(self, mode: CompileMode, eager: ModeProcess) -> None:
        """Load a mode and screen it beside eager; one that does not work ends as its row."""
        if (why := refusal(mode)) != "":
            self._keep(ModeResult.untimed(mode, Status.CONSTRAINT, why))
            return
        same = same_without_gpu(self._request.modes, mode) if self._contest.device.is_cpu else None
        if same is not None and same.name in self._rows:
            self._aliases.append((mode, same))
            self._keep(self._rows[same.name].alias(mode, same))
            return
        if not eager.alive:
            self._keep(_without_eager(mode, eager))
            return
        if self._left_s() <= 0:
            budget = f"the budget of {self._request.options.budget_s:g} s was used up before it was begun"
            self._keep(ModeResult.untimed(mode, Status.DEFERRED, budget))
            return
        with self._contest.turn():
            self._enter(mode, eager)
        for process in sorted(self._alive(eager), key=lambda each: each.relative)[_MOST_ALIVE:]:
            process.close()  # so many models need not lie in memory at the same time

    def _enter(self, mode: CompileMode, eager: ModeProcess) -> None:
        assert self._folder is not None
        earlier = self._folder.finished(mode) if self._collection.holds(mode, self._key) else None
        if earlier is None:
            shutil.rmtree(self._folder.of(mode), ignore_errors=True)  # of a process that was interrupted
        place = self._folder.of(mode)
        process = self._process(mode, place, traces=self._collection.variables(mode, place) if earlier is None else {})
        answer = process.load(self._request.packed)
        if earlier is None and (replaced := self._collection.keep(mode, self._key, process.lines, place)):
            self._notes.append(f"{mode.name} {replaced}")
            self._follow(self._notes[-1])
        if not answer.ok:
            self._keep(ModeResult.untimed(mode, answer.status, answer.error, process.lines))
            return
        if earlier is None:
            self._folder.keep(mode, process.loaded, process.lines)
        else:
            before, process.earlier = earlier  # of the process that compiled without a cache
            process.loaded = replace(process.loaded, calls_s=before.calls_s, compile_s=before.compile_s)
        self._contest.screen(process, eager)
        of_eager = eager.loss and not process.loss
        self._keep(_without_eager(mode, eager) if of_eager else ModeResult.of(process, eager))

    def _alive(self, eager: ModeProcess) -> list[ModeProcess]:
        return [each for each in self._processes if each is not eager and each.alive]

    def _vary(self, eager: ModeProcess) -> None:
        """Try variations of the slowest tuned modes, each in one option."""
        timed = [row for row in self._rows.values() if row.relative is not None]
        fastest = min((row.relative or 0.0 for row in timed), default=0.0)
        modes = {process.mode.name: process.mode for process in self._processes}
        lone = len(self._request.modes) == 2  # its variations are all that it can be slower than
        compiled = [row for row in timed if row.name != EAGER]
        slow = [row for row in compiled if lone or (row.relative or 0.0) > WORTH_A_WORD * fastest]
        if not slow:
            self._notes.append("no mode is 5 % slower than the fastest, and no option was varied")
        values = option_values()
        if self._contest.device.is_cpu:
            # A mode without it would be the same program.
            del values[CUDAGRAPHS]
        for row in sorted(slow, key=lambda each: -(each.relative or 0.0))[:_MOST_VARIED]:
            if row.name not in modes:  # the same as another on this device
                continue
            option_sets = [dict(other.options) for other in self._rows.values()]
            for varied in variations(modes[row.name], row.options, values):
                if dict(varied.options) not in option_sets:
                    self._try(varied, eager)

    def _raced(self, eager: ModeProcess) -> ModeProcess:
        """Compare the fastest side by side; the winner. Rows get the times of this comparison."""
        alive = self._alive(eager)
        if not alive:
            return eager
        # The race gets two seconds even where the budget is used up: without a race no mode is recommended.
        seconds = min(self._request.seconds, max(self._left_s(), 2.0))
        self._follow(f"comparing {', '.join(each.mode.name for each in [eager, *alive])} for up to {seconds:.3g} s")
        with self._contest.turn():
            winner = self._contest.race(eager, alive, seconds, lambda each: each.loaded.compile_s)
        for process in [eager, *alive]:
            if process.loss:
                self._keep(ModeResult.of(process, eager))
            elif process.measurement:  # else the race ended before its turn
                self._rows[process.mode.name] = ModeResult.of(process, eager)
        self._add_aliases()
        return winner

    def _add_aliases(self) -> None:
        for mode, same in self._aliases:
            self._rows[mode.name] = self._rows[same.name].alias(mode, same)

    def _confirmed(self, best: ModeProcess, eager: ModeProcess) -> tuple[CompileMode, str]:
        """The way to use, and how the winner of the race compared with eager in fresh processes."""
        if best is eager:
            return eager.mode, ""
        for process in self._processes:
            # The raced processes hold memory on the GPU that the fresh ones need.
            process.close()
        assert self._folder is not None
        whole = self._request.limits  # the budget is for what has not begun: it may be used up by now
        again = self._process(best.mode, self._folder.of(best.mode), whole)
        eager_again = self._process(eager.mode, None, whole)
        self._follow(f"confirming {best.mode.name} in fresh processes")
        with self._contest.turn():
            for process in (again, eager_again):
                answer = process.load(self._request.packed)
                if not answer.ok:
                    return eager.mode, f"{best.mode.name} did not run again: {answer.status}: {answer.error}"
            relative, confirmation = self._contest.confirm(again, eager_again, self._request.seconds)
        if relative is None:
            return eager.mode, f"{confirmation}: eager stays"
        self._rows[best.mode.name] = self._rows[best.mode.name].at(relative)
        self._add_aliases()
        return best.mode, confirmation

    def _keep(self, row: ModeResult) -> None:
        self._rows[row.name] = row
        times = "" if row.steady_ms is None else f"{row.steady_ms:.4g} ms, first call {row.first_call_s or 0:.1f} s"
        self._follow(f"{row.name}: {times or f'{row.status}: {row.reason}'}")

    def _process(
        self, mode: CompileMode, folder: Path | None, limits: Patience | None = None, traces: Mapping[str, str] = {}
    ) -> ModeProcess:
        """A process of a mode, not yet started, with its compiler's folders and logs; `limits` None are the budget's.

        A process that confirms leaves no traces: they would lie beside those of the same mode, as further graphs.
        """
        environment = log_switches(dict(settings.environment()), (*READ, *self._request.logs)) if not mode.eager else {}
        if folder is not None and not self._request.warm:
            # Triton's folder is named too: else torch names one when it makes a kernel (triton-lang/triton#9368).
            places = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
            environment |= {variable: str(folder / name) for variable, name in places.items()}
        environment |= traces
        limits = limits or _limited(min(self._request.limits.compile_s, max(self._left_s(), 1.0)))
        process = ModeProcess(
            ModeAssignment(
                way=mode, manner=self._request.manner, patience=limits, needs=((), self._request.device),
                environment=environment,
            )
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _left_s(self) -> float:
        budget_s = self._request.options.budget_s
        return float("inf") if budget_s is None else budget_s - (self._clock() - self._start)


def _eager_failed(status: Status, reason: str) -> TuningFailedError:
    return TuningFailedError(
        f"the model does not run as it is: {status}: {reason}", failures=[({"mode": EAGER}, f"{status}: {reason}")],
        hint="call the model with these inputs in Python to try",
    )  # fmt: skip


def _without_eager(mode: CompileMode, eager: ModeProcess) -> ModeResult:
    return ModeResult.untimed(mode, Status.DEFERRED, f"eager, beside which it is timed, was lost: {eager.loss}")


def tune_compile(
    model: Any,
    inputs: Any = None,
    *,
    modes: Sequence[str | Mapping[str, Any] | CompileMode] | None = None,
    training: bool = False,
    loss: Loss | None = None,
    tolerance: Tolerance | float | None = None,
    why: bool = False,
    warm: bool = False,
    warmup: int = 3,
    seconds: float = 20.0,
    budget_s: float | None = None,
    compile_s: float | None = None,
    resume: bool = True,
    collect: str | Path | None = None,
    logs: Sequence[str] = (),
    cache_dir: str | Path | None = None,
    seed: int = 0,
    wait: bool = True,
    follow: Callable[[str], None] = lambda _: None,
) -> CompileReport:
    """Find out in which way a model is compiled best: eager, a mode of `torch.compile`, or options of Inductor.

    Each way has a process of its own with empty compiler caches. There the results are checked against the model as it
    is, in higher precision, and calls are made until they are steady. The processes are then measured in turn, in
    rounds of random order. The fastest is recommended if it is proven faster than eager, in these rounds and again in
    fresh processes; else eager is.

    Args:
        model: A `torch.nn.Module` in the mode, such as `eval()`, in which it is to run; or another callable. Without
            `inputs` a factory, called in each process, which returns `(model, inputs)`.
        inputs: A tensor, a tuple of positional arguments, or a mapping of named ones. A list of these is several
            calls: one sample of a measurement is one of each, and a mode's time is their sum.
        modes: Names of modes of `torch.compile`, of option sets (`OPTION_SETS`), mappings of
            options, or `CompileMode`s; None is the four modes. Eager is always measured.
        training: Whether a call is forward and backward, without an optimizer; gradients are checked too.
        loss: For training, from the output to the number whose gradients are computed. None takes the output's own
            `loss`, the output if it is one number, else the mean square of its floating-point tensors.
        tolerance: How far results may be off, or a number as for `tune`; None is the rule for verdicts.
        why: Whether slow modes are varied in one option at a time, to name what makes them slow.
        warm: Whether compilers find what earlier ones have made; first calls are then not those of a new machine.
        warmup: Least calls before times count. Fewer than 3 are refused where CUDA graphs are used, which replay from
            the third call on.
        seconds: Seconds of the last comparison.
        budget_s: Seconds after which no further mode is begun; None is no limit.
        compile_s: Seconds that one compilation may take; None is 20 minutes.
        resume: Whether a comparison that was interrupted is gone on with: modes that it compiled keep the seconds that
            it measured, and start from their caches.
        collect: A folder for each mode's log and traces, in place of those of an earlier run, which a note says.
        logs: Names of further logs of torch, such as `inductor` or `autotuning`, for the logs that are collected.
        cache_dir: The folder of this package's files; None is as for `tune`.
        seed: Torch's seed in each process, and that of the orders.
        wait: Whether to wait while another process measures on the same GPU.
        follow: Called with a line of text as each mode is done.

    Returns:
        Every way with its status and times, the one that is recommended, and how to apply it.

    Raises:
        SettingsError: A number or a way to compile is out of range, no torch has a mode and no option set its name, or
            a mode and options are given together.
        KernelTypeError: The model or the inputs are none, or cannot be sent to another process.
        TargetError: The factory raised, or returned something else.
        DeviceError: Tensors are on several devices, or another process measures and `wait` is false.
        TuningFailedError: Not even eager runs; the reasons are in it.
        MissingDependencyError: Torch is not installed.

    Cost: one process at a time compiles; at most six hold the model at the same time. Each calls the model once in
    higher precision. Minutes where modes tune.
    """
    request = request_of(
        model, inputs, modes=modes, training=training, loss=loss, tolerance=tolerance, warmup=warmup, seconds=seconds,
        compile_s=compile_s, logs=logs, why=bool(why), warm=bool(warm), resume=bool(resume), collect=collect,
        options=TuneOptions(budget_s=budget_s, seed=seed, cache_dir=cache_dir, wait=bool(wait)),
    )  # fmt: skip
    with Comparing(request, follow) as comparing:
        return comparing.run()
