"""The expectation of a model: which config it takes for the fastest, and how much faster than the default.

The first picks are compiled beside the default. The model then goes by what the compiler made of both, and speaks only
if they are far enough apart. It knows no calibration of this machine: all processes of a job expect the same.
"""

from __future__ import annotations

import math
from concurrent.futures import wait
from dataclasses import dataclass

from triton_ops.compilation import CompilePool
from triton_ops.device import Machine
from triton_ops.exceptions import UntunedError
from triton_ops.request import Effort, Task
from triton_ops.search import Prior, UsesPreviews, make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.priors import Survey, coming_priors
from triton_ops.tuner.proposals import Previews
from triton_ops.values import Status, Trial


@dataclass(frozen=True)
class Expectation:
    """The default and the config that is expected to be faster, and in words how much."""

    pair: ConfigSpace
    text: str

    @classmethod
    def of(cls, task: Task, effort: Effort, pool: CompilePool | None, survey: Survey | None = None) -> Expectation:
        """The expectation for a task; raises UntunedError, with the reason, unless the effort's gain is expected.

        A `survey` of one's own is for what no launch waits for: all of the effort's previews are compiled then, however
        few processes compile. Cost: what a survey of the kernel takes, and the compilation of the previews.
        """
        if pool is None:
            raise _unsure(task, "it is not compiled ahead, so that no model can read it")
        pool.submit(task.space.default_config, anyway=True, spare=True)
        if not (priors := coming_priors(task, None, pool, trials=1, survey=survey).result()):
            raise _unsure(task, "no model has a forecast of its configs on this device")
        previews = effort.previews if survey is not None else min(effort.previews, pool.workers)
        pick = _first_pick(task, previews, pool, priors)
        pair = task.space.default_config, task.space.default_config if pick is None else pick
        default, first = (pool.submit(config, anyway=True).result() for config in pair)
        too_large = default.status is Status.RESOURCES
        able = first.launchable and first.resources is not None and (default.launchable or too_large)
        if pair[0] == pair[1] or not able:
            raise _unsure(task, "the model's first pick is the default itself, or the compiler has refused one of both")
        not_run = Status.DEFERRED
        priors[0].tell([Trial(one.config, not_run, resources=one.resources) for one in (default, first)])
        default_ms, pick_ms = priors[0].score(pair)
        beside = f"{default_ms:.3g} ms of the default"
        if too_large:
            default_ms, beside = math.inf, f"no launch of the default, which {default.reason}"
        text = f"expects {pick_ms:.3g} ms of ({pick}) and {beside}"
        if not (math.isfinite(pick_ms) and default_ms >= (1 + effort.expected_gain) * pick_ms):
            raise _unsure(task, f"the model {text}, and is sure from {effort.expected_gain:.0%} on")
        return cls(ConfigSpace.from_configs(pair), f"a model of the work, which {text}")


def _first_pick(task: Task, most: int, pool: CompilePool, priors: list[Prior]) -> Config | None:
    """The first pick of a model that can be launched and does not spill; None if there is none."""
    searcher = make_searcher("ranked", task.space, priors=priors)
    assert isinstance(searcher, UsesPreviews)
    previews = Previews(searcher, pool, most, Machine.of(task.device))
    previews.update()
    wait(previews.under_way)
    previews.update()
    return next(iter(searcher.ask(1)), None)


def _unsure(task: Task, why: str) -> UntunedError:
    kernel, problem = task.problem.kernel, task.problem.label
    return UntunedError(
        f"no config of {kernel} {problem} is expected to be faster than the default: {why}", kernel, problem,
        hint="an effort such as race or quick measures",
    )  # fmt: skip
