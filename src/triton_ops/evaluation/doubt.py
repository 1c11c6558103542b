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


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two configs to compare.

    Attributes:
        challenger: The config that may be faster.
        default: The default config.
        visit_samples: Samples per visit.
    """

    challenger: Config
    default: Config
    visit_samples: int


@dataclass(frozen=True)
class Resolved:
    """How a doubt was resolved.

    Attributes:
        faster: Whether the candidate is proven faster than the default by more than the indifference zone.
        over: The default's time over the candidate's, as a difference of logarithms with its 95 % interval.
    """

    faster: bool
    over: Interval


class ArmFailedError(Exception):
    """A launch of one of the two raised.

    Attributes:
        config: The config whose launch raised.
        reason: What was raised.
    """

    def __init__(self, config: Config, reason: Exception) -> None:
        super().__init__(str(reason))
        self.config = config
        self.reason = reason


def resolve(
    evaluator: Evaluator,
    timer: Timer,
    pair: Pair,
    *,
    seconds: float,
    rng: random.Random,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Resolved:
    """Compare a challenger with the default in fresh rounds.

    Args:
        evaluator: Makes the samplers.
        timer: The timer of the race.
        pair: The two configs.
        seconds: No round is started after this time, except for the first six.
        rng: Draws the orders.
        keep_round: Called after each round; the round is discarded if the answer is False.
        clock: Monotonic seconds.

    Raises:
        ArmFailedError: A launch raised.
    """
    configs = (pair.challenger, pair.default, pair.challenger)
    first, second, twin = (_arm(evaluator, config, pair.visit_samples) for config in configs)
    policy = DuelPolicy(checkpoints=_CHECKPOINTS, seconds=seconds, chance=_CHANCE)
    try:
        found = duel((first, second, twin), timer, policy, rng, keep_round=keep_round, clock=clock)
    except Exception as error:
        failed = [config for config, arm in zip(configs, (first, second, twin), strict=True) if arm.error is not None]
        raise ArmFailedError(failed[0] if failed else pair.challenger, error) from error
    return Resolved(found.proven, found.gain)


def _arm(evaluator: Evaluator, config: Config, visit_samples: int) -> Arm:
    try:
        return Arm(evaluator.sampler(config), visit_samples)
    except Exception as error:
        raise ArmFailedError(config, error) from error
