"""Pipelined loops by `num_stages`: when each tile is loaded and used, for a pipeline of a given depth.

With N stages the loop keeps N buffers and issues the load of step i + N - 1 just before it computes step i; with one
stage a load begins when the step before it is computed. Loads of different tiles wait at the same time. Each further
stage costs one more pair of tiles of shared memory, and helps until the units that compute never wait.
"""

from __future__ import annotations

from dataclasses import dataclass

STAGES = (1, 2, 3, 4, 5)
_COLUMNS = 64
_LOADING, _READY, _COMPUTING, _EMPTY = "=", "-", "#", "."
LEGEND = f"{_LOADING} a tile is loaded, {_READY} it waits, {_COMPUTING} it is computed"


@dataclass(frozen=True)
class LoopStep:
    """One step of a pipelined loop; times are in units of one computed step.

    Attributes:
        buffer: Which of the buffers holds its tile.
        issued: When its load is issued.
        loaded: When its tile is there.
        begun: When it is computed.
        done: When that has ended.
    """

    buffer: int
    issued: float
    loaded: float
    begun: float
    done: float


@dataclass(frozen=True)
class Timeline:
    """The first steps of a loop, in order."""

    stages: int
    steps: tuple[LoopStep, ...]

    @property
    def busy(self) -> float:
        """Share of the time in which something is computed, once the pipeline is filled."""
        first, last = self.steps[self.stages - 1], self.steps[-1]
        steps_done = sum(step.done - step.begun for step in self.steps[self.stages :])
        return steps_done / (last.done - first.done)


def timeline(stages: int, *, load: float, steps: int = 0) -> Timeline:
    """The timeline of a loop with a pipeline.

    Args:
        stages: Number of stages, 1 or more.
        load: Time from the issue of a load until its tile is there, in computed steps.
        steps: Number of steps; 0 is as many as show the rhythm.
    """
    done_steps: list[LoopStep] = []
    for at in range(steps or 4 * stages + 4):
        done = done_steps[-1].done if done_steps else 0.0
        issued = done
        if stages > 1:  # just before the step that runs `stages` - 1 steps ahead of it is computed
            issued = done_steps[at - stages + 1].begun if at >= stages - 1 else 0.0
        begun = max(issued + load, done)
        done_steps.append(LoopStep(at % stages, issued, issued + load, begun, begun + 1))
    return Timeline(stages, tuple(done_steps))


def drawn(loop: Timeline, until: float = 16.0) -> list[str]:
    """A timeline as text: one line for each buffer, with time from left to right.

    Args:
        loop: The timeline.
        until: The time at the right end.
    """
    rows = [[_EMPTY] * _COLUMNS for _ in range(loop.stages)]
    scale = _COLUMNS / until
    for step in loop.steps:
        parts = ((_LOADING, step.issued, step.loaded), (_READY, step.loaded, step.begun))
        for mark, begin, end in (*parts, (_COMPUTING, step.begun, step.done)):
            for column in range(round(begin * scale), min(round(end * scale), _COLUMNS)):
                rows[step.buffer][column] = mark
    return ["".join(row) for row in rows]
