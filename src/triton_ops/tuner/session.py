"""`tune`: look up the winner of a kernel, a config space and a problem, or start a run that finds it.

A call is the same if its target, arguments as a key tells them, space and options are. What may have changed meanwhile
is asked at every call: the record's file, the identity of the kernel and of the functions that check it, the variables
of the environment that name a folder or an effort, the current GPU, and the number of CPU threads. Anything that is not
plainly the same takes the whole way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_ops import settings, values
from triton_ops.backend import Kernel, Operation, Source
from triton_ops.base import Host, StoredFile
from triton_ops.device import TorchDevice
from triton_ops.evaluation import drop_idle_workers
from triton_ops.processes import fork_servers
from triton_ops.records import RECORDS
from triton_ops.request import Effort, KnownCall, KnownCalls, Patience, TuneOptions, TuneProblem
from triton_ops.search import AnySearch
from triton_ops.space import ConfigSpace
from triton_ops.tuner.progress import Listener, checked_listener
from triton_ops.tuner.tuning import RequestedTune
from triton_ops.values import Tolerance, TuningResult

_hits = KnownCalls[KnownCall | None](plain=True)
"""What calls have found on disk; None for one whose checks take longer to read than the whole way."""


def call_of(problem: TuneProblem, options: TuneOptions) -> Any:
    """The place of a call in this process; None if it cannot be told in a moment."""
    space = problem.space
    listed = id(space) if space is None or isinstance(space, ConfigSpace) else ConfigSpace.text_of(space)
    if not isinstance(problem.args, (tuple, list)) or listed is None:
        return None  # whatever else `args` is, a generator say, is refused before it is iterated over
    rest = problem.shape, problem.dtype, problem.device, problem.reference, problem.tolerance, problem.check
    bits = problem.same_bits_as if isinstance(problem.same_bits_as, (str, type(None))) else str(problem.same_bits_as)
    where = (*settings.named_folder_and_effort(), TorchDevice.current_name())
    # Ids stay those of these objects, since `remember` keeps target and space as long as the hit.
    more = id(problem.target), listed, *rest, problem.cold, bits, options, where
    return _hits.place(problem.args, {} if problem.kwargs is None else problem.kwargs, *more)


def hit(call: Any, start: float) -> TuningResult | None:
    """The result of an equal call before; None if there is none that holds."""
    if (entry := _hits.get(call)) is None:
        return None
    if not entry.holds:
        _hits.pop(call, None)
        return None
    result: TuningResult = entry.run()
    return replace(result, elapsed_s=time.monotonic() - start)


def remember(problem: TuneProblem, requested: RequestedTune, result: TuningResult) -> None:
    """Keep what a call has found on disk.

    The target and the space of the problem are kept as long as the hit, so that no other object gets their places. The
    identity of the kernel and the meaning of what checks it must stay equal, and an operation make the same problem.
    """
    request, target, call = requested.request, problem.target, call_of(problem, requested.options)
    file = StoredFile(Path(requested.folder) / RECORDS.file_name(requested.key.id))
    if call is None or call in _hits or not file.state:
        return
    beside = request.reference, request.check, target.space if isinstance(target, Operation) else None
    checks = [each for each in beside if each is not None and not isinstance(each, ConfigSpace)]
    kernel, generated = request.kernel, request.generated  # and not the request, which has the caller's tensors

    def state() -> Any:
        fingerprints = [Source.of(check).fingerprint for check in checks]
        stays = generated is None or generated.stays()
        return stays and (file.state, dict(kernel.identity), fingerprints, Host.cpu_threads())

    answer, own = state(), replace(result)  # shares nothing that the caller of this call may change
    known = KnownCall(lambda: own, ask=state, answer=answer, decision=(target, problem.space))
    _hits.keep(call, known if all(map(Source.is_kept, checks)) else None)


def release_processes() -> None:
    """End the processes that tunes of this process have left idle, and free their memory on the GPU.

    A tune leaves its worker process, at most one for a device, and the process that starts its compilers, at most two,
    to the next tune, which then need not import torch and Triton again. They end by themselves after 15 s, when this
    process ends, and here. Processes that a tune uses now are left alone.

    Cost: some milliseconds for each process.
    """
    drop_idle_workers()
    fork_servers.drop_idle()


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
    contents: values.Contents | Sequence[tuple[float, Any]] | None = None,
    same_bits_as: str | Mapping[str, Any] | None = None,
    isolate: bool | None = None,
    patience: Patience | None = None,
    transfer: bool = True,
    wait: bool = True,
    keep: bool = True,
    memory_bytes: int | str | None = None,
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
        effort: `expected`, `race`, `quick`, `full`, `exhaustive`, or an own `Effort`; None takes `TRITON_OPS_EFFORT`,
            else `quick`.
        search: A searcher's name, such as `auto`, `random` or `exhaustive`; an own searcher, or a function that makes
            one from the config space and the seed; None takes the effort's.
        trials: The limit of trials; None takes the effort's.
        budget_s: The limit of seconds for the whole tune, the last comparison included, less what a step that has
            begun may still take; None takes the effort's.
        seed: The seed of the search's order and of the dummy tensors.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.
        force: Whether to search even if the winner is known; the known winner is tried again.
        cold: On a GPU, whether L2 holds none of the kernel's data when a launch starts, as in a real model.
        contents: Pairs of a weight and a content of some tensor arguments, over which configs are compared, as of
            `Contents`; None compares on the arguments as they are.
        same_bits_as: `default`, or a config, which then is the default: only configs run whose compiled code gives the
            same bits as this one, and their results are compared with its own bit by bit. For Triton kernels on GPUs of
            NVIDIA; anything else has no code that tells, and raises a `SettingsError`. Where the code of this config
            does not tell, as with atomic additions, it alone runs. `lockfile` asks for the class that the lockfile in
            use names for this kernel, whatever its device, versions and extents; if none of the default, the winner
            that is pinned and 32 more configs is of that class here, the default alone runs, with a warning.
        isolate: Whether candidates run in a separate process, where a crash or a hang ends one trial; None isolates
            Triton kernels on a GPU. A kernel that cannot be sent to another process runs inline, with a warning; one
            with an argument that holds addresses of memory is not tuned unless this is False.
        patience: The seconds after which a trial counts as hung; None takes the effort's. Inline no trial is ended.
        transfer: Whether records of the same kernel on other problems and devices may guide the search `auto`.
        wait: Whether to wait for other processes that measure on the same GPU; False raises a `DeviceError` if one
            does when the tune begins to measure. Later measurements take turns in any case.
        keep: Whether the cache folder is used. False recalls nothing, learns from no record, and writes no file, so
            that an interrupted tune cannot be resumed; of the folder only a device's calibration is read. It is
            False, with a warning, where the folder cannot be made.
        memory_bytes: The most memory that a tune takes of its GPU, or else of the host, beyond what is held before it:
            a number of bytes, or a text such as `2 GiB`; None takes `TRITON_OPS_MEMORY`, else has no limit.
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
        LockfileError: `same_bits_as` is `lockfile`, and none is in use, or it names no class for such a problem.
        TuningFailedError: No config ran; the error holds the reason for every config.
        UntunedError: No model is sure of the gain that the effort asks for, as `expected` does; nothing was measured.
        UntunedError: The memory that may be taken is not enough; the error says how much is, and launches run the
            default.
        DeviceError: Inline, a candidate made the GPU unusable for this process; finished trials are kept, and the next
            call resumes the run.
        KeyboardInterrupt: Ctrl-C before any config ran. Later Ctrl-C ends the search early and returns the best so far;
            the next call resumes the run.

    Cost: one file is read if the winner is known; otherwise the effort's budget limits the tune. Its worker process and
        what starts its compilers stay for 15 s, for the next tune; `release_processes` ends them.
    """
    start, listener = time.monotonic(), checked_listener(listener)
    options = TuneOptions(
        effort=effort, search=search, trials=trials, budget_s=budget_s, seed=seed, cache_dir=cache_dir, force=force,
        isolate=isolate, patience=patience, transfer=transfer, wait=wait, keep=keep, memory_bytes=memory_bytes,
    )  # fmt: skip
    problem = TuneProblem(
        target=target, args=args, kwargs=kwargs, space=space, shape=shape, dtype=dtype, device=device,
        reference=reference, tolerance=tolerance, check=check, cold=cold, contents=contents, same_bits_as=same_bits_as,
    )  # fmt: skip
    repeats = keep and not force and patience is None and contents is None and same_bits_as != "lockfile"
    if repeats and _hits and (result := hit(call_of(problem, options), start)) is not None:
        return result
    request = problem.measurable(seed=options.seed)
    requested = RequestedTune(request=request, options=options, listener=listener, start=start)
    result = requested.result()
    if repeats and result.from_cache:
        remember(problem, requested, result)
    return result
