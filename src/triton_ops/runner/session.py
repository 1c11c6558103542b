"""`tune`: from a kernel, a space and a problem to a winner that is measured, remembered and explained."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout

from triton_ops import settings
from triton_ops._files import ensure_folder, folder_lock, writable
from triton_ops.backend import Kernel, Operation
from triton_ops.cache import Key, Record, Store
from triton_ops.history.quarantine import Quarantine, quarantine_of
from triton_ops.history.recall import recalled, store_in
from triton_ops.history.runs import FOLDER, Runs
from triton_ops.processes.signals import cleaned_up_on_sigterm
from triton_ops.runner.events import Listener
from triton_ops.runner.progress import ProgressBar
from triton_ops.runner.results import result_from
from triton_ops.runner.tuning import TuneRequest, Tuning
from triton_ops.search import AnySearch
from triton_ops.task.effort import Effort, Patience, chosen_effort
from triton_ops.task.task import make_task
from triton_ops.trial import TuningResult

_log = logging.getLogger("triton_ops")


def tune(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    reference: Callable[..., Any] | None = None,
    effort: str | Effort | None = None,
    search: AnySearch | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    force: bool = False,
    cold: bool = True,
    isolate: bool | None = None,
    patience: Patience | None = None,
    transfer: bool = True,
    listener: Listener | None = None,
) -> TuningResult:
    """Find the fastest config of `target` for one problem, or recall it.

    The arguments are either yours (`args`, `kwargs`), copied so that no candidate can damage them, or dummies made
    from an operation's `shape` and `dtype`, uniform in [-1, 1].

    Args:
        target: An `Operation`, a `FunctionKernel`, a `TritonKernel`, or a callable; config values are its keywords.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        space: Name to values, a list of configs or `triton.Config`, or a `ConfigSpace`; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then the operation, then takes a GPU if any.
        reference: Called with the same arguments; every candidate's result must agree with it before it is timed.
            None compares with the default config.
        effort: `quick`, `full`, `exhaustive`, or an `Effort` of your own; None asks `TRITON_OPS_EFFORT`, then takes
            `quick`.
        search: A searcher's name, such as `auto`, `random` or `exhaustive`; a searcher of your own, or a function from
            the space and the seed to one; None takes the effort's.
        trials: Most trials; None takes the effort's.
        budget_s: Most seconds of search; None takes the effort's.
        seed: Of the search's order and the dummy inputs.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.
        force: Search again even if the winner is known; the known one takes part.
        cold: On a GPU, whether L2 holds nothing of the kernel's data when it starts, as in a model.
        isolate: Whether candidates run in a process of their own, where a crash or a hang ends one trial; None isolates
            Triton kernels on a GPU. What cannot be made in another process runs inline, with a warning.
        patience: After how many seconds a trial has hung; None takes the effort's. Inline nothing is ended.
        transfer: Whether records of the same kernel on other problems and devices may guide the search `auto`.
        listener: Hears of the run; None draws a progress bar when stderr is a terminal.

    Returns:
        The winner with its times beside the default's. `from_cache` tells whether it was known.

    Raises:
        KernelTypeError, SpaceError, ShapeMismatchError, UnsupportedDtypeError, DeviceError, SettingsError, CacheError:
            Something does not fit; raised before anything runs.
        TuningFailedError: No config ran; carries every config's reason.
        DeviceError: Inline, a candidate left the process without its GPU; what was tried is kept, and the next call
            goes on.
        KeyboardInterrupt: Ctrl-C before any config ran. Later it ends the search early and returns the best so far;
            the next call goes on where this one stopped.

    Cost: a hit reads one file; a search is bounded by the effort's budget.
    """
    start = time.monotonic()
    plan = chosen_effort(effort, search, trials, budget_s)
    plan = plan if patience is None else replace(plan, patience=patience)
    task = make_task(
        target,
        args,
        kwargs,
        space=space,
        shape=shape,
        dtype=dtype,
        device=device,
        reference=reference,
        seed=seed,
    )
    folder = ensure_folder(settings.cache_dir() if cache_dir is None else cache_dir)
    request = TuneRequest(
        task=task,
        effort=plan,
        default=task.space.default_config,
        key=Key.of(task.problem, task.kernel.identity, task.device, cold=cold),
        seed=seed,
        cold=cold,
        isolate=isolate,
        transfer=transfer,
        folder=folder,
    )
    store = store_in(folder.absolute())
    if not force and (known := _known(request, store)) is not None:
        return result_from(known, task, time.monotonic() - start)
    with cleaned_up_on_sigterm(), _only_one(folder, request.key) as (runs, quarantine):
        if not force and (known := _known(request, store)) is not None:
            return result_from(known, task, time.monotonic() - start)
        return Tuning(
            request=request,
            store=store,
            runs=runs,
            quarantine=quarantine,
            listener=listener or ProgressBar(),
            start=start,
        ).run()


def _known(request: TuneRequest, store: Store[Record]) -> Record | None:
    """The stored winner, if it holds for what is asked."""
    task = request.task
    return recalled(request.key, store, space=task.space, effort=request.effort, reference=task.reference)


@contextmanager
def _only_one(folder: Path, key: Key) -> Iterator[tuple[Runs, Quarantine]]:
    """One tune of a problem at a time, with its run logs and its quarantine.

    A second tune of the problem waits for the first, and finds its winner.
    """
    lock = _lock(folder, key)
    if lock is None:
        _log.warning("%s cannot be written: this tune will be neither stored nor resumable", folder)
        yield Runs(None, key.id), quarantine_of(folder, key)
        return
    try:
        yield Runs(folder, key.id), quarantine_of(folder, key)
    finally:
        lock.release()


def _lock(folder: Path, key: Key) -> BaseFileLock | None:
    """The problem's lock, taken; None where the folder, or the lock in it, is not this user's to write."""
    if not writable(folder):
        return None
    lock = folder_lock(ensure_folder(folder / FOLDER), f"{key.id}.lock")
    try:
        lock.acquire(timeout=0)
    except PermissionError:
        return None
    except Timeout:
        _log.warning("another process is tuning %s; waiting for it", f"{key.kernel} {key.label}".rstrip())
        lock.acquire()
    return lock
