"""The early start of what a first tune needs, for kernels that may tune.

The imports of a worker are most of what a first tune takes. So one starts when a kernel is decorated that tunes and has
no record. Compilers start once the process uses a GPU, and then the worker too if none was started: many records are
read only then, since many processes import kernels and launch none.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial

from triton_ops import dispatch
from triton_ops.backend import Layers
from triton_ops.dispatch.ladder import RACE, TUNE, pinned, policy_of
from triton_ops.exceptions import TritonKernelError
from triton_ops.records import begin_sources, may_have_records, store_in
from triton_ops.request import TuneOptions
from triton_ops.settings import cache_folder, starters

_MOST_RECORDS = 50  # that are read when a kernel is decorated: 0.5 ms each

_awaited: dict[str, tuple[str | None, TuneOptions]] = {}  # by name the kernels that may tune, before a GPU is used


def await_tune(kernel: object, on_miss: str | None, options: TuneOptions) -> None:
    """Have a worker started, now or once this process uses a GPU, if a launch of the kernel may be the first to tune.

    None is any kernel. What the environment names by URL is fetched from now on. Processes that this package has
    started do neither.
    """
    if starters():
        return
    begin_sources()
    # `_lazy_call` is private: nothing public of torch's tells when CUDA starts.
    if (call_then := getattr(getattr(sys.modules.get("torch"), "cuda", None), "_lazy_call", None)) is not None:
        function = Layers.unwrap(kernel) if kernel is not None else None
        name = "" if function is None else f"{function.__module__}:{function.__name__}"
        is_first, _awaited[name] = not _awaited, (on_miss, options)
        if may_tune(name, on_miss, options, most_records=_MOST_RECORDS):
            dispatch.start_worker()
        if is_first:
            call_then(partial(_uses_gpu, os.getpid()))  # at once if a GPU is used already


def _uses_gpu(pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        with suppress(RuntimeError):  # no thread is left, and torch would raise it
            threading.Thread(target=_start_early, name="triton-ops early start", daemon=True).start()


def _start_early() -> None:
    if any(may_tune(name, *each) and dispatch.start_worker() for name, each in tuple(_awaited.items())):
        dispatch.start_compilers()


def may_tune(kernel: str, on_miss: str | None, options: TuneOptions, *, most_records: int | None = None) -> bool:
    """Tell whether launches of a kernel tune and no record of it is there; an empty name is that of any.

    False where there are more than `most_records`, of any kernels.
    """
    with suppress(TritonKernelError, OSError):  # the launch that meets it again says so
        tunes = policy_of(on_miss, TUNE) in (TUNE, RACE) and not options.settled().expected_gain and not pinned()
        folder = cache_folder(options.cache_dir) if tunes and options.isolate is not False else None
        records = store_in(folder) if folder and may_have_records(folder) else ()
        return bool(folder) and not any(
            kernel in it.key.kernel or number == most_records for number, it in enumerate(records)
        )
    return False
