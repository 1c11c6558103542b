"""A candidate that may be faster than the default, and is not proven to be, is compared with the default once more.

The race picks the luckiest of many candidates, so its times flatter what it picks. Fresh rounds of the two, with a
twin of the candidate, decide instead. All three are prepared anew: a difference that comes from where an object lies in
memory is then another one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from triton_ops.evaluation.candidate import Evaluator
from triton_ops.space import Config
from triton_ops.timing import Arm, DuelPolicy, Interval, Timer, duel

_CHECKPOINTS = (16, 32, 64, 128)
_CHANCE = 0.003  # of a gain that is none, as with three standard errors: every noisy tune comes here


@dataclass(frozen=True)
class Resolution:
    """The answer to a doubt.

    Attributes:
        faster: Whether the candidate is proven faster than the default by more than the indifference zone.
        over: The default's time over the candidate's, as a difference of logarithms with its 95 % interval.
    """

    faster: bool
    over: Interval


class ArmFailedError(Exception):
    """A launch of one of the two raised."""

    def __init__(self, config: Config, reason: Exception) -> None:
        super().__init__(str(reason))
        self.config = config
        self.reason = reason


def resolve(
    evaluator: Evaluator,
    timer: Timer,
    challenger: Config,
    default: Config,
    *,
    visit_samples: int,
    seconds: float,
    rng: random.Random,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Resolution:
    """Compare a challenger with the default in fresh rounds.

    No round is started after `seconds`, except for the first six. A round is discarded if `keep_round` answers False.

    Raises:
        ArmFailedError: A launch raised.
    """
    configs = (challenger, default, challenger)
    first, second, twin = (_arm(evaluator, config, visit_samples) for config in configs)
    policy = DuelPolicy(checkpoints=_CHECKPOINTS, seconds=seconds, chance=_CHANCE)
    try:
        verdict = duel((first, second, twin), timer, policy, rng, keep_round=keep_round, clock=clock)
    except Exception as error:
        culprits = [config for config, arm in zip(configs, (first, second, twin), strict=True) if arm.error is not None]
        raise ArmFailedError(culprits[0] if culprits else challenger, error) from error
    return Resolution(verdict.proven, verdict.gain)


def _arm(evaluator: Evaluator, config: Config, visit_samples: int) -> Arm:
    try:
        return Arm(evaluator.sampler(config), visit_samples)
    except Exception as error:
        raise ArmFailedError(config, error) from error
