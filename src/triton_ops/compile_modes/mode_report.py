"""Report on the ways to compile a model: a row for each, with the recommended one."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from triton_ops.base import Count, NotNegative, Seconds, require
from triton_ops.compile_modes.backends import open_gate
from triton_ops.compile_modes.compile_mode import CompileMode, effective_options, refusal, settings_of_process
from triton_ops.compile_modes.inductor_logs import AutotuneTable, CompilerLog
from triton_ops.compile_modes.mode_contender import FirstCalls, break_even
from triton_ops.compile_modes.mode_process import Entrant, Loaded
from triton_ops.exceptions import SettingsError
from triton_ops.values import Measurement, Status

_DOCUMENTED = (
    "name", "status", "reason", "steady_ms", "mean_ms", "p20_ms", "p80_ms", "first_call_s", "compile_s", "recordings",
    "recompiles", "peak_bytes", "kernels", "max_error", "break_even_calls",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """Result of one way to compile.

    Attributes:
        name: Its name.
        status: `ok`, or why there are no times: `constraint` if this torch does not know it, `deferred` if the budget
            was used up, else as a trial's.
        reason: Why, in words; of a mode that is ok, what a reader should know.
        steady_ms: Median milliseconds of one call of each kind, in steady state, the host's part included.
        mean_ms: Their mean, in which a few slow calls show.
        p20_ms: A fifth of the samples are faster.
        p80_ms: A fifth of the samples are slower.
        relative: Its time divided by eager's, in the same rounds.
        first_call_s: Seconds of the first call.
        one_off_s: Seconds that are paid once: the first call and any later one that compiled or recorded.
        naive_ms: What a mean of 50 calls after one warm-up call would show.
        compile_s: Seconds in which torch compiled.
        recordings: CUDA graphs that were recorded.
        rerecorded: Why graphs were recorded again.
        skipped: Why CUDA graphs were not used.
        recompiles: How often something was compiled again.
        peak_bytes: Most memory during steady calls.
        kernels: Kernels that one call of each kind launches; None if not known.
        graphs: Graphs that were compiled.
        breaks: Where the model was left to Python in between.
        max_error: Largest difference from the golden results, relative to their largest value.
        break_even_calls: Calls after which `one_off_s` is won back against eager; infinite if it is not faster.
        by_call_ms: Median milliseconds of each kind of call.
        calls_s: Seconds of the first calls.
        options: The options of Inductor that it sets.
        tables: What Inductor measured while it compiled.
        hints: What torch's `perf_hints` said.
    """

    name: str
    status: Status
    reason: str = ""
    steady_ms: NotNegative | None = None
    mean_ms: NotNegative | None = None
    p20_ms: NotNegative | None = None
    p80_ms: NotNegative | None = None
    relative: NotNegative | None = None
    first_call_s: Seconds | None = None
    one_off_s: Seconds | None = None
    naive_ms: NotNegative | None = None
    compile_s: Seconds | None = None
    recordings: Count | None = None
    rerecorded: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    recompiles: Count | None = None
    peak_bytes: Count | None = None
    kernels: Count | None = None
    graphs: Count | None = None
    breaks: Count | None = None
    max_error: NotNegative | None = None
    break_even_calls: float | None = None
    by_call_ms: tuple[float, ...] = ()
    calls_s: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tables: tuple[AutotuneTable, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether it ran, was right, and was timed."""
        return self.status is Status.OK


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The one option that makes a mode slow.

    Attributes:
        option: The option's dotted name.
        value: Its value in the slower mode.
        factor: Time of the slower mode divided by that of the faster one.
        slower: The slower mode.
        faster: The mode that differs in this option alone.
        text: For people.
    """

    option: str
    value: Any
    factor: float
    slower: str
    faster: str
    text: str


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
        if self.chosen.eager:
            return model
        for name, value in settings_of_process(self.chosen).items():
            setattr(require("torch._inductor.config", "compiling a model"), name, value)
        if self.chosen.ungated:
            open_gate()
        return require("torch", "compiling a model").compile(model, **self.chosen.arguments())

    def as_json(self, details: bool = False) -> dict[str, Any]:
        """The documented JSON object; numbers that are infinite become null when it is written.

        Args:
            details: Whether a further member `details` holds everything else.
        """
        rows = [{name: _plain(getattr(row, name)) for name in _DOCUMENTED} for row in self.modes]
        document: dict[str, Any] = {
            "problem": self.problem,
            "device": self.device,
            "modes": rows,
            "recommended": self.recommended,
            "culprit": None if self.culprit is None else _plain(self.culprit),
        }
        if details:
            rest = {row.name: {k: v for k, v in _plain(row).items() if k not in _DOCUMENTED} for row in self.modes}
            document["details"] = {
                "modes": rest, "confirmed": self.confirmed, "notes": list(self.notes), "folder": self.folder,
            }  # fmt: skip
        return document


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no form for becomes its text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


_LONGEST_LIST = 20


def row_of(entrant: Entrant, eager: Entrant) -> ModeResult:
    """The row of a mode that was timed."""
    loaded, arm = entrant.loaded, entrant.arm
    first = FirstCalls(loaded.calls_s)
    times = Measurement(tuple(arm.samples_ms), "wall", max(len(arm.visits), 1))
    same = entrant is eager
    own_ms = times.median_ms
    log = CompilerLog.read(entrant.lines or entrant.process.lines)
    row = ModeResult(
        name=entrant.mode.name,
        status=Status.OK,
        reason="; ".join([*loaded.notes, *left_to_python(loaded)] if entrant.mode.backend else loaded.notes),
        steady_ms=own_ms,
        mean_ms=statistics.fmean(times.samples_ms),
        p20_ms=times.p20_ms,
        p80_ms=times.p80_ms,
        relative=entrant.relative,
        first_call_s=first.first_s,
        one_off_s=0.0 if same else first.one_off_s,
        naive_ms=first.naive_ms(),
        compile_s=loaded.compile_s,
        recordings=log.recordings,
        recompiles=len(log.recompiled),
        peak_bytes=loaded.peak_bytes,
        kernels=loaded.kernels,
        graphs=loaded.graphs,
        breaks=loaded.breaks,
        max_error=loaded.max_error,
        break_even_calls=0.0 if same else break_even(first.one_off_s, own_ms / max(entrant.relative, 1e-9), own_ms),
        by_call_ms=tuple(statistics.median(each) for each in entrant.process.samples_ms if each),
        calls_s=loaded.calls_s,
        options=effective_options(entrant.mode),
    )
    return replace(
        row, rerecorded=log.rerecorded[:_LONGEST_LIST], skipped=log.skipped[:_LONGEST_LIST], tables=log.tables,
        hints=log.hints[:_LONGEST_LIST],
    )  # fmt: skip


def left_to_python(loaded: Loaded) -> list[str]:
    """Text on what was not compiled of a model that was to be; empty if all of it was."""
    if loaded.graphs == 0:
        return ["torch compiled nothing of it, so that it runs as it is"]
    if not loaded.breaks:
        return []
    return [f"{loaded.breaks} graph {'break' if loaded.breaks == 1 else 'breaks'}: Python runs between compiled graphs"]


def failed_row(mode: CompileMode, status: Status, reason: str, lines: Sequence[str] = ()) -> ModeResult:
    """The row of a mode that did not work, or was not tried."""
    options = {} if refusal(mode) else effective_options(mode)
    return ModeResult(
        name=mode.name, status=status, reason=reason, options=options, tables=CompilerLog.read(lines).tables
    )


def alias_row(mode: CompileMode, same: CompileMode, row: ModeResult) -> ModeResult:
    """The row of a mode that makes the same program as another on this device."""
    reason = f"without a GPU there are no CUDA graphs, and it is {same.name}, whose figures these are"
    return replace(row, name=mode.name, reason=reason if row.ok else row.reason)
