"""Arguments that hold addresses of memory, as grouped products take them: in another process they mean nothing.

Fact used, of torch 2.4 and later: `torch.cuda.memory_snapshot()` lists segments with their `address`, each with its
`blocks` by rising address; the `state` of one begins with `active` while somebody holds it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from triton_ops.backend.containers import is_tensor, tensors_in
from triton_ops.backend.roles import Arguments
from triton_ops.base import require
from triton_ops.exceptions import TargetError

_LEAST = 1 << 32  # no memory of a GPU begins below, and few sizes or indices are as large
_MOST_VALUES = 4096  # of a tensor that are looked at
_DTYPES = {"torch.int64", "torch.uint64"}


def not_for_another_process(holder: str) -> TargetError:
    """The error where another process would be given addresses; `holder` says in words what holds them."""
    return TargetError(
        f"the addresses in {holder} are of this process's memory, and configs are tried in another one",
        hint="isolate=False (--inline) tries them in this process, where they write what the addresses name",
    )


def names_of_addresses(arguments: Arguments) -> list[str]:
    """The names of the arguments that hold addresses of this process's memory on a GPU, as tensors or as numbers.

    Cost: a copy of some values of each tensor of 64-bit integers; where one of them is large, also a list of what torch
    has allocated, which takes milliseconds.
    """
    items = {f"argument {place}": value for place, value in enumerate(arguments.positional)} | {**arguments.keyword}
    return [name for name, value in items.items() if any(map(_is_address, tensors_in([value], _may_be_address)))]


def _may_be_address(value: Any) -> bool:
    return is_tensor(value) or (type(value) is int and value >= _LEAST)


def _is_address(value: Any) -> bool:
    return holds_addresses(value) if is_tensor(value) else value in _starts(allocated())


def holds_addresses(tensor: Any) -> bool:
    """Tell whether a torch tensor holds addresses of memory that torch has allocated on a GPU of this process.

    All values but zeros lie in such memory then; or one is where a piece of it begins, as in a table in which sizes
    stand beside addresses. While a CUDA graph is captured nothing can be read, and the answer is no.
    """
    cuda = require("torch", "looking for addresses").cuda
    if str(tensor.dtype) not in _DTYPES or (cuda.is_initialized() and cuda.is_current_stream_capturing()):
        return False
    most = max(1, int(_MOST_VALUES ** (1 / max(tensor.ndim, 1))))
    values = tensor.detach()[(slice(most),) * tensor.ndim].cpu().flatten().tolist()
    if max(values, default=0) < _LEAST or not (pieces := allocated()):
        return False
    starts = _starts(pieces)
    return not set(starts).isdisjoint(values) or all(
        value in pieces[bisect_right(starts, value) - 1] for value in values if value
    )


def _starts(pieces: Sequence[range]) -> list[int]:
    return [piece.start for piece in pieces]


def allocated() -> list[range]:
    """The addresses of each piece of memory that torch has handed out on a GPU, by rising address."""
    cuda = require("torch", "looking for addresses").cuda
    if not cuda.is_initialized():
        return []
    try:
        segments = cuda.memory_snapshot()
    except RuntimeError:  # an allocator that the program brings keeps no list
        return []
    pieces = []
    for segment in segments:
        start = segment["address"]
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                pieces.append(range(start, start + block["size"]))
            start += block["size"]
    return sorted(pieces, key=lambda piece: piece.start)
