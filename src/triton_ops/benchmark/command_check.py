"""`triton-ops check`: is a candidate that nobody trusts right, and is it faster than a reference?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import NamedFile
from triton_ops.benchmark.checking import Check, ShapeCheck, check
from triton_ops.exceptions import SettingsError
from triton_ops.request import TuneOptions
from triton_ops.terminal import ExitCode, Facts, only_data_on_stdout, option
from triton_ops.timing import Interval
from triton_ops.typed import TypedProblem, TypedTarget

_LARGEST_BYTES = 1 << 20
_HEADER = ("shape", "verdict", "times as fast", "from", "to", "reference ms", "candidate ms")
_CODES = {"wrong": ExitCode.CHECK_FAILED, "suspect": ExitCode.CHECK_FAILED, "undecided": ExitCode.NOT_KNOWN}


def check_command(
    candidate: Annotated[str, option("CANDIDATE", "FILE.py:NAME of a function, a kernel or an Operation.")],
    *,
    against: Annotated[str, option("--against", "What is right, and to be beaten: a TARGET.", "REFERENCE")],
    problem: Annotated[TypedProblem, "shape dtype arg"],
    shapes: Annotated[
        Path | None, option("--shapes", "A file with a --shape in each line; times are taken at all.", "FILE")
    ] = None,
    numpy: Annotated[bool, option("--numpy", "Give NumPy's arrays in place of tensors.")] = False,
    tolerance: Annotated[
        float | None, option("--tolerance", "Relative error that is right; default the rule for rounding.", "SHARE")
    ] = None,
    seconds: Annotated[float, option("--seconds", "About how long it may take.", "S")] = 20.0,
    memory: Annotated[int | None, option("--memory", "Most memory of CANDIDATE's process, in MiB.", "MIB")] = None,
    markdown: Annotated[bool, option("--markdown", "Write Markdown, for pull requests.")] = False,
    device: str | None = None,
    options: Annotated[TuneOptions, "wait"],
    as_json: bool = False,
) -> Facts:
    """Find out whether CANDIDATE is right, and then whether it is faster than REFERENCE, by nothing that it says.

    CANDIDATE runs in a confined process without reference, results, judge or clock. Shapes, values and layouts that
    nobody asked for come first, and a wrong result ends the check at the smallest shape that is found. Every timed call
    has new inputs, and its result is judged.

    Verdicts: `wrong`; `suspect`, right but not to be believed; `faster` and `slower`, with interval; `same`;
    `undecided`, with what would decide. Exit code 5: wrong or suspect; 8: undecided; 2: REFERENCE cannot be used.
    """
    if markdown and as_json:
        raise SettingsError("--markdown excludes --json", hint="leave one of them out")
    if memory is not None:
        SettingsError.checked("--memory", memory, 1, whole=True)
    only_data_on_stdout()
    typed = ["x".join(map(str, shape)) for shape in problem.shapes]
    texts = _read_shapes(shapes) if shapes is not None else [",".join(typed)] if typed else []
    if shapes is not None and typed:
        raise SettingsError("--shapes and --shape exclude each other", hint="write it into the file")
    found = check(
        candidate, TypedTarget(against, problem=problem), kwargs=problem.arguments, shapes=texts, dtype=problem.dtype,
        arrays=numpy, device=device, tolerance=tolerance, seconds=seconds, wait=options.wait,
        memory_bytes=None if memory is None else memory << 20,
    )  # fmt: skip
    facts = facts_of(found)
    return facts.as_markdown if markdown else facts


def _read_shapes(path: Path) -> list[str]:
    """The shapes in a file, one in each line; what follows a `#` is left out."""
    with SettingsError.when(f"{path} cannot be read", "check the path", OSError, ValueError):
        lines = NamedFile(path).read(_LARGEST_BYTES).decode().splitlines()
    texts = [text for line in lines if (text := line.partition("#")[0].strip())]
    if not texts:
        raise SettingsError(f"{path} has no shape", hint="write one in each line, as for --shape")
    return texts


def facts_of(found: Check) -> Facts:
    """A check for a terminal, Markdown and JSON, with its exit code."""
    facts = Facts("check", _as_json(found))
    facts.text(str(found), bold=True)
    if found.shapes:
        facts.table(_HEADER, [_row(shape) for shape in found.shapes], _HEADER[2:])
    facts.text("; ".join(found.tried), "Tried: ")
    if found.refused:
        facts.text("; ".join(found.refused), "Refused: ")
    for note in found.notes:
        facts.tell(note, "note", "yellow")
    facts.code = _CODES.get(found.verdict, ExitCode.DONE)
    return facts


def _row(shape: ShapeCheck) -> list[str]:
    speedup = shape.speedup
    numbers = (speedup.centre, speedup.low, speedup.high, shape.reference_ms, shape.candidate_ms)
    return [shape.shape, shape.verdict, *(f"{number:.4g}" for number in numbers)]


def _as_json(found: Check) -> dict[str, Any]:
    shapes = [{**asdict(shape), **_speedup(shape.speedup)} for shape in found.shapes]
    rest = {name: list(getattr(found, name)) for name in ("suspicion", "tried", "refused", "notes")}
    return {
        "verdict": found.verdict, "candidate": found.names[0], "reference": found.names[1],
        **_speedup(found.speedup), "shapes": shapes, "fault": found.fault and asdict(found.fault),
        "needed": found.needed, "verified": found.verified, **rest,
    }  # fmt: skip


def _speedup(speedup: Interval | None) -> dict[str, Any]:
    if speedup is None:
        return {"speedup": None, "interval": None}
    return {"speedup": speedup.centre, "interval": [speedup.low, speedup.high]}
