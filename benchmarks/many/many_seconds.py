"""Where the seconds of each GPU went in a run of many problems: asked of its worker, waited for compilers, or thought.

`timed_jobs` wraps the jobs of a run, whichever process measures them; `seconds_by_device` reads what they have noted.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops.evaluation.isolated import Isolated
from triton_ops.many import Job, JobPlace, ProblemOutcome
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.values import TuningResult

_asked: dict[str, float] = {"seconds": 0.0}  # of workers, by this process
_ask = Isolated._ask


def timed_jobs(jobs: Iterable[Job], folder: str) -> list[Job]:
    """Jobs that note their seconds in a folder, and that no lockfile of a package guides."""
    Path(folder).mkdir(exist_ok=True)
    return [replace(job, tune=partial(_timed, job.tune, f"{folder}/{job.name.split()[0]}")) for job in jobs]


def _timed(tune: Any, path: str, place: JobPlace) -> TuningResult:
    FollowedLockfile.SHARED.clear()
    if Isolated._ask is _ask:
        Isolated._ask = _noted  # type: ignore[method-assign]
    begun_s = time.monotonic()
    result: TuningResult = tune(place)
    facts = {
        "device": place.device, "process": os.getpid(), "asked_s": _asked["seconds"], "cpu_s": time.process_time(),
        "prepared_s": time.monotonic() - begun_s - result.elapsed_s,
    }  # fmt: skip
    Path(path).write_text(json.dumps(facts))
    return result


def _noted(station: Isolated, *question: Any) -> Any:
    begun_s = time.monotonic()
    try:
        return _ask(station, *question)
    finally:
        _asked["seconds"] += time.monotonic() - begun_s


def seconds_by_device(outcomes: Iterable[ProblemOutcome], folder: str) -> dict[str, dict[str, float]]:
    """Of each device: the seconds of its tunes, in which it was asked, waited for compilers, and thought.

    `cpu_s` are seconds of a CPU in the process that thought, and `first_s` and `last_s` say when its first problem
    began and its last one ended.
    """
    devices: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for each in outcomes:
        one = devices[each.device]
        one["first_s"] = min(one.get("first_s", each.began_s), each.began_s)
        one["last_s"] = max(one["last_s"], each.ended_s)
        one["measured_problems"] += 1
        one["busy_s"] += each.ended_s - each.began_s
        if each.result is not None:
            one["tune_s"] += each.result.elapsed_s
            one["waited_s"] += each.result.waited_s
            one["trials"] += len(each.result.trials)
    for path in Path(folder).iterdir():
        facts = json.loads(path.read_text())
        one = devices[facts["device"]]
        one["asked_s"], one["cpu_s"] = max(one["asked_s"], facts["asked_s"]), max(one["cpu_s"], facts["cpu_s"])
    for one in devices.values():
        one["thought_s"] = one["busy_s"] - one["asked_s"] - one["waited_s"]
    return {name: {what: round(value, 2) for what, value in one.items()} for name, one in sorted(devices.items())}
