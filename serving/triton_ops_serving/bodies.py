"""Several configs of one kernel, and the statistic of its groups whose ranges tell which one a call takes.

They are found on draws of the contents, where every config was timed: at most four, each for a range of one statistic
that the host knows without waiting for the GPU, such as the number of tiles. A decorator has the statistic in its `key`
and the rule in its `buckets`; a caller hands its `place` along, so that there is one known launch for each config.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, stdev

from triton_ops import Config, Contents
from triton_ops.exceptions import SettingsError

Draw = tuple[Mapping[str, int], Mapping[Config, float]]
"""The statistics of a draw, whole numbers from 1 on, and the milliseconds of each config there."""
_Cut = tuple[float, tuple[int, ...], tuple[Config, ...]]
MOST = 4
_LARGEST = 2**31 - 1  # so that all places are numbers of 32 bits for Triton
_NEVER = 1e6  # the regret of a body that is slower than that
_PARTS = 5  # of the draws, each judged by bodies of the others
# Standard errors by which several bodies must gain on draws that they were not chosen on. About ten rules are tried, so
# that two would take 37 of 100 sets of equal configs for unequal; this takes 2.
_ERRORS = 3.5


@dataclass(frozen=True)
class Bodies:
    """Configs by ranges of a statistic: the first up to the first of the `ends`, and so on; the last has no limit."""

    statistic: str
    ends: tuple[int, ...]
    configs: tuple[Config, ...]

    @classmethod
    def of(cls, draws: Sequence[Draw], default: Config, most: int = MOST) -> Bodies:
        """The bodies with the least mean regret on draws that they were not chosen on.

        With fewer than ten draws one config is taken for all, under an empty name, and unless the regret of more is
        less by 3.5 standard errors. No config is over 5 % slower than the default on a draw of its range. What has no
        time on a draw is left out, and so is a statistic that a draw lacks, or that is no positive whole number.

        Raises:
            SettingsError: No config has a time on every draw.
        """
        usable = [{name for name, value in each.items() if type(value) is int and value > 0} for each, _ in draws]
        first = draws[0][1] if draws else {}
        timed = [each for each in first if all(0 < times.get(each, 0) < math.inf for _, times in draws)]
        if not timed:
            raise SettingsError("no config has a time on every draw", hint="time all of them on each draw")
        draws = [(statistics, {config: times[config] for config in timed}) for statistics, times in draws]
        parts = [draws[at::_PARTS] for at in range(_PARTS)] if len(draws) >= 2 * _PARTS else []
        rest = [[*itertools.chain(*parts[:at], *parts[at + 1 :])] for at in range(len(parts))]

        def unseen(name: str, count: int) -> list[float]:
            bodies = [cls._ranged(others, name, default, count) for others in rest]
            pairs = zip(bodies, parts, strict=True)
            return [_regret(times, each.config(known)) for each, part in pairs for known, times in part]

        one = least = unseen("", 1)
        chosen = ("", 1)
        names = sorted(set.intersection(*usable)) if parts else []
        for way in itertools.product(names, range(2, most + 1)):
            regrets = unseen(*way)
            gains = [before - after for before, after in zip(one, regrets, strict=True)]
            proven = fmean(gains) > _ERRORS * stdev(gains) / math.sqrt(len(gains))
            if proven and fmean(regrets) < fmean(least):
                least, chosen = regrets, way
        return cls._ranged(draws, chosen[0], default, chosen[1])

    @classmethod
    def _ranged(cls, draws: Sequence[Draw], name: str, default: Config, most: int) -> Bodies:
        """At most so many ranges of a statistic, and the config of each, with the least regret over the draws."""
        draws = sorted(draws, key=lambda draw: draw[0].get(name, 1))
        values = [statistics.get(name, 1) for statistics, _ in draws]
        limits = [(1 + Contents.SLOWER) * times.get(default, math.inf) for _, times in draws]
        sums = {
            config: [*itertools.accumulate(
                (_regret(times, config) + _NEVER * (times[config] > most_ms)
                 for (_, times), most_ms in zip(draws, limits, strict=True)), initial=0.0,
            )]
            for config in draws[0][1]
        }  # fmt: skip
        ends = [end for end, (one, other) in enumerate(itertools.pairwise(values), 1) if one < other]
        cuts: dict[int, _Cut] = {0: (0.0, (), ())}
        for _ in range(most):
            cuts |= {end: min(_ended(cuts, sums, end), key=itemgetter(0)) for end in (*ends, len(draws))}
        _, places, configs = cuts[len(draws)]
        return cls(name, (*(math.isqrt(values[end - 1] * values[end]) for end in places[:-1]), _LARGEST), configs)

    def config(self, statistics: Mapping[str, int]) -> Config:
        """The config of a call with these statistics."""
        return self.configs[bisect_left(self.ends, statistics.get(self.statistic, 1), hi=len(self.ends) - 1)]

    def place(self, value: int) -> int:
        """The end of the range in which a value of the statistic lies: what a caller hands along."""
        return self.ends[bisect_left(self.ends, value, hi=len(self.ends) - 1)]

    @property
    def buckets(self) -> dict[str, str]:
        """The `buckets` of a decorator whose key has the statistic."""
        return {self.statistic: f"upto:{','.join(map(str, self.ends))}"} if self.statistic else {}


def statistics_of(sizes: Sequence[int], heights: Sequence[int]) -> dict[str, int]:
    """What the sizes of groups tell: how many have rows, the largest, that of a mean row, and tiles of each height."""
    known = {
        "groups": sum(size > 0 for size in sizes),
        "largest": max(sizes, default=0),
        "group_of_a_row": round(sum(size * size for size in sizes) / max(1, sum(sizes))),
        **{f"tiles_of_{height}": sum(-(-size // height) for size in sizes) for height in heights},
    }
    return {name: max(1, each) for name, each in known.items()}


def _ended(cuts: Mapping[int, _Cut], sums: Mapping[Config, Sequence[float]], end: int) -> list[_Cut]:
    """The ways to have a range that ends here: cost, ends and configs; of equal costs the fewest ranges come first."""
    return [
        (cost + sums[config][end] - sums[config][start], (*before, end), (*configs, config))
        for start, (cost, before, configs) in cuts.items() if start < end for config in sums
    ]  # fmt: skip


def _regret(times_ms: Mapping[Config, float], config: Config) -> float:
    return times_ms[config] / min(times_ms.values()) - 1
