"""The shipped kernels beside their rivals at named problems: correctness first, then times taken in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Operation, one_line, private_copy
from triton_ops.benchmark.comparing import compare
from triton_ops.benchmark.correctness import CorrectnessVerifier
from triton_ops.benchmark.rivals import rivals_of
from triton_ops.device import current_device
from triton_ops.dispatch import FALLBACK, RECORD, TUNED, origin_of, would_run
from triton_ops.exceptions import DeviceError, SettingsError, TritonKernelError, WrongResultError
from triton_ops.kernels import load, names
from triton_ops.space import Config
from triton_ops.tuner import tune, uninterrupted


@dataclass(frozen=True)
class KernelRow:
    """One kernel at one problem beside one rival.

    Attributes:
        rival: `library`, `eager`, `compile`, or `default` for the kernel's own default config; `reference` where the
            problem was not timed.
        origin: Where the kernel's config comes from.
        is_default: Whether it is the config that runs untuned.
        kernel_ms: Median of the kernel; None where nothing was timed.
        rival_ms: Median of the rival; None where nothing was timed.
        speedup: The rival's time divided by the kernel's, inside rounds; None where nothing was timed.
        interval: 95 % interval of the speedup.
        verdict: `faster`, `slower` or `not distinguishable`; else why nothing was timed.
        confidence: `ok`, or why the verdict should not be relied on.
        tflops: 10^12 operations per second of the kernel.
        gbps: 10^9 bytes per second of the kernel, of the least traffic of the problem.
        mode: The clock and the state of the cache.
    """

    kernel: str
    problem: str
    rival: str
    _: KW_ONLY
    shape: tuple[int, ...]
    dtype: str
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    origin: str = origin_of(FALLBACK)
    is_default: bool = False
    kernel_ms: float | None = None
    rival_ms: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    verdict: str = ""
    confidence: str = "ok"
    tflops: float = 0.0
    gbps: float = 0.0
    mode: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The row as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """Kernels, problems and rivals to compare, and for how long.

    Attributes:
        kernels: Names of operations; empty for all.
        problems: Names of problems; empty for all.
        rivals: Names of rivals; empty for all.
        tune_s: Seconds for a tune of each problem; 0 takes the config with which a call would run: the winner of a
            record or of the package, else the default.
        seconds: No further round of a comparison starts after so many seconds.
        limit_s: No further comparison or tune starts after so many seconds; None for no limit.
        device: The torch device.
        cold: Whether L2 holds nothing of the arguments when a call starts.
        cache_dir: The folder of records; None takes the usual one.
    """

    kernels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    tune_s: float = 0.0
    seconds: float = 3.0
    limit_s: float | None = None
    device: str = "cuda"
    cold: bool = True
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        if unknown := [name for name in self.kernels if name not in names()]:
            raise SettingsError(f"there is no kernel {', '.join(unknown)}", hint=f"there are {', '.join(names())}")
        for name, value in (("tune_s", self.tune_s), ("limit_s", self.limit_s or 0.0)):
            if not value >= 0:
                raise SettingsError(f"{name} is {value}; it must be seconds, 0 or more")


def rows_of(run: KernelRun, clock: Callable[[], float] = time.monotonic) -> Iterator[KernelRow]:
    """The rows of a run, each as soon as it is there; a rival or a tune that fails has its reason as the verdict.

    Args:
        run: What to compare.
        clock: Monotonic seconds, by which the limit is counted.

    Raises:
        DeviceError: The kernels do not run on the device.

    Cost: for each problem its tune, and for each rival its compilation and `run.seconds`.
    """
    end = None if run.limit_s is None else clock() + run.limit_s
    for name in run.kernels or names():
        operation = load(name)
        for label, (shape, dtype) in operation.problems.items():
            if run.problems and label not in run.problems:
                continue
            if end is not None and clock() >= end:
                return
            try:
                yield from _problem_rows(
                    run, operation, label, shape, dtype, lambda: end is not None and clock() >= end
                )
            except DeviceError:
                raise
            except (TritonKernelError, CandidateError, RuntimeError) as error:  # one problem ends no run of an hour
                reason = f"not measured: {one_line(error)}"
                yield KernelRow(operation.name, label, "reference", shape=shape, dtype=dtype, verdict=reason)


def _problem_rows(
    run: KernelRun, operation: Operation, label: str, shape: tuple[int, ...], dtype: str, over: Callable[[], bool]
) -> Iterator[KernelRow]:
    problem = operation.problem(shape, dtype)
    default = operation.space_for(problem).default_config
    config, origin = _winner(run, operation, shape, dtype)
    values = dict(operation.materialise(problem, run.device).keyword)
    rivals: dict[str, Any] = {} if config == default else {"default": (operation, default)}
    rivals |= rivals_of(operation.name, values, run.rivals)
    work = operation.work(problem) if operation.work else None
    common: dict[str, Any] = {
        "shape": shape, "dtype": dtype, "config": dict(config), "origin": origin,
        "is_default": config == default,
    }  # fmt: skip
    try:
        with current_device(run.device):
            check_result(operation, config, values)
    except WrongResultError as error:
        yield KernelRow(operation.name, label, "reference", **common, verdict=f"wrong: {error.message}")
        return
    for rival, call in rivals.items():
        if (run.rivals and rival not in run.rivals) or over():
            continue
        try:
            comparison = compare(
                (operation, config), call, kwargs=values, names=(operation.name, rival), seconds=run.seconds,
                cold=run.cold, device=run.device,
            )  # fmt: skip
        except (TritonKernelError, RuntimeError) as error:  # torch's compiler and library raise what they like
            yield KernelRow(operation.name, label, rival, **common, verdict=f"not compared: {one_line(error)}")
            continue
        ms = comparison.a_ms
        figures: dict[str, Any] = {} if work is None else {"tflops": work.tflops(ms), "gbps": work.gbps(ms)}
        yield KernelRow(
            operation.name, label, rival, **common, **figures, kernel_ms=ms, rival_ms=comparison.b_ms,
            speedup=comparison.speedup, interval=comparison.speedup_interval, verdict=comparison.verdict,
            confidence=comparison.confidence, mode=comparison.mode,
        )  # fmt: skip


def _winner(run: KernelRun, operation: Operation, shape: Sequence[int], dtype: str) -> tuple[Config, str]:
    """The config of a problem, and where it comes from: of a tune, or that with which a call would run."""
    question: dict[str, Any] = {"shape": shape, "dtype": dtype, "device": run.device, "cache_dir": run.cache_dir}
    if run.tune_s:
        result = uninterrupted(tune(operation, **question, budget_s=run.tune_s, cold=run.cold))
        return Config(result.best_config), origin_of(RECORD if result.from_cache else TUNED)
    winner = would_run(operation, **question, cold=run.cold).found
    return winner.config, origin_of(winner.rung)


def check_result(operation: Operation, config: Config, values: Mapping[str, Any]) -> list[Any]:
    """Launch the kernel once on copies of its arguments, and judge its outputs by the rule; returns the outputs.

    Raises:
        WrongResultError: They are wrong.
    """
    arguments = private_copy(Arguments(keyword=values))
    executable = operation.kernel.compile(config, arguments)
    executable.launch(arguments)
    results = [arguments.keyword[name] for name in executable.outputs]
    if operation.reference is None:
        return results
    right, how = CorrectnessVerifier().verify_by_rule(
        results, operation.reference, kwargs=values, outputs=executable.outputs
    )
    if not right:
        raise WrongResultError(f"{operation.name} with ({config}) gives a wrong result: {how}")
    return results
