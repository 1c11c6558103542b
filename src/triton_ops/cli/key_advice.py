"""Advice on keys, from records: the parts of a problem that change the winner, as `triton-ops lock keys` shows them.

Parts of a problem that always change together, such as `M`, `a[0]` and the stride that follows from it, count as one:
no record can tell them apart. Two records that differ in one part only are compared: it did not matter if some config
was among the fastest of both, or if the winner of one is within the tolerance of the best on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from triton_ops.base import canonical_json
from triton_ops.records import Record, Runs
from triton_ops.space import Config
from triton_ops.values import Mapper

_TOLERANCE = 0.02
Verdict = Literal["matters", "never mattered", "not known"]
Regret = Callable[[Record, Config], float | None]
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class PartAdvice:
    """The advice of records on one part of a kernel's problems."""

    names: tuple[str, ...]  # of its fields, which always changed together: `M`, `a[0]`, `a.stride`
    values: int  # how many it had
    compared: int  # pairs of records that differ in nothing else
    verdict: Verdict  # `not known` where no two records differ in it alone
    regret: float | None  # the largest loss, relative, of one's winner on the other; None without a time
    spared_s: float  # of tuning, by a key without it
    in_key: bool | None = None  # whether the key that was asked about has it; None if none was

    @property
    def advice(self) -> str:
        """A change of the key in words; empty for none."""
        if self.verdict == "never mattered" and self.in_key is not False:
            return "may be left out of the key"
        return "belongs into the key" if self.verdict == "matters" and self.in_key is False else ""

    @property
    def title(self) -> str:
        """Its names in short."""
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return ", ".join(self.names[:_SHOWN]) + more


@dataclass(frozen=True, kw_only=True)
class KernelAdvice:
    """The advice of records on the keys of one kernel on one device."""

    kernel: str
    device: str
    records: int  # problems that have a proven winner
    unproven: int  # problems that have an unproven one, which says nothing of a key
    winners: int  # different configs that won
    elapsed_s: float  # of their tunes
    parts: tuple[PartAdvice, ...]  # of the problems that changed, those that matter first


def advise(records: Iterable[Record], regret: Regret, *, key: Sequence[str] | None = None) -> list[KernelAdvice]:
    """The advice on each kernel on each device, in the order of their names.

    Of one kernel the records should be of one source, since another one is another kernel. The `regret` says how much
    longer a config takes on a record's problem than its best one, relative; None where that was not measured. Up to 2 %
    it counts as none. The `key` has the fields of the key that is asked about; dtypes are part of every key.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        source = canonical_json(dict(record.key.identity).get("source"))
        place = record.key.kernel, str(record.key.device.get("name")), source, record.key.cache_state
        groups.setdefault(place, []).append(record)
    return [_of_kernel(groups[place], regret, key) for place in sorted(groups)]


def _of_kernel(records: list[Record], regret: Regret, key: Sequence[str] | None) -> KernelAdvice:
    first, tuned = records[0].key, len(records)
    records = [record for record in records if not record.unproven]
    parts = _parts([fields_of(record.key.problem) for record in records])
    labels = list(parts)
    advice = [_part(parts, label, labels, records, regret, key) for label in labels]
    order = {"matters": 0, "never mattered": 1, "not known": 2}
    return KernelAdvice(
        kernel=first.kernel, device=str(first.device.get("name")), records=len(records), unproven=tuned - len(records),
        winners=len({record.winner for record in records}), elapsed_s=sum(record.elapsed_s for record in records),
        parts=tuple(sorted(advice, key=lambda part: (order[part.verdict], part.names))),
    )  # fmt: skip


def fields_of(problem: Mapping[str, Any]) -> dict[str, str]:
    """Every field of a problem as text: extents, dtypes, strides, alignments and scalars."""
    fields = {name: str(value) for name, value in Mapper.extents_of(problem).items()}
    for name, argument in problem.items():
        if isinstance(argument, Mapping):
            fields.update({f"{name}.{part}": canonical_json(v) for part, v in argument.items() if part != "shape"})
        elif name not in fields:
            fields[name] = canonical_json(argument)
    return fields


def _parts(problems: Sequence[Mapping[str, str]]) -> dict[tuple[int, ...], tuple[str, ...]]:
    """The fields that change, by how they divide the records: those that divide them alike are one part."""
    parts: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(name for problem in problems for name in problem):
        numbers: dict[str | None, int] = {}
        label = tuple(numbers.setdefault(problem.get(name), len(numbers)) for problem in problems)
        if len(numbers) > 1:
            parts.setdefault(label, []).append(name)

    def plain_first(name: str) -> tuple[bool, int, str]:
        return any(mark in name for mark in (".", "[", "stride")), len(name), name

    return {label: tuple(sorted(names, key=plain_first)) for label, names in parts.items()}


def _part(
    parts: Mapping[tuple[int, ...], tuple[str, ...]], label: tuple[int, ...], labels: Sequence[tuple[int, ...]],
    records: Sequence[Record], regret: Regret, key: Sequence[str] | None,
) -> PartAdvice:  # fmt: skip
    # A part whose value follows from this one's cannot stay while this one changes.
    follow = {each for each in labels if len(set(zip(label, each, strict=True))) == len(set(label))}
    others = [each for each in labels if each is not label and each not in follow]
    rest = [tuple(each[at] for each in others) for at in range(len(records))]
    pairs = [(a, b) for a, b in combinations(range(len(records)), 2) if rest[a] == rest[b] and label[a] != label[b]]
    losses = [_loss(records[a], records[b], regret) for a, b in pairs]
    sizes = [loss for loss in losses if loss is not None]
    verdict: Verdict = "not known" if not pairs else "never mattered"
    if any(loss is None or loss > _TOLERANCE for loss in losses):
        verdict = "matters"
    first = {each: min(at for at, other in enumerate(rest) if other == each) for each in set(rest)}
    spared = sum(record.elapsed_s for at, record in enumerate(records) if first[rest[at]] != at)
    names = parts[label]
    return PartAdvice(
        names=names, values=len(set(label)), compared=len(pairs), verdict=verdict, regret=max(sizes, default=None),
        spared_s=spared if pairs else 0.0,
        in_key=None if key is None else any(name in key or name.endswith(".dtype") for name in names),
    )  # fmt: skip


def _loss(one: Record, other: Record, regret: Regret) -> float | None:
    """The loss where both problems are served with the winner of one of them; None where it is not known."""
    if {one.winner, *one.ties} & {other.winner, *other.ties}:
        return 0.0
    losses = [loss for loss in (regret(other, one.winner), regret(one, other.winner)) if loss is not None]
    return min(losses, default=None)


class MeasuredRegret:
    """The regret of configs from the run logs of a cache folder, each of which is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ranks: dict[str, dict[Config, float]] = {}

    def __call__(self, record: Record, config: Config) -> float | None:
        """The time of a config over that of the record's winner, less 1; None if the run log does not say."""
        if record.id not in self._ranks:
            run = Runs(self._folder, record.id).run(record.run)
            trials = {} if run is None else run.trials
            self._ranks[record.id] = {config: trial.rank for config, trial in trials.items() if trial.ok}
        ranks = self._ranks[record.id]
        best = ranks.get(record.winner)
        return max(ranks[config] / best - 1, 0.0) if best and config in ranks else None
