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

    Cost: six calls, and on a CPU three walks over the objects of the process, some ten milliseconds each.
    """
    held = _on_gpu if device.startswith("cuda") else _on_cpu
    seen = [held(device)]
    for _ in range(_LOOKS):
        for _ in range(_CALLS):
            call()
        seen.append(held(device))
    grown = [after - before for before, after in itertools.pairwise(seen)]
    return min(grown) // _CALLS if min(grown) > 0 else 0


def _on_gpu(device: str) -> int:
    return int(require("torch", "looking for leaks").cuda.memory_allocated(device))


def _on_cpu(_device: str) -> int:
    gc.collect()
    storages: dict[int, int] = {}
    for each in gc.get_objects():
        kind = type(each)  # `isinstance` would ask objects for their class, which wakes lazy modules
        if kind.__name__ in ("Tensor", "Parameter") and is_tensor(each) and str(each.layout) == "torch.strided":
            try:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
            except (RuntimeError, NotImplementedError):  # a tensor without memory, such as a fake one
                continue
    return sum(storages.values())
