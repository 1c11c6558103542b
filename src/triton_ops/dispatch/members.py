"""The problems of one bucket: each takes the bucket's winner only where it may, and what a lockfile pins for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from triton_ops.dispatch.configs import to_triton
from triton_ops.dispatch.deciding import KernelCall, known
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.policy import within
from triton_ops.dispatch.sources import ladder_of
from triton_ops.exceptions import TritonKernelError


class Members:
    """What became of the decision of a bucket at each of its problems.

    Args:
        most: So many are kept; then all are looked at again.
    """

    def __init__(self, most: int) -> None:
        self._most, self._seen = most, dict[tuple[str, ...], tuple[Decision, Decision]]()

    def of(self, decision: Decision, problem: tuple[str, ...], call_of: Callable[[], KernelCall]) -> Decision:
        """The decision for one problem of a bucket: the bucket's own, unless its config cannot be taken here.

        Args:
            decision: The bucket's.
            problem: Equal for equal problems.
            call_of: Describes the call; it is asked once for each problem.
        """
        seen = self._seen.get(problem)
        if seen is not None and seen[0] is decision and seen[1].holds(within):
            return seen[1]
        found = _at(decision, call_of())
        if len(self._seen) >= self._most:
            self._seen.clear()
        self._seen[problem] = (decision, found)
        return found


def _at(decision: Decision, call: KernelCall) -> Decision:
    """The decision for a call: nothing is tuned for it, since its bucket was."""
    try:
        refused = call.space.why_not(decision.found.config)
        if refused is None and ladder_of(call.options.cache_dir).lockfile is None:
            return decision
        here = known(call)
        here = replace(here, config=here.config or to_triton(here.found.config, call.configs or (), call.space.members))
    except TritonKernelError:  # such a call was decided without a description, and its bucket with it
        return decision
    if refused is None:
        return decision if here.missed or here.found.config == decision.found.config else here
    why = f"{decision.found.rung}: the config ({decision.found.config}) of its bucket cannot be taken here: {refused}"
    return replace(here, passed=(why, *here.passed))
