"""Which single option makes a mode slow: pairs of modes that differ in one option name it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton_ops.compile_modes.report import Culprit, ModeResult
from triton_ops.inductor.modes import CUDAGRAPHS, EAGER, CompileMode

WORTH_A_WORD = 1.05  # a mode that is slower by less than this is not explained
_TRAP = 1.5  # how far a mean over the calls after the first may be off before that is said
_NO_GRAPHS = {"max-autotune": "max-autotune-no-cudagraphs", "reduce-overhead": "default"}
_SAME = object()


def culprit_of(rows: Sequence[ModeResult]) -> Culprit | None:
    """The option that costs most, among pairs of modes that differ in it alone; None if none costs 5 % or more.

    A mode is only explained if it is slower than the fastest by as much.
    """
    timed = [row for row in rows if row.ok and row.relative is not None]
    if len(timed) < 2:
        return None
    fastest = min(_time(row) for row in timed)
    found = [
        (_time(slow) / _time(fast), slow, fast, option)
        for slow, fast, option in _pairs([row for row in timed if row.name != EAGER])
        if _time(slow) >= WORTH_A_WORD * max(fastest, _time(fast)) and _apart(slow, fast)
    ]
    if not found:
        return None
    factor, slow, fast, option = max(found, key=lambda each: each[0])
    value = slow.options.get(option)
    how = f"{option}={value}" if option in slow.options else f"without {option}={fast.options[option]}"
    text = f"{slow.name} takes {factor:.2f} times as long as {fast.name}, and differs from it in {how} alone"
    return Culprit(option=option, value=value, factor=factor, slower=slow.name, faster=fast.name, text=text)


def verdicts(rows: Sequence[ModeResult]) -> list[str]:
    """What a reader must not miss: tuned modes slower than untuned ones, and times that a mean would get wrong."""
    by_name = {row.name: row for row in rows if row.ok and row.relative is not None}
    said = [each for row in by_name.values() if (each := _slower_than_untuned(row, by_name))]
    said += [each for row in by_name.values() if (each := _trap(row))]
    return said + [
        f"{row.name} recorded CUDA graphs again {len(row.rerecorded)} times: {row.rerecorded[-1]}"
        for row in by_name.values()
        if row.rerecorded
    ]


def variations(asked: CompileMode, options: Mapping[str, Any], known: Mapping[str, Any]) -> list[CompileMode]:
    """Ways that differ from a slow one in a single thing: CUDA graphs, fusion, or where products come from.

    Args:
        asked: The slow way.
        options: The options that it sets, those of its mode included.
        known: The options that this torch has, with their values.
    """
    changes: list[tuple[str, str, Any]] = [
        ("cudagraphs", CUDAGRAPHS, not options.get(CUDAGRAPHS, known.get(CUDAGRAPHS, False))),
        ("no epilogue fusion", "epilogue_fusion", False),
        ("no fusion", "max_fusion_size", 1),
    ]
    if options.get("max_autotune"):
        changes.append(("ATen's products", "max_autotune_gemm_backends", "ATEN"))
        changes.append(("no coordinate descent", "coordinate_descent_tuning", False))
    found = []
    for word, name, value in changes:
        if name in known and options.get(name, known[name]) != value:
            label = f"no {word}" if name == CUDAGRAPHS and not value else word
            found.append(CompileMode(f"{asked.name}, {label}", options={**options, name: value}))
    return found


def _pairs(rows: Sequence[ModeResult]) -> Iterator[tuple[ModeResult, ModeResult, str]]:
    for slow in rows:
        for fast in rows:
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
    """Whether the same mode without CUDA graphs is the one to use, as a part of a sentence; it may not be measured."""
    if (name := _NO_GRAPHS.get(row.name)) is None:
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
    """What a mean of 50 calls after one warm-up call would show, where that is far from the steady time."""
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
    """Whether four fifths of the samples of each lie apart from four fifths of the other's: noise is no culprit."""
    if slow.p20_ms is None or fast.p80_ms is None:
        return True
    return slow.p20_ms > fast.p80_ms


def _time(row: ModeResult) -> float:
    assert row.relative is not None
    return row.relative
