"""Problems that nothing answered, tuned as one run, those first that cost most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_ops import dispatch
from triton_ops.backend import Packed
from triton_ops.device import TorchDevice, gpu_missing, probe
from triton_ops.exceptions import DeviceError, NotLoadedError, TritonKernelError
from triton_ops.many import Job, JobPlace, ManyResult, ProblemOutcome, RunOptions, run_jobs
from triton_ops.records import Miss, Misses, cache_folder, store_in
from triton_ops.request import TuneProblem
from triton_ops.ship.targets import Targets, check_named, kernel_in, made_on, specs_of
from triton_ops.values import Mapper, Tolerance, TuningResult


@dataclass(frozen=True, kw_only=True)
class MissOutcome:
    """The outcome of one miss."""

    miss: Miss
    result: TuningResult | None = None  # None if it was not tuned
    reason: str = ""  # why it was not tuned, or in what its record's key differs from what was missed
    stored: bool = False  # there is a record now; the miss is off the list then
    loaded: bool = True  # not so where only the file names its kernel


def tune_misses(
    misses: Sequence[Miss],
    targets: Targets,
    options: RunOptions,
    *,
    tolerance: float | Tolerance | None = None,
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
            work = _MissTune(
                miss=miss,
                device=_here(miss, device),
                target=_target(miss, targets),
                options=replace(options, cluster=None),
                tolerance=tolerance,
            )
            if options.cluster is not None:
                Packed.of(work.tuned)  # each is sent when its turn comes
        except TritonKernelError as error:
            outcomes[miss.key.id] = MissOutcome(
                miss=miss, reason=str(error), loaded=not isinstance(error, NotLoadedError)
            )
            continue
        jobs[miss.key.id] = Job(
            name=miss.key.id, label=f"{miss.key.kernel} {miss.key.label}".rstrip(), kernel=miss.key.kernel,
            problem=miss, tune=work.tuned, weight=weights[miss.key.id],
            devices=frozenset(options.devices if device == "cuda" else ("cpu",)) if options.devices else None,
        )  # fmt: skip

    def note(outcome: ProblemOutcome) -> None:
        outcomes[outcome.problem.key.id] = _outcome(outcome, options)

    run = run_jobs(list(jobs.values()), options, observer=note)
    unbegun = "the budget left no time for it" if run.stopped == "seconds" else "it was not begun"
    return [outcomes.get(miss.key.id, MissOutcome(miss=miss, reason=unbegun)) for miss in misses], run


@dataclass(frozen=True, kw_only=True)
class _MissTune:
    """The tune of one miss, whose arguments are made only when it begins, since they may take much memory."""

    miss: Miss
    device: str
    target: Any  # for a call that was noted, the decorated kernel as it stands in its module
    options: RunOptions
    tolerance: float | Tolerance | None

    def tuned(self, place: JobPlace) -> TuningResult:
        miss, options = self.miss, self.options
        device = self.device if place.device is None else place.device
        if miss.call is not None:
            each = options.each if place.cache_dir is None else replace(options.each, cache_dir=place.cache_dir)
            # Its name imports Triton, as the kernel's own module has.
            call = dispatch.NotedOperation.made_again(self.target, miss.call, device)
            return call.tuned(each, listener=place.listener, gate=place.gate, shared_cpus=place.shared_cpus)
        problem = TuneProblem(
            target=self.target, kwargs=made_on(specs_of(Mapper.unkeyed(miss.key.problem)[0]), device),
            device=device, tolerance=self.tolerance, cold=miss.key.cache_state == "cold",
        )  # fmt: skip
        return options.tuned(problem, replace(place, device=None))


def _outcome(outcome: ProblemOutcome, options: RunOptions) -> MissOutcome:
    miss, result = outcome.problem, outcome.result
    if result is None or outcome.status == "interrupted":
        return MissOutcome(
            miss=miss, result=result, reason=str(outcome.error) if outcome.error else "it was interrupted"
        )
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
    check_named(kernel_in(target), specs_of(Mapper.unkeyed(miss.key.problem)[0]))
    return target


def _here(miss: Miss, kind: str) -> str:
    """The device of this machine that a miss is of; DeviceError if it is of another machine."""
    name = miss.key.device.get("name")
    if kind == "cuda" and (missing := gpu_missing()):
        raise DeviceError(f"it is of {name}, and there is no GPU here: {missing}")
    device = probe(kind)
    if device.name != name:
        raise DeviceError(f"it is of {name}, and this machine has {device.name}")
    return TorchDevice.current_name() if kind == "cuda" else kind
