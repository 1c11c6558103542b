"""The pick of a model, and what it is worth.

Where nothing is measured, a model says which config it takes for the fastest, and how much faster than the default. The
first picks are compiled beside the default. The model then goes by what the compiler made of them: another pick takes
the place of the first one where it is ahead by more than such expectations err, and the model speaks only if the first
one is far enough ahead of the default. It knows no calibration of this machine: all processes of a job expect the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace

from triton_ops.compilation import CompilePool
from triton_ops.device import Machine
from triton_ops.exceptions import UntunedError
from triton_ops.request import Effort, TuneRequest
from triton_ops.search import Prior, UsesPreviews, make_searcher
from triton_ops.space import ConfigSpace, UnlistedSpace
from triton_ops.tuner.feeds import Previews
from triton_ops.tuner.priors import coming_priors
from triton_ops.tuner.survey import Survey
from triton_ops.values import Compiled, Status, Trial

_ERROR = 0.05
"""Share by which expected times of leading picks err against each other once the compiler's figures are known.

The standard deviation of the logarithm of measured over expected times among eight picks is 0.055, the median of 76
recorded spaces (`benchmarks/model/inferred_quality.py`); shares from 0.03 to 0.08 choose about as well.
"""


@dataclass(frozen=True)
class Expectation:
    """A config that would run and the model's pick, in words how fast, and the share that the first pick is ahead.

    The pick is ahead by as much at least. The share is NaN where the first pick is the other config, or cannot be
    compared with it. The device is named where it need not be here.
    """

    pair: ConfigSpace
    forecast: str
    gain: float
    device: str = ""

    @property
    def text(self) -> str:
        """The forecast with who made it."""
        return f"a model of the work, which {self.forecast}"

    @classmethod
    def of(
        cls, request: TuneRequest, effort: Effort, pool: CompilePool | None, survey: Survey | None = None, *,
        of_list: bool = False,
    ) -> Expectation:  # fmt: skip
        """The expectation for a request; raises UntunedError, with the reason, where a model has none.

        The pick is compared with the default or, `of_list`, with the seed that is expected to be fastest. A launch
        waits for it unless there is a `survey`: all of the effort's previews are compiled then, however few processes
        compile. Cost: what a survey of the kernel takes, and the compilation of the previews.
        """
        if pool is None:
            raise _unsure(request, "it is not compiled ahead, so that no model can read it")
        pool.submit(request.space.default_config, anyway=True, spare=True)  # while the kernel is read
        if not (priors := coming_priors(request, None, pool, 1, survey or Survey.of_a_launch()).result()):
            raise _unsure(request, "no model has a forecast of its configs on this device")
        first, whose = request.space.default_config, "the default"
        if of_list and isinstance(request.space, UnlistedSpace):
            times = priors[0].score(request.space.seeds)
            first, whose = request.space.seeds[min(range(len(times)), key=times.__getitem__)], "the fastest of the list"
        previews = min(effort.previews, pool.workers) if survey is None else effort.previews
        leaders = _leaders(request, previews, pool, priors)
        between = cls._between(pool.submit(first, anyway=True).result(), leaders, whose, priors[0])
        unseen = (machine := Machine.of(request.device)) is not None and machine.unseen
        return replace(between, forecast=f"{between.forecast} ({unseen})") if unseen else between

    @classmethod
    def _between(cls, default: Compiled, leaders: Sequence[Compiled], whose: str, prior: Prior) -> Expectation:
        first, too_large = next(iter(leaders), default), default.status is Status.RESOURCES
        able = first.launchable and first.resources is not None and (default.launchable or too_large)
        if default.config == first.config or not able:
            space = ConfigSpace.from_configs(dict.fromkeys((default.config, first.config)))
            return cls(space, f"first picks {whose} itself, or the compiler has refused one of both", math.nan)
        # trials without times, by which the model learns what the compiler made of each config
        prior.tell([Trial(one.config, Status.DEFERRED, resources=one.resources) for one in (default, *leaders)])
        default_ms, *times = prior.score([default.config, *(one.config for one in leaders)])
        fastest = min(range(len(times)), key=times.__getitem__)
        at = fastest if times[0] >= (1 + _ERROR) * times[fastest] else 0
        beside = f"{default_ms:.3g} ms of {whose}"
        if too_large:
            default_ms, beside = math.inf, f"no launch of {whose}, which {default.reason}"
        gain = default_ms / times[0] - 1 if math.isfinite(times[0]) else math.nan
        before = f", {times[0]:.3g} ms of its first pick" if at else ""
        space = ConfigSpace.from_configs(dict.fromkeys((default.config, leaders[at].config)))
        return cls(space, f"expects {times[at]:.3g} ms of ({leaders[at].config}){before} and {beside}", gain)

    def worth(self, request: TuneRequest, effort: Effort) -> Expectation:
        """Itself, where the gain that it expects is the effort's at least; else raises UntunedError."""
        # A gain that is NaN is none, and `<` would let it pass.
        if not self.gain >= effort.expected_gain:
            raise _unsure(request, f"the model {self.forecast}, and is sure from {effort.expected_gain:.0%} on")
        return self


def _leaders(request: TuneRequest, most: int, pool: CompilePool, priors: list[Prior]) -> list[Compiled]:
    """The first pick of a model that can be launched and does not spill, then all such previews; empty if none is."""
    searcher = make_searcher("ranked", request.space, priors=priors)
    assert isinstance(searcher, UsesPreviews)
    compiled: list[Compiled] = []
    previews = Previews(searcher, pool, most, Machine.of(request.device), compiled.append)
    previews.update()
    wait(previews.under_way)
    previews.update()
    asked = (pool.submit(config, anyway=True).result() for config in searcher.ask(most))
    first = next(filter(_is_light, asked), None)
    return [*([] if first is None else [first]), *filter(_is_light, compiled)]


def _is_light(compiled: Compiled) -> bool:
    return compiled.status is Status.OK and compiled.resources is not None and not compiled.resources.wasteful


def _unsure(request: TuneRequest, why: str) -> UntunedError:
    kernel, problem = request.problem.kernel, request.problem.label
    message = f"no config of {kernel} {problem} is expected to be faster than the default: {why}"
    return UntunedError(message, kernel, problem, hint="an effort such as race or quick measures")
