"""Rows of the report: from what was found of a mode to what is told of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from triton_ops.compile_modes.calls import FirstCalls, break_even
from triton_ops.compile_modes.questions import Loaded
from triton_ops.compile_modes.report import ModeResult
from triton_ops.compile_modes.rounds import Entrant
from triton_ops.inductor.logs import read_log
from triton_ops.inductor.modes import CompileMode, effective_options, refusal
from triton_ops.trial import Measurement, Status

_LONGEST_LIST = 20


def row_of(entrant: Entrant, eager: Entrant) -> ModeResult:
    """The row of a mode that was timed."""
    loaded, arm = entrant.loaded, entrant.arm
    first = FirstCalls(loaded.calls_s)
    times = Measurement(tuple(arm.samples_ms), "wall", max(len(arm.visits), 1))
    same = entrant is eager
    own_ms = times.median_ms
    log = read_log(entrant.lines or entrant.process.lines)
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
    """What was not compiled of a model that was to be, in words; empty if all of it was."""
    if loaded.graphs == 0:
        return ["torch compiled nothing of it, so that it runs as it is"]
    if not loaded.breaks:
        return []
    return [f"{loaded.breaks} graph {'break' if loaded.breaks == 1 else 'breaks'}: Python runs between compiled graphs"]


def failed_row(mode: CompileMode, status: Status, reason: str, lines: Sequence[str] = ()) -> ModeResult:
    """The row of a mode that did not work, or was not tried."""
    options = {} if refusal(mode) else effective_options(mode)
    return ModeResult(name=mode.name, status=status, reason=reason, options=options, tables=read_log(lines).tables)


def alias_row(mode: CompileMode, same: CompileMode, row: ModeResult) -> ModeResult:
    """The row of a mode that makes the same program as another on this device."""
    reason = f"without a GPU there are no CUDA graphs, and it is {same.name}, whose figures these are"
    return replace(row, name=mode.name, reason=reason if row.ok else row.reason)
