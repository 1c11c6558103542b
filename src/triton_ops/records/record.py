"""A record: the result of a finished tune, readable by people and by every later version.

Schema history:
    1  first form
    2  one id for each problem: the key holds the cache state that was asked for, and the record the mode in which
       measuring ended; further fields for the check of results, the place and the run log
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timezone
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast

import msgspec

from triton_ops import settings, values
from triton_ops.base import Count, DamagedError, Extent, NotNegative, Plain, Sealed, storable
from triton_ops.exceptions import CacheError, SpaceError
from triton_ops.space import Config
from triton_ops.values import Argument, Conclusion, Key, Resources

if TYPE_CHECKING:
    from triton_ops.request import Effort
    from triton_ops.values import Measurement, Trial

T = TypeVar("T")


class NotedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a decorated kernel, of whose arguments the key holds no more than decides the config.

    Of a tensor its shape, dtype, strides and alignment are kept, and nothing that is in it.
    """

    arguments: dict[str, Argument]  # scalars, and tensors' specs as `plain` makes them
    configs: Annotated[list[dict[str, Plain]], msgspec.Meta(min_length=1)]
    grids: list[list[Extent] | str]  # of each config, in order; a text says why the grid function had none

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name, with a `TensorSpec` for each tensor."""
        return {name: values.Problem.from_plain(value) for name, value in self.arguments.items()}


_MOST_FAILURES = 32  # that are kept
_MOST_TUNES = 3  # that go on with each other, before the next call is answered with what they have
_AT_END = ("complete", "settled")  # searches that no budget has cut off

KIND = "triton-ops record"
SCHEMA_VERSION = 2


class Timing(msgspec.Struct, frozen=True):
    """Times of one config in the tune's last comparison, in milliseconds per launch."""

    median_ms: NotNegative
    p20_ms: NotNegative
    p80_ms: NotNegative
    samples: Count

    @classmethod
    def of(cls, measurement: Measurement) -> Timing:
        """The times of a measurement."""
        return cls(measurement.median_ms, measurement.p20_ms, measurement.p80_ms, len(measurement.samples_ms))


class BudgetLimits(msgspec.Struct, frozen=True):
    """The limits of a tune; None is no limit."""

    trials: Count | None = None
    seconds: NotNegative | None = None


class Verified(msgspec.Struct, frozen=True):
    """The source of the expected results, with which every candidate's results were compared before it was timed."""

    against: str = ""  # in words; empty if nothing was compared
    reference: str | None = None  # its fingerprint; None if the default config's results were compared with


class TimesOnContent(msgspec.Struct, frozen=True):
    """The median times of raced configs on one content, in milliseconds per launch; the weight is 0 if held out."""

    label: str
    weight: float
    times_ms: tuple[tuple[Config, float], ...]

    def regret(self, config: Config) -> float:
        """The share by which a config is slower than the fastest raced one here."""
        times = dict(self.times_ms)
        return times[config] / min(times.values()) - 1 if config in times else math.inf


class Failure(msgspec.Struct, frozen=True):
    """A config that failed in the tune: how its trial ended, and why, in one line."""

    config: Config
    status: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Record(Conclusion):
    """The winner of one tune, with what is needed to judge and to repeat it; fields of `TuningResult` mean the same."""

    ALONE: ClassVar[str] = "no other config ran, so that nothing was compared"
    """The confidence where a single program ran; it wins a search that came to its end, unless others failed in it."""
    INTERPRETED: ClassVar[str] = "Python was timed, by Triton's interpreter, and no GPU"
    """Why the winner of interpreted kernels is unproven, whatever their comparison says."""

    key: Key  # for which the winner holds
    winner: Config
    timing: Timing
    default: Config | None = None
    default_timing: Timing | None = None  # side by side with the winner; None if the default failed
    resources: Resources | None = None  # of the winner, where they are known
    space: str = ""  # fingerprint of the config space that was searched
    effort: str = "quick"
    search: str = ""
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    stopped: str = "complete"
    elapsed_s: NotNegative = 0.0  # wall seconds of the tune; of one in a list, from when the device was its own
    created: str = ""  # UTC, ISO 8601
    versions: dict[str, str] = field(default_factory=dict)  # of Python, this package, torch and Triton
    verified: Verified = field(default_factory=Verified)
    failures: tuple[Failure, ...] = ()  # the first 32; `totals` counts all of them
    call: NotedCall | str | None = None  # of a decorated kernel, or why it cannot be made again; None for an operation
    contents: tuple[str, tuple[TimesOnContent, ...]] | msgspec.UnsetType = msgspec.UNSET  # where several: a fingerprint
    tunes: Count = 1  # how many, of which each went on with the one before, have led to it
    step: str | msgspec.UnsetType = msgspec.UNSET  # in which the winner was chosen, where it was raced in place

    def in_step(self, step: str, config: Config, trial: Trial | None, note: str) -> Record:
        """The record with the config that a step takes; `trial` is that of the tune, None if it was not tried there."""
        about = f"in the step {step}: "
        notes = (*(each for each in self.notes if not each.startswith(about)), about + note)
        if config == self.winner:
            return replace(self, step=step, notes=notes)
        timing = Timing(0.0, 0.0, 0.0, 0) if trial is None else Timing.of(trial.best_measurement)
        return replace(
            self, winner=config, timing=timing, resources=None if trial is None else trial.resources, raced_gain=None,
            gain_interval=None, ties=(), contents=msgspec.UNSET, step=step, notes=notes,
            bits=self.bits if self.key.bits else "",
        )  # fmt: skip

    def raced_over(self, contents: str | None) -> bool:
        """True if it answers a request with contents of this fingerprint, or with its own alone for None."""
        return contents is None or (self.contents is not msgspec.UNSET and self.contents[0] == contents)

    def with_contents(self, fingerprint: str | None, raced: Sequence[tuple[Any, ...]]) -> Record:
        """The record with the times on each content that was raced over, and a note; itself for a fingerprint None."""
        if fingerprint is None:
            return self
        rows, words = tuple(TimesOnContent(*each) for each in raced), []
        for what, held_out in (("contents", False), ("draws held out", True)):
            drawn = [row for row in rows if row.times_ms and held_out is not bool(row.weight)]
            if regrets := [(row.regret(self.winner), row.label) for row in drawn]:
                (worst, label), mean = max(regrets), sum(regret for regret, _ in regrets) / len(regrets)
                words.append(f"over {len(regrets)} {what} {mean:.1%} in the mean and {worst:.1%} on {label}")
        notes = [f"regret beside the fastest raced config of each: {'; '.join(words)}"] if words else []
        configs = dict(rows[0].times_ms) if rows else ()
        means = {config: sum(row.weight * dict(row.times_ms)[config] for row in rows) for config in configs}
        fastest = min(means, key=means.__getitem__, default=None)
        (share, label), most = values.Contents.slower(raced, fastest, self.default), values.Contents.SLOWER
        if share > most and fastest != self.winner:
            rule = f"no config wins that is slower than the default by more than {most:.0%} on a content"
            notes.append(f"{rule}: ({fastest}), the fastest in the mean, is so by {share:.1%} on {label}")
        return replace(self, contents=(fingerprint, rows), notes=(*self.notes, *notes))

    @property
    def id(self) -> str:
        """The key's id."""
        return self.key.id

    @property
    def gain(self) -> float | None:
        """The default's time over the winner's; None if the default was not measured."""
        default = self.default_timing
        return self.raced_gain if default is None else self.gain_by(default.median_ms, self.timing.median_ms)

    @property
    def unproven(self) -> str:
        """The reason not to rely on the winner: it was timed as Python, or `undecided`; empty for a proven one."""
        return "; ".join(filter(None, [self.INTERPRETED if self.key.interpreted else "", self.undecided]))

    @property
    def undecided(self) -> str:
        """The reason why the comparison decided nothing; empty where it did.

        It did where the winner beats the default by more than noise, or nothing beats the default; a measured tie is
        such a decision, and so is a race in a step. A config that alone ran in a search that came to its end has
        nothing to be compared with, unless others failed where they were to run.
        """
        if not self.step and values.Trial.one_alone(self.totals):
            return self.ALONE
        if self.step or self.confidence == "ok":
            return ""
        if self._at_end and (self.confidence == self.ALONE or self.totals.get("ok") == 1):
            return ""
        beats = self.gain_interval is not None and self.gain_interval[0] > 1.0 + self.noise
        return "" if beats else self.confidence

    @property
    def goes_on(self) -> bool:
        """True if the next tune of this effort goes on with it, since it is undecided.

        Not so where all configs were compared, and noise hid the order, or where several tunes have gone on already.
        """
        compared = self.noise > 0.0 or self.raced_gain is not None
        return bool(self.undecided) and self.tunes < _MOST_TUNES and not (compared and self._at_end)

    def with_tune(self, effort: Effort, trials: Sequence[Trial], against: str, reference: str | None) -> Record:
        """The record with the effort of its tune, how the trials ended, and what results were compared with."""
        failures = (Failure(each.config, each.status.value, storable(each.error)) for each in trials if each.failed)
        return replace(
            self, effort=effort.name, search=effort.search_name,
            budget=BudgetLimits(effort.budget.trials, effort.budget.seconds), totals=values.Trial.totals(trials),
            failures=tuple(islice(failures, _MOST_FAILURES)), verified=Verified(against, reference),
        )  # fmt: skip

    def covers(self, effort: Effort) -> bool:
        """True if the winner answers a request: its run had at least this effort, and no smaller budget ended it.

        One that its tune has left undecided does not, as long as a further tune may decide.
        """
        order = [*settings.EFFORTS] if effort.name in settings.EFFORTS else [effort.name]  # an own one has no greater
        if self.goes_on or self.effort not in order[order.index(effort.name) :]:
            return False
        limits, needs = self.budget, effort.budget
        enough = _least(needs.trials) <= _least(limits.trials) and _least(needs.seconds) <= _least(limits.seconds)
        return self._at_end or enough

    @property
    def _at_end(self) -> bool:
        return self.stopped in _AT_END


def _least(limit: float | None) -> float:
    return math.inf if limit is None else limit


def time_now() -> str:
    """The time by UTC, ISO 8601, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def with_defaults(value: T) -> T:
    """A dataclass that was read, with each field that its text lacked; also in the dataclasses and tuples in it.

    msgspec leaves such a field to the class, and what it then writes lacks the field too.
    """
    whole: Any = value
    if isinstance(value, tuple):
        whole = tuple(map(with_defaults, value))
    elif is_dataclass(value) and not isinstance(value, type):
        whole = replace(value, **{each.name: with_defaults(getattr(value, each.name)) for each in fields(value)})
    return cast("T", whole)


def encode(record: Record) -> dict[str, Any]:
    """The record as plain JSON values."""
    content: dict[str, Any] = msgspec.to_builtins(with_defaults(record), enc_hook=Config.encode)
    return {**{name: content[name] for name in ("key", "winner", "timing")}, **content}  # what people look for, first


def decode(content: Mapping[str, Any]) -> Record:
    """The record in decoded JSON; CacheError if a field is missing or ill-typed, or a config has a wrong value."""
    with CacheError.when("the record is not well formed", "tune again", DamagedError, SpaceError):
        return Sealed.typed(dict(content), Record, Config.decode)


@cache
def reader() -> Callable[[bytes], Record]:
    """The decoder of a text that `decode` has checked before; making it takes as long as a hundred records."""
    with Sealed.TYPES:
        return msgspec.json.Decoder(Record, dec_hook=Config.decode).decode
