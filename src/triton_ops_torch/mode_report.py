"""Report on the ways to compile a model: a row for each, with the recommended one."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec

from triton_ops.base import Count, NotNegative
from triton_ops.exceptions import SettingsError
from triton_ops.values import Status
from triton_ops_torch.compile_mode import CUDAGRAPHS, EAGER, CompileMode, compiled, effective_options, refusal
from triton_ops_torch.compiler_output import AutotuneTable, CompilerLog
from triton_ops_torch.mode_process import Loaded, ModeProcess

_DOCUMENTED = (
    "name", "status", "reason", "steady_ms", "mean_ms", "p20_ms", "p80_ms", "first_call_s", "compile_s", "recordings",
    "recompiles", "peak_bytes", "kernels", "max_error", "break_even_calls",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """Result of one way to compile.

    Attributes:
        status: `ok`, or why there are no times: `constraint` if this torch does not know it, `deferred` if the
            budget was used up, else as a trial's.
        steady_ms: Median milliseconds of one call of each kind, in steady state, the host's part included.
        one_off_s: Seconds that are paid once: the first call and any later one that compiled or recorded.
        break_even_calls: Calls after which `one_off_s` is won back against eager; infinite if it is not faster.
    """

    name: str
    status: Status
    reason: str = ""  # why, in words; of a mode that is ok, what a reader should know
    steady_ms: NotNegative | None = None
    mean_ms: NotNegative | None = None  # their mean, in which a few slow calls show
    p20_ms: NotNegative | None = None
    p80_ms: NotNegative | None = None
    relative: NotNegative | None = None  # its time divided by eager's, in the same rounds
    first_call_s: NotNegative | None = None
    one_off_s: NotNegative | None = None
    naive_ms: NotNegative | None = None  # what a mean of 50 calls after one warm-up call would show
    compile_s: NotNegative | None = None
    recordings: Count | None = None  # CUDA graphs that were recorded
    rerecorded: tuple[str, ...] = ()  # why graphs were recorded again
    skipped: tuple[str, ...] = ()  # why CUDA graphs were not used
    recompiles: Count | None = None
    peak_bytes: Count | None = None  # most memory during steady calls
    kernels: Count | None = None  # kernels that one call of each kind launches; None if not known
    graphs: Count | None = None
    breaks: Count | None = None  # where the model was left to Python in between
    max_error: NotNegative | None = None  # largest difference from the golden results, relative to their largest value
    break_even_calls: float | None = None
    by_call_ms: tuple[float, ...] = ()  # median milliseconds of each kind of call
    calls_s: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the options of Inductor that it sets
    tables: tuple[AutotuneTable, ...] = ()  # what Inductor measured while it compiled
    hints: tuple[str, ...] = ()  # what torch's `perf_hints` said

    def at(self, relative: float) -> ModeResult:
        """The row with another time over eager's, and the calls after which that pays."""
        assert self.steady_ms is not None
        pays = break_even(self.one_off_s or 0.0, self.steady_ms / relative, self.steady_ms)
        return replace(self, relative=relative, break_even_calls=pays)

    @property
    def ok(self) -> bool:
        """Tell whether it ran, was right, and was timed."""
        return self.status is Status.OK

    @classmethod
    def of(cls, process: ModeProcess, eager: ModeProcess) -> ModeResult:
        """The row of a mode that was timed, or whose process was lost."""
        if process.loss:
            return cls.untimed(process.mode, Status.CRASH, process.loss)
        loaded, times, first = process.loaded, process.measurement, first_calls(process.loaded.calls_s)
        assert times is not None, "it was timed"
        same = process is eager
        own_ms = times.median_ms
        eager_ms = own_ms / max(process.relative, 1e-9)
        log = CompilerLog.read(process.earlier or process.lines)
        figures = {each.name: getattr(loaded, each.name) for each in fields(cls) if hasattr(loaded, each.name)}
        of_log = {name: getattr(log, name)[:_LONGEST_LIST] for name in ("rerecorded", "skipped", "hints")}
        figures |= {**first, "one_off_s": 0.0} if same else first
        figures |= {"recordings": log.recordings, "recompiles": len(log.recompiled), "tables": log.tables, **of_log}
        return cls(
            name=process.mode.name, status=Status.OK,
            reason="; ".join([*loaded.notes, *left_to_python(loaded)] if process.mode.backend else loaded.notes),
            steady_ms=own_ms, mean_ms=statistics.fmean(times.samples_ms), p20_ms=times.p20_ms, p80_ms=times.p80_ms,
            relative=process.relative,
            break_even_calls=0.0 if same else break_even(first["one_off_s"], eager_ms, own_ms),
            by_call_ms=tuple(statistics.median(each) for each in process.samples_ms if each),
            options=effective_options(process.mode, on_gpu=loaded.device_name != "cpu"), **figures,
        )  # fmt: skip

    @classmethod
    def untimed(cls, mode: CompileMode, status: Status, reason: str, lines: Sequence[str] = ()) -> ModeResult:
        """The row of a mode that did not work, or was not tried."""
        options = {} if refusal(mode) else effective_options(mode)
        return cls(name=mode.name, status=status, reason=reason, options=options, tables=CompilerLog.read(lines).tables)

    def alias(self, mode: CompileMode, same: CompileMode) -> ModeResult:
        """This row, of the mode `same`, as that of another one that makes the same program on this device."""
        reason = f"on this device it is the same program as {same.name}, whose figures these are"
        return replace(self, name=mode.name, reason=reason if self.ok else self.reason)


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The one option that makes a mode slow; without it alone `slower` is `faster`, by the `factor`."""

    option: str
    value: Any
    factor: float
    slower: str
    faster: str
    text: str

    @classmethod
    def among(cls, rows: Sequence[ModeResult]) -> Culprit | None:
        """The option that costs most, among pairs of modes that differ in it alone; None if none costs 5 % or more.

        A mode is only explained if it is slower than the fastest by as much.
        """
        timed = [row for row in rows if row.ok and row.relative is not None]
        if len(timed) < 2:
            return None
        fastest = min(_time(row) for row in timed)
        suspects = [
            (_time(slow) / _time(fast), slow, fast, option)
            for slow, fast, option in _pairs([row for row in timed if row.name != EAGER])
            if _time(slow) >= WORTH_A_WORD * max(fastest, _time(fast)) and _apart(slow, fast)
        ]
        if not suspects:
            return None
        factor, slow, fast, option = max(suspects, key=lambda each: each[0])
        values = [repr(row.options[option]) if option in row.options else "torch's default" for row in (slow, fast)]
        text = (
            f"{slow.name} takes {factor:.2f} times as long as {fast.name}; they differ in {option} alone, which is "
            f"{values[0]} in the slower one and {values[1]} in the faster one"
        )
        value = slow.options.get(option)
        return cls(option=option, value=value, factor=factor, slower=slow.name, faster=fast.name, text=text)


@dataclass(frozen=True, kw_only=True)
class CompileReport:
    """Results of all ways to compile a model, and the one to use.

    Attributes:
        problem: The model and its inputs in words.
        device: The device's name.
        modes: A row for each way, in the order asked.
        recommended: The name of the way to use: never one that is not proven faster than eager.
        culprit: What makes the slow ones slow; None if nothing single was found.
        chosen: The recommended way itself.
        confirmed: How the recommended way and eager compared in fresh processes; empty for eager.
        notes: What else a reader should know.
        folder: Where logs and traces were collected; empty if they were not asked for.
    """

    problem: str
    device: str
    modes: tuple[ModeResult, ...]
    recommended: str
    culprit: Culprit | None = None
    chosen: CompileMode = field(default_factory=lambda: CompileMode("eager", backend=None))
    confirmed: str = ""
    notes: tuple[str, ...] = ()
    folder: str = ""

    def mode(self, name: str) -> ModeResult:
        """The row of a name.

        Raises:
            SettingsError: There is none; the message has the names that there are.
        """
        rows = {row.name: row for row in self.modes}
        if name not in rows:
            raise SettingsError(f"there is no mode {name!r} in this report", hint=f"name one of {', '.join(rows)}")
        return rows[name]

    def apply(self, model: Any) -> Any:
        """`model` compiled in the recommended way, or as it is.

        If weights are to be constants, torch's setting for that is changed for the whole process: there is none for one
        model. Call it under `torch.no_grad()` then. The gate for small GPUs is opened for the whole process too, if the
        recommended way is ungated.
        """
        return compiled(model, self.chosen)

    def as_json(self, details: bool = False) -> dict[str, Any]:
        """The documented JSON object; numbers that are infinite become null when it is written.

        Args:
            details: Whether a further member `details` holds everything else.
        """
        rows = [{name: _plain(getattr(row, name)) for name in _DOCUMENTED} for row in self.modes]
        document: dict[str, Any] = {
            "problem": self.problem, "device": self.device, "modes": rows, "recommended": self.recommended,
            "culprit": _plain(self.culprit),
        }  # fmt: skip
        if details:
            rest = {row.name: {k: v for k, v in _plain(row).items() if k not in _DOCUMENTED} for row in self.modes}
            document["details"] = {
                "modes": rest, "confirmed": self.confirmed, "notes": list(self.notes), "folder": self.folder,
            }  # fmt: skip
        return document


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no form for becomes its text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


_LONGEST_LIST = 20  # reasons of one kind in a row
_PROTOCOL_CALLS = 50  # of a loop as benchmarks often have it, after one call that warms up


def first_calls(calls_s: Sequence[float]) -> dict[str, float]:
    """The figures of a row that the seconds of its first calls tell, in order, each waited for to its end.

    A steady call is the median of the last two. `one_off_s` is how much longer the first calls took than steady ones
    would have.
    """
    steady_s = statistics.median(calls_s[-2:]) if calls_s else 0.0
    later = calls_s[1 : _PROTOCOL_CALLS + 1]
    return {
        "first_call_s": calls_s[0] if calls_s else 0.0,
        "one_off_s": sum(max(each - steady_s, 0.0) for each in calls_s),
        "naive_ms": 1e3 * (sum(later) + (_PROTOCOL_CALLS - len(later)) * steady_s) / _PROTOCOL_CALLS,
    }


def break_even(one_off_s: float, eager_ms: float, own_ms: float) -> float:
    """After how many calls the seconds paid once are won back; infinite for a mode that is not faster than eager."""
    won_ms = eager_ms - own_ms
    return math.ceil(1e3 * one_off_s / won_ms) if won_ms > 0 else math.inf


def left_to_python(loaded: Loaded) -> list[str]:
    """Text on what was not compiled of a model that was to be; empty if all of it was."""
    if loaded.graphs == 0:
        return ["torch compiled nothing of it, so that it runs as it is"]
    if not loaded.breaks:
        return []
    return [f"{loaded.breaks} graph {'break' if loaded.breaks == 1 else 'breaks'}: Python runs between compiled graphs"]


WORTH_A_WORD = 1.05  # a mode that is slower by less than this is not explained
_TRAP = 1.5  # how far a mean over the calls after the first may be off before that is said
# Pairs of torch's modes that differ in CUDA graphs alone.
_NO_GRAPHS = {"max-autotune": "max-autotune-no-cudagraphs", "reduce-overhead": "default"}
_SAME = object()


def verdicts(rows: Sequence[ModeResult]) -> list[str]:
    """Remarks not to be missed: tuned modes slower than untuned ones, and times that a mean would get wrong."""
    by_name = {row.name: row for row in rows if row.ok and row.relative is not None}
    texts = [each for row in by_name.values() if (each := _slower_than_untuned(row, by_name))]
    texts += [each for row in by_name.values() if (each := _trap(row))]
    return texts + [
        f"{row.name} recorded CUDA graphs again {len(row.rerecorded)} times: {row.rerecorded[-1]}"
        for row in by_name.values()
        if row.rerecorded
    ]


def variations(way: CompileMode, options: Mapping[str, Any], values: Mapping[str, Any]) -> list[CompileMode]:
    """Ways that differ from a slow one in a single thing: CUDA graphs, fusion, or where products come from.

    `options` are those that it sets, those of its mode included; `values` those that this torch has.
    """
    graphs = not options.get(CUDAGRAPHS, values.get(CUDAGRAPHS, False))
    changes: list[tuple[str, str, Any]] = [
        (f"{'with' if graphs else 'without'} CUDA graphs", CUDAGRAPHS, graphs),
        ("without epilogue fusion", "epilogue_fusion", False),
        ("without fusion", "max_fusion_size", 1),
    ]
    if options.get("max_autotune"):
        changes.append(("with ATen's products", "max_autotune_gemm_backends", "ATEN"))
        changes.append(("without coordinate descent", "coordinate_descent_tuning", False))
    return [
        CompileMode(f"{way.name} {words}", options={**options, name: value})
        for words, name, value in changes
        if name in values and options.get(name, values[name]) != value
    ]


def _pairs(rows: Sequence[ModeResult]) -> Iterator[tuple[ModeResult, ModeResult, str]]:
    for slow, fast in itertools.permutations(rows, 2):
        names = {*slow.options, *fast.options}
        differing = [n for n in names if slow.options.get(n, _SAME) != fast.options.get(n, _SAME)]
        if len(differing) == 1:
            yield slow, fast, differing[0]


def _slower_than_untuned(row: ModeResult, by_name: Mapping[str, ModeResult]) -> str:
    if not row.options.get("max_autotune") or "default" not in by_name:
        return ""
    ratio = _time(row) / _time(by_name["default"])
    if ratio < WORTH_A_WORD or not _apart(row, by_name["default"]):
        return ""
    advice = _without_graphs(row, by_name)
    return f"{row.name} is {ratio:.2f} times as slow as default, although it tunes: {_causes(row)}{advice}"


def _without_graphs(row: ModeResult, by_name: Mapping[str, ModeResult]) -> str:
    """End of a sentence on the same mode without CUDA graphs: that it is faster, or was not measured; or empty."""
    if (name := _NO_GRAPHS.get(row.name)) is None or not row.options.get(CUDAGRAPHS):
        return ""
    if name not in by_name:
        return f"; {name} is the same without CUDA graphs, and was not timed"
    return f"; {name} is faster" if _time(by_name[name]) * WORTH_A_WORD < _time(row) else ""


def _causes(row: ModeResult) -> str:
    causes = []
    if row.rerecorded:
        causes.append("CUDA graphs are recorded again and again")
    if row.options.get(CUDAGRAPHS):
        causes.append("CUDA graphs copy inputs before each replay")
    if row.skipped:
        causes.append(f"CUDA graphs were skipped: {row.skipped[-1]}")
    causes.append("its templates were chosen by times of single operations, not of the model")
    return ", or ".join(causes)


def _trap(row: ModeResult) -> str:
    """Text on the mean of 50 calls after one warm-up call, where that is far from the steady time."""
    if row.naive_ms is None or not row.calls_s or row.steady_ms is None or row.recordings in (0, None):
        return ""
    steady_ms = max(row.steady_ms, 1e-6)
    if row.naive_ms < _TRAP * steady_ms:
        return ""
    later_s = max(row.calls_s[1:], default=0.0)
    return (
        f"{row.name} records its CUDA graphs at call {row.calls_s.index(later_s) + 1}, which takes {1e3 * later_s:.0f} "
        f"ms once: a mean of 50 calls after one warm-up call would show {row.naive_ms:.3f} ms, in steady state it is "
        f"{row.steady_ms:.3f} ms"
    )


def _apart(slow: ModeResult, fast: ModeResult) -> bool:
    """Tell whether four fifths of the samples of each lie apart from the other's four fifths: noise is no culprit."""
    return slow.p20_ms is None or fast.p80_ms is None or slow.p20_ms > fast.p80_ms


def _time(row: ModeResult) -> float:
    assert row.relative is not None
    return row.relative
