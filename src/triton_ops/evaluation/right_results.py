"""Results that were judged and are right: what has their bits is right too.

Many configs of a kernel add up in the same order, so that their results are equal bit for bit. To compare bits reads
each element twice; to judge it takes ten times that, in float64.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from triton_ops.backend import is_tensor
from triton_ops.evaluation.dense import same_bits_of
from triton_ops.evaluation.parts import kept
from triton_ops.hardware.state import free_bytes_of

_MOST = 3  # orders of adding up that are common in one space
_KINDS = ("cpu", "cuda")  # of devices whose free memory is told
_MEMORY_SHARE = 1 / 64  # of the free memory: a copy that takes more is not kept


class RightResults:
    """The last results of one case that were judged and are right. Only results that are all tensors are kept."""

    def __init__(self) -> None:
        self._kept: deque[list[Any]] = deque(maxlen=_MOST)

    def hold(self, results: Sequence[Any]) -> bool:
        """Whether some results have the bits of kept ones."""
        if not all(is_tensor(each) for each in results):
            return False
        for place, right in enumerate(self._kept):
            if len(right) == len(results) and all(map(same_bits_of, results, right)):
                del self._kept[place]
                self._kept.appendleft(right)
                return True
        return False

    def keep(self, results: Sequence[Any]) -> None:
        """Keep a copy of results that are right, in place of those that were met least lately."""
        if all(is_tensor(each) and each.device.type in _KINDS for each in results) and _fit(results):
            self._kept.appendleft([kept(each) for each in results])


def _fit(results: Sequence[Any]) -> bool:
    """Whether there is room for a copy of some tensors."""
    counts: Counter[str] = Counter()
    for each in results:
        counts[str(each.device)] += each.numel() * each.element_size()
    return all(count <= _MEMORY_SHARE * free_bytes_of(device) for device, count in counts.items())
