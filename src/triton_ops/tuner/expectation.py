"""The expectation of a model: which config it takes for the fastest, and how much faster than the default.

The first picks are compiled beside the default. The model then goes by what the compiler made of both, and speaks only
if they are far enough apart. It knows no calibration of this machine: all processes of a job expect the same.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass

from triton_ops.compilation import CompilePool
from triton_ops.device import Machine
from triton_ops.exceptions import UntunedError
from triton_ops.request import Effort, Task
from triton_ops.search import Prior, UsesPreviews, make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.priors import coming_priors
from triton_ops.tuner.proposals import Previews
from triton_ops.values import Status, Trial


@dataclass(frozen=True)
class Expectation:
    """The default and the config that is expected to be faster, and in words how much."""

    pair: ConfigSpace
    text: str

    @classmethod
    def of(cls, task: Task, effort: Effort, pool: CompilePool | None) -> Expectation:
        """The expectation for a task; raises UntunedError, with the reason, unless the effort's gain is expected.

        Cost: what a survey of the kernel takes, and the compilation of the effort's previews.
        """
        if pool is None:
            raise _unsure(task, "it is not compiled ahead, so that no model can read it")
        pool.submit(task.space.default_config, anyway=True, spare=True)
        if not (priors := coming_priors(task, None, pool, trials=1).result()):
            raise _unsure(task, "no model has a forecast of its configs on this device")
        pick = _first_pick(task, effort, pool, priors)
        pair = task.space.default_config, task.space.default_config if pick is None else pick
        compiled = [pool.submit(config, anyway=True).result() for config in pair]
        if pair[0] == pair[1] or any(one.resources is None or not one.launchable for one in compiled):
            raise _unsure(task, "the model's first pick is the default itself, or the compiler has refused one of both")
        not_run = Status.DEFERRED
        priors[0].tell([Trial(one.config, not_run, resources=one.resources) for one in compiled])
        default_ms, pick_ms = priors[0].score(pair)
        text = f"expects {pick_ms:.3g} ms of ({pick}) and {default_ms:.3g} ms of the default"
        if not default_ms >= (1 + effort.expected_gain) * pick_ms:
            raise _unsure(task, f"the model {text}, and is sure from {effort.expected_gain:.0%} on")
        return cls(ConfigSpace.from_configs(pair), f"a model of the work, which {text}")


def _first_pick(task: Task, effort: Effort, pool: CompilePool, priors: list[Prior]) -> Config | None:
    """The first pick of a model that can be launched and does not spill; None if there is none."""
    searcher = make_searcher("ranked", task.space, priors=priors)
    assert isinstance(searcher, UsesPreviews)
    previews = Previews(searcher, pool, min(effort.previews, pool.workers), Machine.of(task.device))
    previews.update()
    wait(previews.under_way)
    previews.update()
    return next(iter(searcher.ask(1)), None)


def _unsure(task: Task, why: str) -> UntunedError:
    kernel, problem = task.kernel.name, task.problem.label
    return UntunedError(
        f"no config of {kernel} {problem} is expected to be faster than the default: {why}", kernel, problem,
        hint="an effort such as race or quick measures",
    )  # fmt: skip
