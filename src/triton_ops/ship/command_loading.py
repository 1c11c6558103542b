"""Commands on problems that files name: kernels are loaded, then a lockfile is verified or added to, or misses tuned.

What is added is expected for a GPU that need not be here: a config is chosen as by the effort `expected`, with what the
compiler makes of it and of the default for that GPU. Where the model is not sure, a launch runs the default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from triton_ops import dispatch
from triton_ops.backend import Operation, Packed
from triton_ops.base import canonical_json, counted, gain_text
from triton_ops.device import DeviceSpec, Machine, TorchDevice, gpu_missing, probe
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    NotLoadedError,
    SettingsError,
    SpaceError,
    TargetError,
    TritonKernelError,
)
from triton_ops.many import Job, JobPlace, ListedTune, ManyResult, ProblemOutcome, RunOptions, run_jobs
from triton_ops.records import LockedDevice, LockEntry, Lockfile, Miss, Misses, NotedCall, store_in
from triton_ops.request import TuneOptions, TuneProblem, TuneRequest
from triton_ops.settings import cache_folder
from triton_ops.ship.raced_entry import expecting
from triton_ops.ship.targets import BoundEntry, Targets, as_target, bound, check_given, is_declared, kernel_in, specs_of
from triton_ops.ship.verification import Verdict, repaired, verify
from triton_ops.space import Config
from triton_ops.terminal import ExitCode, Facts, folder_of, only_data_on_stdout, option, tell
from triton_ops.tuner import ProgressBar, RequestedTune, Survey
from triton_ops.typed import TypedTarget
from triton_ops.values import Mapper, TensorSpec, Tolerance, TuningResult

_VERDICT_HEADER = ("outcome", "kernel", "problem", "device", "config")
_NOTHING = (
    "no entry could be measured, for the reasons above "
    "(hint: run it where the device is and has room, or with --static)"
)
_MISS_HEADER = ("count", "kernel", "problem", "median ms", "vs default", "what became of it")
_MISS_NUMBERS = ("count", "median ms", "vs default")


def load_kernels(texts: Iterable[str]) -> dict[str, Any]:
    """The objects that KERNELS name, by the TARGET of each; those of a file or module are the ones that it declares."""
    objects: dict[str, Any] = {}
    for text in dict.fromkeys(texts):
        if ":" in text or text in Operation.shipped_names():
            objects[text] = TypedTarget(text).object()
            continue
        values = TypedTarget(text).values()
        kernels = {id(value): (name, value) for name, value in values.items() if is_declared(value)}
        if not kernels:
            raise TargetError(
                f"{text} declares no kernel: no operation, no chooser, and no function under a decorator for kernels",
                hint=f"name a function by itself: {text}:NAME",
            )
        others = [id(value) for value in objects.values()]  # a file may import what another one declares
        objects |= {f"{text}:{name}": value for place, (name, value) in kernels.items() if place not in others}
    return objects


def verify_command(
    lockfile: Annotated[Path, option("LOCKFILE", "The lockfile.")] = Path(Lockfile.DEFAULT_NAME),
    kernels: Annotated[
        list[str] | None, option("--kernels --target", "A file, module or TARGET to load; repeat it.", "KERNELS")
    ] = None,
    kernel: Annotated[str | None, option("--kernel", "Only entries of this kernel.", "NAME")] = None,
    static: Annotated[
        bool, option("--static", "Only what needs no device: parsed, found, in its space, compiled.")
    ] = False,
    most_neighbours: Annotated[int, option("--neighbours", "Neighbours to measure beside each entry.", "N")] = 8,
    held_out: Annotated[int, option("--held-out", "Measure at N further values of each range, too.", "N")] = 0,
    bound: Annotated[float, option("--bound", "Loss that passes at a held-out value, in percent.", "PERCENT")] = 0.0,
    repairs: Annotated[
        bool, option("--repair", "Race each entry; confirm it in LOCKFILE, or pin what is proven faster.")
    ] = False,
    records: Annotated[
        bool, option("--records", "With --repair, race the records of the cache folder in place of LOCKFILE.")
    ] = False,
    seconds: Annotated[float | None, option("--seconds", "With --repair, begin no race after S seconds.", "S")] = None,
    markdown: Annotated[bool, option("--markdown", "Write Markdown, for pull requests.")] = False,
    device: str | None = None,
    *,
    options: Annotated[TuneOptions, "seed cache_dir"],
    as_json: bool = False,
) -> Facts:
    """Check every entry of LOCKFILE, and measure it against what may be faster; exit 5 if one fails.

    Outcomes: `ok`; `unreachable`, no launch finds the entry; `invalid`, its config fails or is wrong; `slower`,
    another config is faster beyond noise; `not known`, too little was compared; `repaired`; `not loaded`, name the
    kernel's file with --kernels; `not measured`, the reason says why.

    Exit code 5: an entry is unreachable, invalid, slower or repaired; else 6: one is not loaded; 3: none could be
    measured without --static; 8: one is not known, or a held-out size is not measured.

    With --repair another config takes an entry's place if it wins by the rule of a tune and its 95 % interval lies
    above 1 %. Each race is written as soon as it is over.
    """
    wrong = {"--repair excludes --static and --held-out": repairs and (static or held_out),
             "--seconds and --records are for --repair": (seconds is not None or records) and not repairs,
             "--markdown excludes --json": markdown and as_json}  # fmt: skip
    if why := next(filter(wrong.get, wrong), ""):
        raise SettingsError(why, hint="leave one of them out")
    for name, value, hint in (
        ("--neighbours", most_neighbours, "0 measures none"),
        ("--held-out", held_out, "leave it out for none"), ("--bound", bound, "leave it out for none"),
        ("--seconds", seconds or 0.0, "leave it out for no limit"),
    ):  # fmt: skip
        SettingsError.checked(name, value, 0, hint=hint)
    lock = Lockfile() if records else Lockfile.read(lockfile)
    only_data_on_stdout()
    targets = Targets(load_kernels(kernels or ()).values())
    folder = folder_of(options.cache_dir)
    check: Any = partial(
        verify, lock, targets, None if static else probe(device), held_out=held_out, most_loss=bound / 100,
        folder=folder,
    )  # fmt: skip
    if repairs:
        check = partial(repaired, None if records else lockfile, folder, targets, seconds=seconds)
    verdicts, is_interrupted = _up_to_interrupt(check(
        device=device, kernel=kernel, most_neighbours=most_neighbours, seed=options.seed, listener=ProgressBar()
    ))  # fmt: skip
    if kernel is not None and not verdicts:
        where = folder if records else lockfile
        raise SettingsError(f"{where} has no entry of {kernel}", hint="`triton-ops lock --check` lists what differs")
    facts = _verdict_facts(verdicts)
    facts.code = ExitCode.INTERRUPTED if is_interrupted else _code_of(verdicts, static=static)
    if is_interrupted:
        facts.tell("interrupted: these are the verdicts so far; the same command begins anew")
    elif facts.code == ExitCode.NO_DEVICE:
        facts.tell(_NOTHING, "error", "red")
    return facts.as_markdown if markdown else facts


def _up_to_interrupt(checks: Iterable[Verdict]) -> tuple[list[Verdict], bool]:
    """The verdicts up to Ctrl-C, and whether that came; before any verdict it is raised."""
    verdicts = list[Verdict]()
    try:
        verdicts.extend(checks)
    except KeyboardInterrupt:
        if not verdicts:
            raise
        return verdicts, True
    return verdicts, False


def _code_of(verdicts: Sequence[Verdict], *, static: bool) -> ExitCode:
    if any(verdict.failed or verdict.outcome == "repaired" for verdict in verdicts):
        return ExitCode.CHECK_FAILED
    if any(verdict.outcome == "not loaded" for verdict in verdicts):
        return ExitCode.NOT_LOADED
    if not static and verdicts and all(verdict.outcome == "not measured" for verdict in verdicts):
        return ExitCode.NO_DEVICE
    is_open = any(one.outcome == "not known" or (one.at and one.outcome == "not measured") for one in verdicts)
    return ExitCode.NOT_KNOWN if is_open else ExitCode.DONE


def _verdict_facts(verdicts: list[Verdict]) -> Facts:
    plain = [
        {
            **Facts.members(one, "outcome", "reason", "at", "regret", "entry"),
            "result": None if one.result is None else one.result.as_json,
            "becomes": one.becomes,
        }
        for one in verdicts
    ]
    facts = Facts("verify", plain)
    if not verdicts:
        return facts.lines("0 entries")
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    summary = f"{counted(len(verdicts), 'entry')}: {counts}"
    regrets = [verdict.regret for verdict in verdicts if verdict.at and verdict.regret is not None]
    held_out = [f"largest regret at {len(regrets)} held-out sizes: {max(regrets):.1%}"] if regrets else []
    rows = []
    for verdict in verdicts:
        entry, why = verdict.entry, f": {verdict.reason}" if verdict.reason else ""
        label = " at ".join(filter(None, (entry.label or "-", verdict.at)))
        new = entry.config if verdict.becomes is None else verdict.becomes.config
        config = str(entry.config) if new == entry.config else f"{entry.config}, now {new}"
        rows.append([verdict.outcome, entry.kernel, label, entry.device, f"{config}{why}"])
    return facts.table(_VERDICT_HEADER, rows).lines(summary, *held_out)


def tune_from_misses(run: ListedTune, targets: Sequence[str], most: int | None, kernels: Sequence[str]) -> Facts:
    """Tune the misses of a cache folder, at most so many.

    The exit code is 6 if a kernel that a miss names is not loaded, and 1 if there are misses and none was tuned. The
    run is what the tunes have in common; a miss has its own device and state of the cache. Only misses of the TARGETs
    are tuned, where there are some; KERNELS are loaded, and restrict nothing.
    """
    if most is not None:
        SettingsError.checked("--most", most, 1, hint="leave it out for all")
    folder = folder_of(run.options.each.cache_dir)
    options = replace(run.options, each=replace(run.options.each, cache_dir=folder))
    only_data_on_stdout()
    objects = [TypedTarget(target).object() for target in targets]
    names = [as_target(each).name for each in objects]
    objects += load_kernels(kernels).values()
    misses = [miss for miss in Misses(folder).read() if not names or miss.key.kernel in names]
    outcomes, result = tune_misses(misses[:most], Targets(objects), options, tolerance=run.tolerance)
    plain = [
        {
            **each.miss.as_json, "result": None if each.result is None else each.result.as_json, "outcome": each.word,
            **Facts.members(each, "stored", "reason"),
        }
        for each in outcomes
    ]  # fmt: skip
    facts = Facts("tune misses", plain)
    rows = []
    for each in outcomes:
        key, best = each.miss.key, each.result
        end = ["-", "-", f"{each.word}: {each.reason}"]
        if best is not None:
            config = f"{Config(best.best_config)}; {each.reason}" if each.reason else str(Config(best.best_config))
            gain = gain_text(best.gain, best.gain_interval, best.unproven)
            end = [f"{best.metrics.latency_ms:.4g}", gain, config]
        rows.append([str(each.miss.count), key.kernel, key.label or "-", *end])
    facts.table(_MISS_HEADER, rows, _MISS_NUMBERS)
    if not outcomes:
        facts.tell(f"there are no misses{f' of {names[0]}' if names else ''} in {folder}")
    if result.stopped == "interrupted":
        facts.code = ExitCode.INTERRUPTED
        facts.tell("interrupted: the same command goes on where it stopped")
    elif any(each.word == "not loaded" for each in outcomes):
        facts.code = ExitCode.NOT_LOADED
    elif outcomes and not any(each.result for each in outcomes):
        facts.code = ExitCode.NONE_RAN
    return facts


@dataclass(frozen=True, kw_only=True)
class MissOutcome:
    """The outcome of one miss."""

    miss: Miss
    result: TuningResult | None = None  # None if it was not tuned
    reason: str = ""  # why it was not tuned, or in what its record's key differs from what was missed
    stored: bool = False  # there is a record now; the miss is off the list then
    word: str = "tuned"  # or `not tuned`; `not loaded` where only the file names its kernel


def tune_misses(
    misses: Sequence[Miss], targets: Targets, options: RunOptions, *, tolerance: float | Tolerance | None = None
) -> tuple[list[MissOutcome], ManyResult]:
    """Tune misses as one run, and take each off the list when there is a record; gives the outcomes, and the run.

    A miss of another device, or of a kernel that cannot be found, is passed over with the reason, and stays. The folder
    of the options is that of the misses and of the records.
    """
    options = replace(options, each=replace(options.each, cache_dir=cache_folder(options.each.cache_dir)))
    weights = Misses.costs(misses)
    jobs: dict[str, Job] = {}
    outcomes: dict[str, MissOutcome] = {}
    for miss in misses:
        device = "cpu" if miss.key.device.get("kind") == "cpu" else "cuda"
        try:
            work = partial(
                _tune, miss=miss, device=_here(miss, device), target=_target(miss, targets),
                options=replace(options, cluster=None), tolerance=tolerance,
            )  # fmt: skip
            if options.cluster is not None:
                Packed.of(work)  # refused now if it cannot be sent, which it is when its turn comes
        except TritonKernelError as error:
            word = "not loaded" if isinstance(error, NotLoadedError) else "not tuned"
            outcomes[miss.key.id] = MissOutcome(miss=miss, reason=str(error), word=word)
            continue
        jobs[miss.key.id] = Job(
            name=miss.key.id, label=f"{miss.key.kernel} {miss.key.label}".rstrip(), kernel=miss.key.kernel,
            problem=miss, tune=work, weight=weights[miss.key.id],
            devices=frozenset(options.devices if device == "cuda" else ("cpu",)) if options.devices else None,
        )  # fmt: skip

    run = run_jobs(list(jobs.values()), options)
    unbegun = "the budget left no time for it" if run.stopped == "seconds" else "it was not begun"
    for each in run.outcomes:
        outcomes[each.problem.key.id] = _outcome(each, options, unbegun)
    return [outcomes[miss.key.id] for miss in misses], run


def _tune(
    place: JobPlace, *, miss: Miss, device: str, target: Any, options: RunOptions, tolerance: float | Tolerance | None
) -> TuningResult:
    """Tune one miss; its arguments are made only when it begins, since they may take much memory.

    The target of a call that was noted is the decorated kernel as it stands in its module.
    """
    device = device if place.device is None else place.device
    if miss.call is not None:
        each = options.each if place.cache_dir is None else replace(options.each, cache_dir=place.cache_dir)
        # Its name imports Triton, as the kernel's own module has.
        call = dispatch.NotedOperation.at(target, miss.call).at_call(device)
        return call.tuned(each, listener=place.listener, gate=place.gate, shared_cpus=place.shared_cpus)
    problem = TuneProblem(
        target=target, kwargs=TensorSpec.with_tensors(specs_of(Mapper.unkeyed(miss.key.problem)[0]), device),
        device=device, tolerance=tolerance, cold=miss.key.cache_state == "cold",
    )  # fmt: skip
    return options.tuned(problem, replace(place, device=None))


def _outcome(outcome: ProblemOutcome, options: RunOptions, unbegun: str) -> MissOutcome:
    miss, result = outcome.problem, outcome.result
    if result is None or outcome.status == "interrupted":
        why = unbegun if outcome.status == "not begun" else "it was interrupted"
        reason, word = str(outcome.error) if outcome.error else why, "tuned" if result else "not tuned"
        return MissOutcome(miss=miss, result=result, reason=reason, word=word)
    record = store_in(str(options.each.cache_dir)).get(result.record) if result.record else None
    if record is None:
        return MissOutcome(miss=miss, result=result, reason="its winner was not stored")
    if not record.goes_on:  # else the next `tune --from-misses` goes on with it
        Misses(Path(str(options.each.cache_dir))).forget([miss.key.id])
    differences = miss.key.differences(record.key)
    reason = f"the record differs from what was missed in {'; '.join(differences)}" if differences else ""
    return MissOutcome(miss=miss, result=result, reason=reason, stored=True)


def _target(miss: Miss, targets: Targets) -> Any:
    """The operation or kernel that a miss names, if it is found, and its arguments can be made."""
    if miss.call is not None:
        return targets.decorated(miss.key.kernel)
    target = targets.find(miss.key.kernel)
    check_given(kernel_in(target), specs_of(Mapper.unkeyed(miss.key.problem)[0]))
    return target


def _here(miss: Miss, kind: str) -> str:
    """The device of this machine that a miss is of; DeviceError if it is of another machine."""
    name = miss.key.device.get("name")
    if kind == "cuda" and (missing := gpu_missing()):
        raise DeviceError(f"it was missed on {name}, and there is no GPU here: {missing}", hint=DeviceError.NO_GPU)
    device = probe(kind)
    if device.name != name:
        raise DeviceError(f"it was missed on {name}, and this machine has {device.name}", hint="tune it there")
    return TorchDevice.current_name() if kind == "cuda" else kind


_AS_TORCH = "cuda"  # the name of a GPU of any vendor


def expect_winners(
    device: LockedDevice, spec: DeviceSpec, problems: Iterable[LockEntry], measured: Lockfile, kernels: Sequence[str]
) -> list[LockEntry]:
    """The entries of what is expected to be fast on a device; what the model is not sure of is told, with the reason.

    The problems are those of the `wanted` entries, whatever their device and config, and the named ones of KERNELS.
    None is looked at that a measured entry answers. Raises DeviceError if the model does not know the device.
    """
    Machine.known(spec)
    entries: list[LockEntry] = []
    only_data_on_stdout()
    targets = Targets(loaded := list(load_kernels(kernels).values()))
    cases = [entry for one in map(as_target, loaded) if isinstance(one, Operation) for entry in _named(one, spec)]
    unique: dict[tuple[str, str], LockEntry] = {}
    for each in (*problems, *cases):
        problem = each.kernel, canonical_json(dict(each.problem))
        unique.setdefault(problem, replace(each, device=device.alias, identity={}))
    for _, answer in bound(Lockfile((device,), tuple(unique.values())), targets):
        winner = answer if isinstance(answer, TritonKernelError) else _expected(answer, targets, spec, measured)
        if isinstance(winner, TritonKernelError):
            tell(winner.message, "note", "yellow")
        elif winner is not None:
            entries.append(winner)
    return entries


def _named(operation: Operation, spec: DeviceSpec) -> Iterable[LockEntry]:
    """The named problems of an operation, as entries without a config."""
    for shape, dtype in operation.problems.values():
        problem = TuneProblem(target=operation, shape=shape, dtype=dtype if operation.dtypes else None)
        yield LockEntry.asked(problem.request(_AS_TORCH, spec=spec).key)


def _expected(
    case: BoundEntry, targets: Targets, spec: DeviceSpec, measured: Lockfile
) -> LockEntry | TritonKernelError | None:
    """The entry, or the reason why there is none; None where a measured one answers."""
    pinned = measured.find(case.key_on(spec))
    if pinned is not None and not pinned.entry.origin.expected:
        return None
    try:
        tune = RequestedTune.expected(_request(case, targets, spec))
        expectation = tune.expectation(Survey.unhurried()).worth(tune.request, tune.effort)
    except TritonKernelError as error:
        return error
    default, pick = expectation.pair
    entry = expecting(case.entry, pick, default, expectation.text, case.kernel.identity)
    refused = replace(case, entry=entry).why_invalid(Lockfile((case.device,), (entry,)))
    return entry if refused is None else SpaceError(refused)


def _request(case: BoundEntry, targets: Targets, spec: DeviceSpec) -> TuneRequest:
    """The request of a tune for an entry's problem, whose tensors are specs."""
    entry, operation, specs = case.entry, case.target, case.specs
    if isinstance(entry.call, NotedCall):
        problem = TuneProblem(target=dispatch.NotedOperation.at(targets.decorated(entry.kernel), entry.call))
    elif specs is not None and isinstance(operation, Operation):
        # The entry's own arguments take the place of those that the operation makes of a shape and a dtype.
        here = replace(operation, arguments=lambda: specs, dtypes=(), problems={})
        problem = TuneProblem(target=here, space=case.space)
    else:
        why = f"{entry.kernel} {entry.label}: neither space nor call is known: {entry.call or 'no call was noted'}"
        raise KernelTypeError(why, hint="name the file of its operation with --kernels")
    request = problem.request(_AS_TORCH, spec=spec)
    return replace(request, problem=replace(request.problem, label=entry.label))
