"""`tune`: look up the winner of a kernel, a config space and a problem, or start a run that finds it.

A call is the same if its target, arguments as a key tells them, space and options are. What may have changed meanwhile
is asked at every call: the record's file, the identity of the kernel and of the functions that check it, the variables
of the environment that name a folder or an effort, the current GPU, and the number of CPU threads. Anything that is not
plainly the same takes the whole way.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.backend import Arguments, Kernel, Operation, is_kept, not_for_another_process, source_of
from triton_ops.base import Folder, Host
from triton_ops.compilation import SharedCpus
from triton_ops.device import TorchDevice, Turns
from triton_ops.evaluation import Stations
from triton_ops.exceptions import CacheError
from triton_ops.processes import cleaned_up_on_sigterm, fork_servers
from triton_ops.records import (
    RECORDS,
    MemoryStore,
    NotedCall,
    Quarantine,
    Runs,
    cache_folder,
    covers,
    key_of,
    may_have_records,
    recalled,
    store_in,
)
from triton_ops.request import (
    Effort,
    KnownCalls,
    Patience,
    TuneRequest,
    checked_seed,
    chosen_effort,
    make_request,
    with_configs,
)
from triton_ops.search import AnySearch
from triton_ops.space import ConfigSpace
from triton_ops.tuner.gate import Gate
from triton_ops.tuner.progress import Listener, ProgressBar, checked_listener
from triton_ops.tuner.result import result_of
from triton_ops.tuner.tuning import Tuning
from triton_ops.values import Key, Tolerance, TuningResult, check_memory

_MOST = 1_024
_PLAIN = frozenset({bool, int, float, str, type(None)})
_COPIED = ("best_config", "guard", "totals", "all_results")  # that a caller may change


@dataclass(frozen=True)
class _Hit:
    holds: Any
    kernel: Kernel
    identity: dict[str, str]
    checks: tuple[tuple[Callable[..., Any], str], ...]
    path: Path
    stamp: tuple[int, int, int]
    threads: int
    result: TuningResult
    makes_the_same: Callable[[], bool]


_hits = KnownCalls[_Hit](plain=True)
_refused: set[Any] = set()


def call_of(target: Any, args: Any, kwargs: Any, space: Any, options: Mapping[str, Any]) -> Any:
    """The place of a call in this process; None if it cannot be told in a moment."""
    if (listed := _space(space)) is None:
        return None
    where = (*settings.named_folder_and_effort(), TorchDevice.current_name())
    return _hits.place(args, kwargs or {}, id(target), listed, *options.values(), where)


def hit(call: Any, start: float) -> TuningResult | None:
    """The result of an equal call before; None if there is none that holds."""
    entry = _hits.get(call)
    if entry is None:
        return None
    if (
        _stamp(entry.path) != entry.stamp
        or entry.kernel.identity != entry.identity
        or any(source_of(check).fingerprint != fingerprint for check, fingerprint in entry.checks)
        or Host.cpu_threads() != entry.threads
        or not entry.makes_the_same()
    ):
        _hits.pop(call, None)
        return None
    result = object.__new__(TuningResult)
    result.__dict__.update(entry.result.__dict__)
    for name in _COPIED:
        result.__dict__[name] = entry.result.__dict__[name].copy()
    result.__dict__["elapsed_s"] = time.monotonic() - start
    return result


def remember(
    call: Any,
    target: Any,
    space: Any,
    kernel: Kernel,
    checks: Sequence[Callable[..., Any]],
    path: Path,
    result: TuningResult,
    makes_the_same: Callable[[], bool],
) -> None:
    """Keep what a call has found on disk.

    `target` and `space` are kept as long as the hit, so that no other object gets their places. The identity of
    `kernel` and the meaning of `checks` must stay equal, and `makes_the_same` true.
    """
    stamp = _stamp(path)
    if stamp is None:
        return
    if call in _refused:
        return
    sources = [(check, source_of(check)) for check in checks]
    if not all(map(is_kept, checks)):  # to read them again at each call takes longer than the whole way
        if len(_refused) >= _MOST:
            _refused.clear()
        _refused.add(call)
        return
    fingerprints = tuple((check, source.fingerprint) for check, source in sources)
    entry = _Hit(
        (target, space), kernel, dict(kernel.identity), fingerprints, path, stamp, Host.cpu_threads(), result,
        makes_the_same,
    )  # fmt: skip
    _hits.keep(call, entry)


def _space(space: Any) -> Any:
    """What tells a space from others in a moment; None if nothing does."""
    if space is None or isinstance(space, ConfigSpace):
        return id(space)
    if type(space) is dict:
        values = [space[name] for name in space]
        if all(type(each) in (list, tuple) and _PLAIN.issuperset(map(type, each)) for each in values):
            return repr(space)
    return None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a third of the time of `Path.stat`
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def checked_of(target: Any, *checks: Callable[..., Any] | None) -> list[Callable[..., Any]]:
    """The functions beside the kernel that must stay equal: checks, and what makes an operation's space."""
    own = (target.space,) if isinstance(target, Operation) else ()
    return [each for each in (*checks, *own) if each is not None and not isinstance(each, ConfigSpace)]


def release_processes() -> None:
    """End the processes that tunes of this process have left idle, and free their memory on the GPU.

    A tune leaves its worker process, at most one for a device, and the process that starts its compilers, at most two,
    to the next tune, which then need not import torch and Triton again. They end by themselves after 15 s, when this
    process ends, and here. Processes that a tune uses now are left alone.

    Cost: some milliseconds for each process.
    """
    Stations.drop_idle()
    fork_servers.drop_idle()


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
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
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
    wait: bool = True,
    keep: bool = True,
    listener: Listener | None = None,
) -> TuningResult:
    """Find the fastest config of `target` for one problem, or recall it.

    The arguments are either the caller's (`args`, `kwargs`) or dummy tensors made from an operation's `shape` and
    `dtype`, uniform in [-1, 1]. The caller's tensors, NumPy arrays, lists, dicts, sets and bytearrays are copied, so
    that no candidate can damage them, and restored before every launch if launches change them. Objects of other
    classes are passed as they are.

    Args:
        target: An `Operation`, a `FunctionKernel`, a `TritonKernel`, or a callable that takes config values as
            keywords.
        args: Positional arguments of every call of the kernel.
        kwargs: Keyword arguments of every call of the kernel.
        space: Name to values, a list of configs or `triton.Config`, or a `ConfigSpace`; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda`, which is torch's current GPU, or `cuda:N`; None follows the arguments, then the
            operation, then takes the current GPU if there is any.
        reference: A function that is called with the same arguments; a candidate is timed only if its result agrees
            with that of the function. None compares with the default config's result.
        tolerance: How far a right result may be from the expected one: a number is the largest error of an element,
            relative to its size plus the result's root mean square; a `Tolerance` can say more. None takes the
            operation's, else the rule for verdicts.
        check: An own comparison, `check(result, expected)`, that returns True for a right result, in place of the rule;
            it is given tuples where there are several results. None takes the operation's, if any.
        effort: `quick`, `full`, `exhaustive`, or an own `Effort`; None takes `TRITON_OPS_EFFORT`, else `quick`.
        search: A searcher's name, such as `auto`, `random` or `exhaustive`; an own searcher, or a function that makes
            one from the config space and the seed; None takes the effort's.
        trials: The limit of trials; None takes the effort's.
        budget_s: The limit of seconds for the whole tune, the last comparison included, less what a step that has
            begun may still take; None takes the effort's.
        seed: The seed of the search's order and of the dummy tensors.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.
        force: Whether to search even if the winner is known; the known winner is tried again.
        cold: On a GPU, whether L2 holds none of the kernel's data when a launch starts, as in a real model.
        isolate: Whether candidates run in a separate process, where a crash or a hang ends one trial; None isolates
            Triton kernels on a GPU. A kernel that cannot be sent to another process runs inline, with a warning; one
            with an argument that holds addresses of memory is not tuned unless this is False.
        patience: The seconds after which a trial counts as hung; None takes the effort's. Inline no trial is ended.
        transfer: Whether records of the same kernel on other problems and devices may guide the search `auto`.
        wait: Whether to wait for other processes that measure on the same GPU; False raises a `DeviceError` if one
            does when the tune begins to measure. Later measurements take turns in any case.
        keep: Whether the cache folder is used. False recalls nothing, learns from no record, and writes no file, so
            that an interrupted tune cannot be resumed; of the folder only a device's calibration is read.
        listener: Is told of the run's events; None draws a progress bar if stderr is a terminal.

    Returns:
        The winner with its times and the default's. `from_cache` says whether the winner was known. One that is
        `unproven`, since a budget left nothing to compare, is gone on with by the next call.

    Raises:
        KernelTypeError, SpaceError, ShapeMismatchError, UnsupportedDtypeError, DeviceError, SettingsError, CacheError:
            An argument does not fit; raised before anything runs.
        TargetError: An argument holds addresses of memory, and configs would be tried in another process.
        TargetError: The reference raises, or gives another result each time; the check raises, returns no bool, or
            refuses the expected result.
        TuningFailedError: No config ran; the error holds the reason for every config.
        DeviceError: Inline, a candidate made the GPU unusable for this process; finished trials are kept, and the next
            call resumes the run.
        KeyboardInterrupt: Ctrl-C before any config ran. Later Ctrl-C ends the search early and returns the best so far;
            the next call resumes the run.

    Cost: one file is read if the winner is known; otherwise the effort's budget limits the tune. Its worker process and
        what starts its compilers stay for 15 s, for the next tune; `release_processes` ends them.
    """
    start, seed, listener = time.monotonic(), checked_seed(seed), checked_listener(listener)
    problem: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "device": device,
        "reference": reference,
        "tolerance": tolerance,
        "check": check,
    }
    options = {
        **problem, "effort": effort, "search": search, "trials": trials, "budget_s": budget_s, "cold": cold,
        "cache_dir": cache_dir,
    }  # fmt: skip
    call = None if force or not keep or patience is not None else call_of(target, args, kwargs, space, options)
    if call is not None and (result := hit(call, start)) is not None:
        return result
    plan = chosen_effort(effort, search, trials, budget_s)
    plan = plan if patience is None else replace(plan, patience=patience)
    callers, (target, space) = (target, space), with_configs(target, space)
    for tensor in Arguments.given(args, kwargs).tensors():
        check_memory(tensor, "an argument")
    request = make_request(target, args, kwargs, seed=seed, **problem)
    result = tune_request(
        request, request.space(space), plan, cache_dir=cache_dir, seed=seed, force=force, cold=cold, isolate=isolate,
        transfer=transfer, wait=wait, keep=keep, listener=listener, start=start, reuse=True,
    )  # fmt: skip
    if call is not None and result.from_cache:
        path = Path(cache_folder(cache_dir)) / RECORDS.file_name(key_of(request, cold=cold).id)
        checks = checked_of(callers[0], request.reference, request.check)
        same = partial(request.named.makes, request.problem) if request.named is not None else lambda: True
        remember(call, *callers, request.kernel, checks, path, result, same)
    return result


def uninterrupted(result: TuningResult) -> TuningResult:
    """The result of a tune that is a step of something longer, which Ctrl-C ends by a `KeyboardInterrupt`."""
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result


def tune_request(
    request: TuneRequest,
    space: ConfigSpace,
    plan: Effort,
    *,
    cache_dir: str | Path | None = None,
    seed: int = 0,
    force: bool = False,
    cold: bool = True,
    isolate: bool | None = None,
    transfer: bool = True,
    wait: bool = True,
    keep: bool = True,
    listener: Listener | None = None,
    start: float | None = None,
    key: Key | None = None,
    reuse: bool = False,
    call: NotedCall | str | None = None,
    gate: Gate | None = None,
    shared_cpus: SharedCpus | None = None,
) -> TuningResult:
    """Find the fastest config for a request that is checked already, or recall it.

    `tune` describes the parameters that it has too. `start` is the time of the call by `time.monotonic`. With `reuse`,
    processes of tunes before may serve, and are left to the next for some seconds. `call` is the call of a decorated
    kernel, which the record keeps, or why it cannot be made again. `gate` lets this tune have its device, and may end
    it; None has the device at once. `shared_cpus` are the CPUs that the compilers share with those of other tunes.
    """
    start = time.monotonic() if start is None else start
    key = key_of(request, cold=cold) if key is None else key
    folder = cache_folder(cache_dir)

    forced = force or not keep
    known = partial(known_result, request, space, plan, key, cache_dir=folder, force=forced, start=start)
    if (result := known()) is not None:
        return result
    stations = Stations(problem=request, isolate=isolate, reuse=reuse, turns=Turns(request.device_name, wait))
    _check_addresses(request, stations)
    task, own_folder = request.task(space), Folder(folder).ensure() if keep else Path(folder)
    with cleaned_up_on_sigterm(), _only_one(own_folder if keep else None, key) as (runs, quarantine):
        if (result := known()) is not None:
            return result
        return Tuning(
            task=task,
            effort=plan,
            key=key,
            seed=seed,
            cold=cold,
            stations=stations,
            transfer=transfer and keep,
            folder=own_folder,
            store=store_in(folder) if keep else MemoryStore(RECORDS),
            runs=runs,
            quarantine=quarantine,
            listener=listener or ProgressBar(),
            start=start,
            keep=keep,
            gate=gate,
            call=call,
            shared_cpus=shared_cpus,
            anew=force,
        ).run()


def _check_addresses(request: TuneRequest, stations: Stations) -> None:
    """Refuse arguments that hold addresses where configs are tried in another process; else say what is not checked."""
    names = ", ".join(request.addresses)
    if names and stations.isolated:
        raise not_for_another_process(f"{names} of {request.kernel.name}")
    if names:
        _log.warning(
            "what %s writes by the addresses in %s is neither checked nor restored", request.kernel.name, names
        )


def known_result(
    request: TuneRequest,
    space: ConfigSpace,
    plan: Effort,
    key: Key,
    *,
    cache_dir: str | Path | None = None,
    force: bool = False,
    start: float | None = None,
) -> TuningResult | None:
    """The result of a request whose winner is known; None if it is not, or if a search is asked for in any case."""
    folder, start_s = cache_folder(cache_dir), time.monotonic() if start is None else start
    if force or not may_have_records(folder):
        return None
    record = recalled(
        key, store_in(folder), space=space, enough=partial(covers, effort=plan), reference=request.reference
    )
    if record is None:
        return None
    return result_of(record, request, time.monotonic() - start_s, members=space.members)


@contextmanager
def _only_one(folder: Path | None, key: Key) -> Iterator[tuple[Runs, Quarantine]]:
    """The run logs and the quarantine of a problem, for one tune at a time; a second one finds its winner."""
    if folder is None:
        yield Runs(None, key.id), Quarantine(None)
        return
    place = folder / Runs.FOLDER
    if not _make_folder(folder, place):
        yield Runs(None, key.id), Quarantine.of(folder, key)
        return

    def waiting() -> None:
        _log.warning("another process is tuning %s; waiting for it", f"{key.kernel} {key.label}".rstrip())

    with Folder(place).locked(f"{key.id}.lock", waiting=waiting) as lock:
        yield Runs(folder, key.id, resumed=lock), Quarantine.of(folder, key)


def _make_folder(folder: Path, place: Path) -> bool:
    """Make the folder of run logs; False if it cannot be written, or if another user has placed it."""
    if not Folder(folder).writable:
        _log.warning("%s cannot be written: this tune will be neither stored nor resumable", folder)
        return False
    try:
        Folder(Folder(place).within(folder)).ensure()
    except (OSError, CacheError) as error:
        reason = getattr(error, "strerror", None) or error
        _log.warning("%s is ignored, so that this tune cannot be resumed: %s; move it away", place, reason)
        return False
    return True
