"""Problems that nothing answered, tuned as one run, those first that cost most."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_ops.buckets import unkeyed
from triton_ops.cache import Key
from triton_ops.exceptions import TritonKernelError
from triton_ops.hardware import DeviceSpec, gpu_missing, probe
from triton_ops.history.misses import Miss, costs, forget_misses
from triton_ops.history.recall import cache_folder, key_of, store_in
from triton_ops.many.executor import Job, Place
from triton_ops.many.problem import Options, TuneProblem, tuned
from triton_ops.many.session import ManyResult, ProblemOutcome, run_jobs
from triton_ops.serving.targets import DECORATED, Targets, made_on, specs_of
from triton_ops.tolerance import Tolerance
from triton_ops.trial import TuningResult


@dataclass(frozen=True, kw_only=True)
class Served:
    """What became of one miss.

    Attributes:
        miss: The miss.
        result: The result of its tune; None if it was not tuned.
        reason: Why it was not tuned, or in what its record's key differs from what was missed; empty otherwise.
        stored: Whether there is a record now; the miss is off the list then.
    """

    miss: Miss
    result: TuningResult | None = None
    reason: str = ""
    stored: bool = False


def tune_misses(
    misses: Sequence[Miss],
    targets: Targets,
    options: Options,
    *,
    tolerance: float | Tolerance | None = None,
    budget_s: float | None = None,
) -> tuple[list[Served], ManyResult]:
    """Tune misses as one run, and take each off the list when there is a record.

    A miss of another device, or of a kernel that cannot be found, is passed over with the reason, and stays.

    Args:
        misses: The misses.
        targets: The kernels that they name.
        options: What their tunes have in common; `cache_dir` is the folder of the misses and of the records.
        tolerance: How far a right result may be from the expected one.
        budget_s: The limit of seconds of the run; None is no limit.

    Returns:
        What became of each miss, in their order, and the run.
    """
    options = replace(options, cache_dir=cache_folder(options.cache_dir))
    weights, keys = costs(misses), dict[str, Key]()
    jobs: dict[str, Job] = {}
    served: dict[str, Served] = {}
    for miss in misses:
        device = "cpu" if miss.key.device.get("kind") == "cpu" else "cuda"
        if (reason := _elsewhere(miss, device) or _not_found(miss, targets)) is not None:
            served[miss.key.id] = Served(miss=miss, reason=reason)
            continue
        work = _Work(miss=miss, device=device, targets=targets, options=options, tolerance=tolerance, keys=keys)
        jobs[miss.key.id] = Job(
            name=miss.key.id, label=f"{miss.key.kernel} {miss.key.label}".rstrip(), kernel=miss.key.kernel,
            problem=miss, tune=work.tuned, weight=weights[miss.key.id],
            devices=frozenset(options.devices if device == "cuda" else ("cpu",)) if options.devices else None,
        )  # fmt: skip

    def told(outcome: ProblemOutcome) -> None:
        served[outcome.problem.key.id] = _served(outcome, keys, options)

    run = run_jobs(list(jobs.values()), options, budget_s=budget_s, seen=told)
    return [served.get(miss.key.id, Served(miss=miss, reason=_unbegun(run))) for miss in misses], run


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The tune of one miss, whose arguments are made only when it begins, since they may take much memory."""

    miss: Miss
    device: str
    targets: Targets
    options: Options
    tolerance: float | Tolerance | None
    keys: dict[str, Key]

    def tuned(self, place: Place) -> TuningResult:
        miss, options = self.miss, self.options
        device = self.device if place.device is None else place.device
        if miss.call is not None:
            decorated = self.targets.decorated(miss.key.kernel)
            noted = importlib.import_module(DECORATED)  # it imports Triton, as the kernel's own module has
            result, key = noted.tune_noted(decorated, miss.call, device, options.cache_dir, self._decorated(place))
            self.keys[miss.key.id] = key
            return result  # type: ignore[no-any-return]
        problem = TuneProblem(
            target=self.targets.find(miss.key.kernel), kwargs=made_on(specs_of(unkeyed(miss.key.problem)[0]), device),
            device=device, tolerance=self.tolerance, cold=miss.key.cache_state == "cold",
        )  # fmt: skip
        self.keys[miss.key.id] = key_of(problem.request(None, options.seed)[0], cold=problem.cold)
        return tuned(problem, options, replace(place, device=None))

    def _decorated(self, place: Place) -> Mapping[str, Any]:
        options = self.options
        return {
            "effort": options.plan, "seed": options.seed, "isolate": options.isolate, "force": options.force,
            "transfer": options.transfer, "wait": options.wait, "listener": place.listener, "gate": place.gate,
            "shared_cpus": place.shared_cpus,
        }  # fmt: skip


def _served(outcome: ProblemOutcome, keys: Mapping[str, Key], options: Options) -> Served:
    miss, result = outcome.problem, outcome.result
    if result is None or outcome.status == "interrupted":
        return Served(miss=miss, result=result, reason=str(outcome.error) if outcome.error else "it was interrupted")
    record = store_in(str(options.cache_dir)).get(keys[miss.key.id].id)
    if record is None:
        return Served(miss=miss, result=result, reason="its winner was not stored")
    forget_misses(Path(str(options.cache_dir)), [miss.key.id])
    changed = miss.key.differences(record.key)
    reason = f"the record differs from what was missed in {'; '.join(changed)}" if changed else ""
    return Served(miss=miss, result=result, reason=reason, stored=True)


def _unbegun(run: ManyResult) -> str:
    return "the budget left no time for it" if run.stopped == "seconds" else "it was not begun"


def _not_found(miss: Miss, targets: Targets) -> str | None:
    """Why the kernel of a miss cannot be found; None if it can."""
    try:
        if miss.call is None:
            targets.find(miss.key.kernel)
            specs_of(unkeyed(miss.key.problem)[0])
        else:
            targets.decorated(miss.key.kernel)
    except TritonKernelError as error:
        return str(error)
    return None


def _elsewhere(miss: Miss, device: str) -> str | None:
    """Why a miss is none of this machine; None if it is."""
    wanted = miss.key.device.get("name")
    if device == "cuda" and (missing := gpu_missing()):
        return f"it is of {wanted}, and there is no GPU here: {missing}"
    here: DeviceSpec = probe(device)
    return None if here.name == wanted else f"it is of {wanted}, and this machine has {here.name}"
