"""Several winners for one problem, each for a range of a number that the host knows at the call.

The number is a statistic of the contents over which a tune has raced, such as the rows of the largest group. Ranges lie
side by side, so that one look-up chooses; for each number of ranges the limits and configs of least regret are found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from triton_ops.exceptions import SettingsError
from triton_ops.records.record import Record
from triton_ops.space import Config
from triton_ops.values import Range

_MOST, _REGRET = 4, 0.01
_LARGEST = 1 << 62
_FORM = "write contents, contents:4 or contents:4@0.02: at most 4 configs, as few as lose at most 2 % in the mean"


@dataclass(frozen=True)
class Body:
    """One config of several, and the range of the statistic that it serves."""

    config: Config
    range: Range
    value: int  # of the statistic, on a content in the range


def bodies_of(record: Record, name: str, rule: str) -> list[Body]:
    """The bodies of a record by a rule of the form `contents:K@REGRET`, over the statistic `name`.

    There is one body where no more are worth it. A `SettingsError` says what is wrong with the rule, or that no content
    of the record's tune has the statistic.
    """
    most, allowed = _limits(rule)
    rows = [each for each in record.by_content if each.weight and name in each.statistics]
    if not rows:
        raise SettingsError(
            f"the tune of {record.key.kernel} {record.key.label} was over no contents with the statistic {name}",
            hint=f"Contents([...], statistics={{{name!r}: function}})",
        )
    values = sorted({each.statistics[name] for each in rows})
    configs = [config for config, _ in rows[0].times_ms]
    total = math.fsum(each.weight for each in rows)
    costs = [
        [math.fsum(row.weight * row.regret(config) / total for row in rows if row.statistics[name] == value)
         for config in configs] for value in values
    ]  # fmt: skip
    for count in range(1, min(most, len(values)) + 1):
        cost, cuts = _split(costs, count)
        if cost <= allowed or count == min(most, len(values)):
            break
    lows = [0, *(math.isqrt(values[cut - 1] * values[cut]) + 1 for cut in cuts)]
    bounds = list(pairwise([*lows, _LARGEST + 1]))
    return [
        Body(configs[_best(costs[first:last])[1]], Range((name,), low, high - 1), values[first])
        for (first, last), (low, high) in zip(pairwise([0, *cuts, len(values)]), bounds, strict=True)
    ]


def _limits(rule: str) -> tuple[int, float]:
    kind, _, rest = rule.strip().partition(":")
    most, _, regret = rest.partition("@")
    try:
        limits = int(most) if most else _MOST, float(regret) if regret else _REGRET
    except ValueError:
        limits = 0, 0.0
    if kind != "contents" or limits[0] < 1 or not 0 <= limits[1] < math.inf:
        raise SettingsError(f"{rule!r} is no rule for contents", hint=_FORM)
    return limits


def _best(costs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The least cost of one config over some values of the statistic, and its place."""
    return min((math.fsum(column), place) for place, column in enumerate(zip(*costs, strict=True)))


def _split(costs: Sequence[Sequence[float]], count: int) -> tuple[float, tuple[int, ...]]:
    """The least cost of so many ranges, and where all but the first begin."""
    ways: Mapping[int, tuple[float, tuple[int, ...]]] = {
        end: (_best(costs[:end])[0], ()) for end in range(1, len(costs) + 1)
    }
    for _ in range(count - 1):
        ways = {
            end: min((cost + _best(costs[cut:end])[0], (*cuts, cut)) for cut, (cost, cuts) in ways.items() if cut < end)
            for end in range(min(ways) + 1, len(costs) + 1)
        }
    return ways[len(costs)]
