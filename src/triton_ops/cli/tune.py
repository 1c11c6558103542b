"""`triton-ops tune`: find the fastest config of a kernel for one problem, or recall it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

from triton_ops._faces import Upward
from triton_ops.backend import Operation
from triton_ops.base import counted, gain_text
from triton_ops.cli.cache import ENDS
from triton_ops.device import probe
from triton_ops.exceptions import MissingDependencyError, SettingsError, TuningFailedError
from triton_ops.many import ListedTune, RunOptions
from triton_ops.records import Record
from triton_ops.report import watched
from triton_ops.request import TuneOptions, TuneProblem
from triton_ops.ship import load_kernels, tune_from_misses
from triton_ops.space import Config
from triton_ops.terminal import ExitCode, Facts, option, tell
from triton_ops.tuner import Listener, ProgressBar, RequestedTune
from triton_ops.typed import TypedProblem, TypedTarget, named_function, parse_config
from triton_ops.values import Tolerance, Trial, TuningResult

_HINTS = Upward[Callable[[Operation], list[str]]]("hints of pitfalls")
_LISTS = "--problems, --all and --from-misses"
_LISTS_OF = {
    "--most": "--from-misses", "--kernels": "--problems and --from-misses", "--each-s": _LISTS, "--engine": _LISTS,
    "--gpus": _LISTS,
}  # fmt: skip
_NOT_FOR_LISTS = ("--shape", "--dtype", "--arg", "--space", "--check", "--same-bits-as", "--widen")
_NOT_FOR = {
    "--problems": ("--most", "TARGET"), "--all": ("--most", "--kernels"), "--from-misses": ("--device", "--warm"),
}  # fmt: skip
_CHECK_HINT = "name a function check(result, expected)"
_SHOWN = 10
_SHOWN_FAILED = 5
_WORTH_TELLING_S = 0.1
_HEADER = ("", "median ms", "spread", "vs default", "config")


def tune_command(
    targets: Annotated[
        list[str] | None, option("TARGET", "A shipped kernel, module:object, or file.py:object.", show_default=False)
    ] = None,
    *,
    problem: Annotated[TypedProblem, "shape dtype arg space"],
    options: Annotated[TuneOptions, ""],
    widen: Annotated[
        bool, option("--widen", "Try other values than those of the kernel's list as well, after the list.")
    ] = False,
    each_s: Annotated[
        float | None, option("--each-s", "For a list, most seconds of each problem; default by effort.", "S")
    ] = None,
    device: str | None = None,
    warm: Annotated[bool, option("--warm", "Time GPU kernels with their data in L2; default cold.")] = False,
    tolerance: Annotated[
        float | None, option("--tolerance", "Most relative error of an element; default by the reference's own.", "X")
    ] = None,
    check: Annotated[
        str | None, option("--check", "Own comparison, check(result, expected), as a TARGET.", "PLACE:NAME")
    ] = None,
    same_bits_as: Annotated[
        str | None,
        option("--same-bits-as", "Run only configs of these bits: default, lockfile, or NAME=V,...", "CONFIG"),
    ] = None,
    problems: Annotated[str | None, option("--problems", "Tune the problems in FILE, one in a line.", "FILE")] = None,
    every: Annotated[
        bool, option("--all", "Tune the named problems of each TARGET, or of all shipped kernels.")
    ] = False,
    from_misses: Annotated[
        bool, option("--from-misses", "Tune what `triton-ops cache misses` lists; TARGET restricts it.")
    ] = False,
    kernels: Annotated[
        list[str] | None, option("--kernels", "For a list, a file, module or TARGET to load; repeat it.", "KERNELS")
    ] = None,
    most: Annotated[int | None, option("--most", "With --from-misses, at most N.", "N")] = None,
    gpus: Annotated[str | None, option("--gpus", "For a list, the GPUs that measure: all, or 0,2.", "LIST")] = None,
    engine: Annotated[
        str | None, option("--engine", "For a list, ray or ray:HOST:PORT: the GPUs of a cluster.", "NAME")
    ] = None,
    watch: Annotated[
        bool, option("--watch", "Serve the growing report to this machine's browsers while the tune runs.")
    ] = False,
    watch_port: Annotated[int | None, option("--watch-port", "With --watch; default a free port.", "N")] = None,
) -> Facts:
    """Find the fastest configuration of TARGET for one problem, or recall it.

    The table has the winner, its ties, the other finalists, and the fastest of the rest, ten in all. `spread` is
    the width of the middle three fifths of the samples, relative to their median. `vs default` compares the rounds
    that a config and the default both had, so that it may differ from the quotient of the medians.

    The problems of a list (--problems, --all, --from-misses) are tuned as one run, those first that save most for
    each second. Exit code 1: one of them failed. A list and options of one problem, such as --shape, exclude each
    other.
    """
    every_list = (("--problems", problems), ("--all", every), ("--from-misses", from_misses))
    lists = [name for name, value in every_list if value]
    shared = replace(options, budget_s=each_s) if lists else options
    shared.settled()  # refused before the code of the target runs
    _check_watch(watch, watch_port, lists)
    typed: dict[str, Any] = {
        "TARGET": targets or None, "--shape": problem.shape, "--dtype": problem.dtype,
        "--arg": problem.arguments or None, "--space": problem.space, "--check": check, "--same-bits-as": same_bits_as,
        "--most": most, "--kernels": kernels or None, "--device": device, "--warm": warm or None, "--each-s": each_s,
        "--engine": engine, "--gpus": gpus, "--widen": widen or None,
    }  # fmt: skip
    if lists:
        _check_list(lists, typed)
        run_options = RunOptions.of(shared, gpus=gpus, budget_s=options.budget_s, engine=engine)
        run = ListedTune(options=run_options, device=device, warm=warm, tolerance=tolerance)
        if from_misses:
            return tune_from_misses(run, targets or (), most, kernels or ())
        among = None if problems is None else load_kernels(kernels or ())
        return run.tune(problems, targets or Operation.shipped_names(), lambda text: TypedTarget(text).load(among))
    target = _one_target(targets, typed)
    typed_target = TypedTarget(target, options.cache_dir, problem, widen=widen)
    # Device and tolerance are refused before the code of the target runs.
    if device is not None:
        probe(device)
    Tolerance.of(tolerance)
    named = same_bits_as in (None, "default", "lockfile")
    bits = same_bits_as if named else parse_config([str(same_bits_as)], "--same-bits-as")
    loaded = typed_target.load()
    bar = ProgressBar()
    try:
        with watched(bar, watch_port or 0, tell) if watch else nullcontext(bar) as listener:
            operation, own_space, extents, element = typed_target.tuned(loaded)
            asked = TuneProblem(
                target=operation, space=own_space, shape=extents, dtype=element, device=device, cold=not warm,
                tolerance=tolerance, check=None if check is None else named_function("--check", check, _CHECK_HINT),
                same_bits_as=bits,
            )  # fmt: skip
            result = _tuned(operation, asked, shared, listener)
    except KeyboardInterrupt:
        text = "interrupted before any config ran; the same command goes on where it stopped"
        raise KeyboardInterrupt(text) from None
    facts = _facts(operation, result)
    if Trial.one_alone(result.totals):
        facts.code = ExitCode.NONE_RAN
    if result.stopped == "interrupted":
        facts.code = ExitCode.INTERRUPTED
        facts.tell("interrupted: this is the best so far; the same command goes on where it stopped")
    return facts


def _check_list(lists: Sequence[str], typed: Mapping[str, Any]) -> None:
    if len(lists) > 1:
        raise SettingsError(f"{' and '.join(lists)} exclude each other", hint="give one of them")
    if names := [name for name in (*_NOT_FOR_LISTS, *_NOT_FOR[lists[0]]) if typed[name] is not None]:
        raise SettingsError(f"{', '.join(names)} and {lists[0]} do not go together", hint="leave one of them out")


def _facts(operation: Operation, result: TuningResult) -> Facts:
    _tell_hints(operation, [trial.status.value for trial in result.failures])
    facts = Facts("tune", lambda: {**result.as_json, "trials": _trials_json(result.trials)})
    facts.failed += [(str(trial.config), f"{trial.status}: {trial.error}", trial.trace) for trial in result.failures]
    if result.unproven and result.stopped != "interrupted":
        tell(f"unproven: {result.unproven}; {_next_step(result)}", "warning", "yellow")
    elif not result.unproven and result.confidence != "ok" and result.noise > 0:  # one config is compared with none
        tell(f"low confidence: {result.confidence}", "warning", "yellow")
    facts.lines(f"{operation.name} {result.problem_size}".rstrip() + f" on {result.device}")
    if result.trials:
        _add_ranking(facts, result)
        facts.lines(_summary(result) + facts.hint_of_failures)
    facts.text(_manner(result)).text(str(Config(result.best_config)), f"{_first(result):8}")
    return facts.text(_speed(result), " " * 8)


def _first(result: TuningResult) -> str:
    """The word for the config that a tune returns."""
    return "alone" if Trial.one_alone(result.totals) else "winner"


def _next_step(result: TuningResult) -> str:
    if Trial.one_alone(result.totals):
        return "-v says why the others failed"
    if result.unproven == Record.INTERPRETED:
        return "tune it on a GPU, without TRITON_INTERPRET"
    if result.from_cache or (result.noise > 0 and result.stopped in ("complete", "settled")):
        return "a larger budget, or --force, searches again"
    return "the same command goes on with it"


def _tuned(operation: Operation, problem: TuneProblem, options: TuneOptions, listener: Listener) -> TuningResult:
    """The result of a tune; where no config ran and some were wrong, hints of the linter precede the error."""
    try:
        # Not by its class, whose import would import Triton.
        if hasattr(operation, "at_call"):
            space = problem.space or operation.space
            call = operation.at_call(problem.device)
            if problem.same_bits_as is not None:
                call = replace(call, options=replace(call.options, same_bits=problem.same_bits_as))
            result: TuningResult = call.tuned(options, space, listener=listener)
            return result
        request = problem.measurable(seed=options.seed)
        return RequestedTune(request=request, options=options, listener=listener).result()
    except TuningFailedError as error:
        _tell_hints(operation, [reason.partition(":")[0] for _, reason in error.failures])
        raise


def _tell_hints(operation: Operation, statuses: list[str]) -> None:
    if "wrong" in statuses:  # the linter takes NumPy along, which a tune without a wrong result does not need
        try:
            lines = _HINTS.function(operation)
        except MissingDependencyError as error:
            lines = [f"{error}"]
        for line in lines:
            tell(line, "hint", "yellow")


def _check_watch(watch: bool, port: int | None, lists: list[str]) -> None:
    if watch and lists:
        raise SettingsError(f"--watch shows one run, and {lists[0]} makes several", hint="leave one out")
    if port is not None and not watch:
        raise SettingsError("--watch-port is for --watch", hint="give both, or leave it out")


def _one_target(targets: list[str] | None, typed: Mapping[str, Any]) -> str:
    if not targets:
        raise SettingsError("Missing argument 'TARGET'", hint="triton-ops tune --help")
    if len(targets) > 1:
        raise SettingsError(
            f"{len(targets)} targets were given, {', '.join(targets)}", hint="--all tunes the named problems of several"
        )
    for name, lists in _LISTS_OF.items():
        if typed[name] is not None:
            raise SettingsError(f"{name} is for {lists}", hint="leave it out")
    return targets[0]


def _add_ranking(facts: Facts, result: TuningResult) -> None:
    """Add the fastest trials, best first: winner, ties, others of the last comparison; below them some that failed."""
    trials = sorted((t for t in result.trials if t.ok), key=lambda trial: _rank(trial, result))[:_SHOWN]
    rows = [_row(position, trial, result) for position, trial in enumerate(trials, 1)]
    failures = result.failures[:_SHOWN_FAILED]
    trials += failures
    rows += [[trial.status.value, "-", "-", "-", str(trial.config)] for trial in failures]
    common = _common([trial.config for trial in trials])

    def narrow() -> Facts:
        configs = [{name: v for name, v in trial.config.items() if name not in common} for trial in trials]
        shorter = [[*row[:-1], str(Config(config))] for row, config in zip(rows, configs, strict=True)]
        return Facts("tune").text(str(common), "in all: ").table(_HEADER, shorter, _HEADER[1:-1])

    facts.table(_HEADER, rows, _HEADER[1:-1], narrow=narrow if common else None)


def _common(configs: list[Config]) -> Config:
    """The values that several configs have in common; empty for a single config."""
    if len(configs) < 2:
        return Config()
    return Config(
        # By their texts, since True equals 1.
        {name: v for name, v in configs[0].items() if all(repr(config.get(name)) == repr(v) for config in configs)}
    )


def _is(trial: Trial, other: Trial | None) -> bool:
    """Check whether a trial is of the config of the winner or the default, if there is one."""
    return other is not None and trial.config == other.config


def _rank(trial: Trial, result: TuningResult) -> tuple[bool, bool, float, str]:
    races_anyway = _is(trial, result.default) and trial.config not in result.ties
    return not _is(trial, result.winner), trial.final is None or races_anyway, _ms_of(trial, result), trial.config.text


def _row(position: int, trial: Trial, result: TuningResult) -> list[str]:
    spread = f"{trial.best_measurement.spread:.1%}"
    gain = gain_text(_gain_of(trial, result))
    return [f"{position}{_mark(trial, result)}", f"{_ms_of(trial, result):.4g}", spread, gain, str(trial.config)]


def _ms_of(trial: Trial, result: TuningResult) -> float:
    """A trial's time, which agrees with the gain of its row: both stand beside the winner's, round by round."""
    gain = None if _is(trial, result.winner) else _gain_of(trial, result)
    if gain is None or result.gain is None or result.winner is None:
        return trial.median_ms
    return result.winner.median_ms * result.gain / gain


def _gain_of(trial: Trial, result: TuningResult) -> float | None:
    """The default's time over a trial's: of who raced, that of the winner over their own time beside the winner's."""
    if _is(trial, result.default):
        return 1.0
    over_winner = 1.0 if _is(trial, result.winner) else trial.over(result.winner)
    if result.gain is not None and over_winner and trial.final is not None:
        return result.gain / over_winner
    over = trial.over(result.default)
    return 1 / over if over else None


def _mark(trial: Trial, result: TuningResult) -> str:
    place = _first(result) if _is(trial, result.winner) else "tie" if trial.config in result.ties else ""
    screened = trial.final is None and any(each.final is not None for each in result.trials)
    marks = [place, "default" * _is(trial, result.default), "screened" * screened]
    return "".join(f" {mark}" for mark in marks if mark)


def _summary(result: TuningResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.totals.items())
    end = ENDS.get(result.stopped, result.stopped)
    return f"{counted(len(result.trials), 'trial')}: {counts}; {end}, {result.elapsed_s:.1f} s"


def _manner(result: TuningResult) -> str:
    """The manner of the tune: place of the candidates, wait for the compiler, expected results, and notes."""
    place = [f"run {result.place}"] if result.place else []
    wait = [f"{result.waited_s:.1f} s waited for the compiler"] if result.waited_s >= _WORTH_TELLING_S else []
    reference = [f"results compared with {result.verified}"] if result.verified else []
    order = [f"configs ordered by {' and '.join(result.ordered_by)}"] if result.ordered_by else []
    return "; ".join([*place, *wait, *reference, *order, *result.notes])


def _speed(result: TuningResult) -> str:
    metrics = result.metrics
    parts = [f"{metrics.latency_ms:.4g} ms", _against_default(result)]
    if metrics.throughput_tflops:
        tflops = metrics.throughput_tflops
        parts.append(f"{tflops:.1f} TFLOP/s" if tflops >= 1 else f"{tflops:.3g} TFLOP/s")
    if metrics.bandwidth_gbps:
        share = f" ({metrics.bandwidth_utilization:.0f} % of peak)" if metrics.bandwidth_utilization else ""
        parts.append(f"{metrics.bandwidth_gbps:.0f} GB/s{share}")
    if len(result.ties) > 1:
        parts.append(f"{len(result.ties) - 1} more within noise")
    if result.within_1pct is not None:
        parts.append(f"within 1 % of the fastest with a chance of {result.within_1pct:.3g}")
    if result.unproven:
        parts.append("unproven")
    parts.append("from the cache, not measured again" if result.from_cache else "measured now")
    return ", ".join(filter(None, parts))


def _against_default(result: TuningResult) -> str:
    if result.default is not None and _is(result.default, result.winner):
        return "the default itself"
    return "" if result.gain is None else f"{gain_text(result.gain, result.gain_interval)} as fast as the default"


def _trials_json(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Trials as plain JSON values."""
    return [
        {
            **Facts.members(trial, "config", "status", "error", "trace"),
            "median_ms": trial.median_ms if trial.ok else None,
            "spread": trial.best_measurement.spread if trial.ok else None, "final": trial.final is not None,
            **Facts.members(trial, "compile_s", "resources", "same_code_as", "excess"),
        }
        for trial in trials
    ]  # fmt: skip
