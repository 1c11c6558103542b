"""Operations beside their rivals at named problems: correctness first, then times taken in turn.

A rival is called with the operation's own arguments by name, and returns its result.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from triton_ops.backend import Arguments, CandidateError, Operation
from triton_ops.benchmark.comparing import compare
from triton_ops.benchmark.judging import judged_call
from triton_ops.benchmark.timing import time_ms
from triton_ops.device import TorchDevice, gpu_missing, probe
from triton_ops.dispatch import would_run
from triton_ops.exceptions import DeviceError, SettingsError, TargetError, TritonKernelError, WrongResultError
from triton_ops.space import Config
from triton_ops.tuner import tune

_log = logging.getLogger("triton_ops")
_TRIED_MS = 20.0

Rival: TypeAlias = Callable[..., Any]


def fastest_right(
    makers: Mapping[str, Callable[[], Rival]], reference: Rival, values: Mapping[str, Any]
) -> Rival | None:
    """The fastest of several rivals, each made by a function, that is right; None if none is.

    One that cannot be made, or does not take `values`, is left out. What torch warns of meanwhile is told to nobody.

    Cost: some calls of each, and two or three of the reference for each that is judged, the fastest first.
    """
    times: list[tuple[float, str, Rival]] = []
    for name, make in makers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = make()
                median_ms = time_ms(call, kwargs=values, warmup_ms=_TRIED_MS / 4, rep_ms=_TRIED_MS).median_ms
        except (TargetError, RuntimeError) as error:
            _log.info("%s does not take the problem: %s", name, error)
            continue
        _log.info("%s: %.4f ms", name, median_ms)
        times.append((median_ms, name, call))
    for _, name, call in sorted(times, key=lambda each: each[0]):
        if not (fault := judged_call(call, reference, Arguments(keyword=values))[1]):
            return call
        _log.warning("%s is left out, since its result is wrong: %s", name, fault)
    return None


_ORIGINS = {
    "explicit": "as given", "lockfile": "winner of the lockfile", "record": "recorded winner", "tuned": "tuned now",
    "expected": "expected by a model", "default": "default config",
}  # fmt: skip


def origin_of(rung: str) -> str:
    """Origin of a config of this rung of the ladder, in a few words, such as `recorded winner`."""
    return _ORIGINS.get(rung, f"{rung} winner")


@dataclass(frozen=True)
class RivalRow:
    """One operation at one problem beside one rival; figures are None where nothing was timed.

    Attributes:
        rival: `library`, `eager`, `compile`, or `default` for the operation's own default config; `reference` where
            the problem was not timed.
    """

    kernel: str
    problem: str
    rival: str
    _: KW_ONLY
    shape: tuple[int, ...]
    dtype: str
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    origin: str = origin_of("default")  # where the kernel's config comes from
    is_default: bool = False  # whether it is the config that runs untuned
    kernel_ms: float | None = None
    rival_ms: float | None = None
    speedup: float | None = None  # the rival's time divided by the kernel's, inside rounds
    interval: tuple[float, float] | None = None  # 95 % interval of the speedup
    verdict: str = ""  # `faster`, `slower` or `not distinguishable`; else why nothing was timed
    confidence: str = "ok"  # `ok`, or why the verdict should not be relied on
    tflops: float = 0.0
    gbps: float = 0.0  # 10^9 bytes per second of the kernel, of the least traffic of the problem
    mode: str = ""

    @property
    def speed(self) -> str:
        """The speedup as text; empty where nothing was timed."""
        return "" if self.speedup is None else f"{self.speedup:.3f}"

    @property
    def cells(self) -> list[str]:
        """The row of a table under the `HEADER` of a run."""
        interval = "-" if self.interval is None else f"{self.interval[0]:.3f} to {self.interval[1]:.3f}"
        times = ["-" if ms is None else f"{ms:.4g}" for ms in (self.kernel_ms, self.rival_ms)]
        return [self.kernel, self.problem, self.rival, *times, self.speed or "-", interval, self.verdict, self.origin]


@dataclass(frozen=True, kw_only=True)
class RivalRun:
    """A comparison of operations with their rivals, at all named problems and with all rivals where none is named.

    Attributes:
        rivals_of: From an operation's name, its arguments and the rivals that are asked for to rivals by their names.
        tune_s: Seconds for a tune of each problem; 0 takes the config with which a call would run: the winner of a
            record or of the package, else the default.
    """

    HEADER: ClassVar = ("kernel", "problem", "beside", "ms", "other ms", "speed", "interval", "verdict", "config")

    rivals_of: Callable[[str, Mapping[str, Any], Collection[str]], Mapping[str, Rival]]
    problems: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    tune_s: float = 0.0
    seconds: float = 3.0  # no further round of a comparison starts after so many seconds
    device: str = "cuda"
    cold: bool = True  # whether L2 holds nothing of the arguments when a call starts
    cache_dir: str | Path | None = None

    def __post_init__(self) -> None:
        SettingsError.checked("tune_s", self.tune_s, 0)

    @property
    def device_name(self) -> str:
        """The name of the device; a `DeviceError` if there is none, which sends nobody to the CPU."""
        if self.device.startswith("cuda") and (missing := gpu_missing()) is not None:
            message = f"a comparison of kernels with their rivals needs a GPU: {missing}"
            raise DeviceError(message, self.device, "none", hint=DeviceError.NO_GPU)
        return probe(self.device).name

    def rows(self, operations: Iterable[Operation]) -> Iterator[RivalRow]:
        """The rows of a run, each as soon as it is asked for; a rival or a tune that fails has its reason as verdict.

        Cost: for each problem its tune, and for each rival its compilation and `seconds`.
        """
        for operation in operations:
            for label, (shape, dtype) in operation.problems.items():
                if self.problems and label not in self.problems:
                    continue
                try:
                    yield from self.problem_rows(operation, label, shape, dtype)
                except DeviceError:
                    raise
                except (TritonKernelError, CandidateError, RuntimeError) as error:  # one problem ends no run of an hour
                    reason = f"not measured: {CandidateError.one_line(error)}"
                    yield RivalRow(operation.name, label, "reference", shape=shape, dtype=dtype, verdict=reason)

    def problem_rows(self, operation: Operation, label: str, shape: tuple[int, ...], dtype: str) -> Iterator[RivalRow]:
        """The rows of one problem, which need not be among the named ones, each as soon as it is asked for."""
        problem = operation.problem(shape, dtype)
        default = operation.space_for(problem).default_config
        config, origin = self._winner(operation, shape, dtype)
        values = dict(operation.materialise(problem, self.device).keyword)
        rivals: dict[str, Any] = {} if config == default else {"default": (operation, default)}
        rivals |= self.rivals_of(operation.name, values, self.rivals)
        work = operation.work(problem) if operation.work else None
        row = partial(
            RivalRow, operation.name, label, shape=shape, dtype=dtype, config=dict(config), origin=origin,
            is_default=config == default,
        )  # fmt: skip
        try:
            with TorchDevice(self.device).current():
                check_result(operation, config, values)
        except WrongResultError as error:
            yield row("reference", verdict=f"wrong: {error.message}")
            return
        for rival, call in rivals.items():
            if self.rivals and rival not in self.rivals:
                continue
            own = rival == "default"
            try:
                comparison = compare(
                    (operation, config), call, kwargs=values, names=(operation.name, rival), seconds=self.seconds,
                    cold=self.cold, device=self.device, check=own,
                )  # fmt: skip
                fault = "" if own else _judged(operation, call, values)[1]
            except (TritonKernelError, RuntimeError) as error:  # torch's compiler and library raise what they like
                yield row(rival, verdict=f"not compared: {CandidateError.one_line(error)}")
                continue
            if comparison.wrong:
                yield row(rival, verdict=f"wrong: {comparison}")
                continue
            ms = comparison.a_ms
            figures: dict[str, Any] = {} if work is None else {"tflops": work.tflops(ms), "gbps": work.gbps(ms)}
            yield row(
                rival, **figures, kernel_ms=ms, rival_ms=comparison.b_ms, speedup=comparison.speedup,
                interval=comparison.speedup_interval, verdict=comparison.verdict, mode=comparison.mode,
                confidence=f"the result of {rival} is wrong: {fault}" if fault else comparison.confidence,
            )  # fmt: skip

    def _winner(self, operation: Operation, shape: Sequence[int], dtype: str) -> tuple[Config, str]:
        """The config of a problem, and where it comes from: of a tune, or that with which a call would self."""
        question: dict[str, Any] = {"shape": shape, "dtype": dtype, "device": self.device, "cache_dir": self.cache_dir}
        if self.tune_s:
            result = tune(operation, **question, budget_s=self.tune_s, cold=self.cold).uninterrupted()
            return Config(result.best_config), origin_of("record" if result.from_cache else "tuned")
        winner = would_run(operation, **question, cold=self.cold).found
        return winner.config, origin_of(winner.rung)


def check_result(operation: Operation, config: Config, values: Mapping[str, Any]) -> list[Any]:
    """Launch the kernel once on copies of its arguments, and judge its outputs, which are returned, by the rule."""

    def launched(**own: Any) -> list[Any]:
        arguments = Arguments(keyword=own)
        executable = operation.kernel.compile(config, arguments)
        executable.launch(arguments)
        return [arguments.keyword[name] for name in executable.outputs]

    results, fault = _judged(operation, launched, values)
    if fault:
        raise WrongResultError(f"{operation.name} with ({config}) gives a wrong result: {fault}")
    return results


def _judged(operation: Operation, call: Rival, values: Mapping[str, Any]) -> tuple[list[Any], str]:
    """The results of a call, and how they are wrong by the operation's reference.

    A rival that rounds after every operation, as plain PyTorch does, may be wrong, and is timed all the same.
    """
    return judged_call(call, operation.reference, Arguments(keyword=values), operation.kernel.outputs)
