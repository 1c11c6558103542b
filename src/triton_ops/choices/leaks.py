"""Whether calls of a function keep memory: what is alive after several calls, more after each, is a leak."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import is_tensor

_CALLS, _LOOKS = 2, 3


def kept_by_a_call(call: Callable[[], Any], device: str) -> int:
    """Bytes of tensors that every call keeps; 0 if none does. The call must have been warmed up.

    On a GPU the allocator of torch is asked. On a CPU the tensors that Python knows are added up, each storage once.

    Cost: six calls. On a CPU two calls, after which no new tensor is alive; only where one is, six further calls, and
    four walks over the objects of the process, tens of milliseconds to seconds each.
    """
    on_gpu = device.startswith("cuda")
    if not on_gpu and _leaves_no_tensor(call):
        return 0
    held = _on_gpu if on_gpu else _on_cpu
    seen = [held(device)]
    for _ in range(_LOOKS):
        for _ in range(_CALLS):
            call()
        seen.append(held(device))
    grown = [after - before for before, after in itertools.pairwise(seen)]
    return min(grown) // _CALLS if min(grown) > 0 else 0


def _leaves_no_tensor(call: Callable[[], Any]) -> bool:
    """Whether no tensor that a few calls made is alive after them: Python's youngest objects are looked at alone.

    While nothing is collected, what is made is among the youngest. A collection meanwhile, by the call or by another
    thread, leaves the question open.
    """
    gc.collect(0)
    enabled, collections = gc.isenabled(), _collections()
    gc.disable()
    try:
        for _ in range(_CALLS):
            call()
        return collections == _collections() and not any(map(_is_a_tensor, gc.get_objects(generation=0)))
    finally:
        if enabled:
            gc.enable()


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _is_a_tensor(it: object) -> bool:
    kind = type(it)  # `isinstance` would ask objects for their class, which wakes lazy modules
    return kind.__name__ in ("Tensor", "Parameter") and is_tensor(it)


def _on_gpu(device: str) -> int:
    return int(require("torch", "looking for leaks").cuda.memory_allocated(device))


def _on_cpu(_device: str) -> int:
    gc.collect()
    storages: dict[int, int] = {}
    for each in gc.get_objects():
        if _is_a_tensor(each) and str(each.layout) == "torch.strided":
            try:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
            except (RuntimeError, NotImplementedError):  # a tensor without memory, such as a fake one
                continue
    return sum(storages.values())
