"""`triton-ops lint`: pitfalls of kernels, with their lines and what to change, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import typer

from triton_ops import __version__, kernels, settings
from triton_ops._files import write_named
from triton_ops._text import counted
from triton_ops.backend import HasOperation, Operation
from triton_ops.cli.console import (
    CHECK_FAILED,
    Json,
    Verbose,
    bold,
    is_verbose,
    only_data_on_stdout,
    say,
    say_json,
    tell,
)
from triton_ops.cli.target import load_object, operations_in
from triton_ops.lint.engine import lint
from triton_ops.lint.findings import LintReport, Undecided
from triton_ops.lint.sarif import as_sarif

_SHOWN = 12


def lint_command(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...", help="FILE.py, a folder, package.module:kernel, FILE.py:kernel, or a shipped kernel."
        ),
    ],
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="RULE", help="Only this rule; may be given several times.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, for code hosts.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Compile for this GPU or architecture, not here; default sm_90."),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Import TARGET too, and run its operations once by Triton's interpreter.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int:
    """Look for pitfalls in Triton kernels, without a GPU and, without --run, without running them.

    Each finding has its line, what users see, what decided, and what to change. What a rule cannot decide is said.
    Comments such as `# triton-ops: ignore[missing-mask] callers pad` answer findings of their line.
    Exit code 5: there are findings.
    """
    with only_data_on_stdout():
        asked = [one for text in targets for one in _targets(text, run)]
        report = _together([lint(one, rules=rule, gpu=gpu, run=runs) for one, runs in asked])
    if sarif is not None:
        write_named(sarif, json.dumps(as_sarif(report, __version__), indent=2) + "\n")
    if as_json:
        say_json(report.as_json())
    else:
        _say(report)
    return CHECK_FAILED if report.findings else 0


def _targets(text: str, run: bool) -> list[tuple[Any, bool]]:
    """What a text names, and whether each is run.

    A shipped kernel's operation where the text is its name. To be run, a file stands for its operations beside itself,
    and `place:name` for the object; else a text stands for itself, and nothing of it is imported.
    """
    if text in kernels.names() and not Path(text).exists():
        return [(_operation(kernels.load(text)), run)]
    if run and text.endswith(".py") and Path(text).is_file():
        found = operations_in(Path(text))
        return [(text, not found), *((one, True) for one in found)]
    if run and ":" in text:
        found = _operation(load_object(text))
        return [(found if isinstance(found, (Operation, FunctionType)) else text, True)]
    return [(text, run)]


def _operation(found: Any) -> Any:
    return found.operation if isinstance(found, HasOperation) else found


def _together(several: list[LintReport]) -> LintReport:
    """Several reports as one; a finding that two targets have in common is in it once."""
    if len(several) == 1:
        return several[0]
    kernels_of = {name: file for report in several for name, file in report.kernels.items()}
    found = {(one.rule, one.file, one.line): one for report in reversed(several) for one in report.findings}
    return LintReport(
        tuple(sorted(found.values(), key=lambda one: (one.file, one.line, one.rule))),
        tuple(dict.fromkeys(one for report in several for one in report.undecided)),
        kernels_of,
        tuple(dict.fromkeys(one for report in several for one in report.suppressed)),
    )


def _say(report: LintReport) -> None:
    for one in report.findings:
        say(bold(f"{_short(one.file)}:{one.line}: {one.rule}") + (f" in {one.kernel}" if one.kernel else ""))
        say(f"  symptom   {one.symptom}", f"  evidence  {one.evidence}", f"  fix       {one.fix}")
    _tell_undecided(report.undecided, None if is_verbose() else _SHOWN)
    count = len(report.findings)
    told = f"{counted(count, 'finding')} in {counted(len(report.kernels), 'kernel')}"
    answered = f", {len(report.suppressed)} answered by comments" if report.suppressed else ""
    say(f"{told}{answered}, {len(report.undecided)} undecided")


def _tell_undecided(undecided: tuple[Undecided, ...], most: int | None) -> None:
    """One line for each reason of a kernel, on stderr."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in undecided:
        reasons.setdefault((one.kernel, one.why), []).append(one.rule)
    lines = [f"undecided in {kernel}: {', '.join(rules)}: {why}" for (kernel, why), rules in reasons.items()]
    for line in lines[:most]:
        tell(line)
    if most is not None and len(lines) > most:
        tell(f"{len(lines) - most} more are undecided; -v shows them")


def _short(file: str) -> str:
    path, here = Path(file), settings.current_folder()
    return file if here is None or not path.is_relative_to(here) else str(path.relative_to(here))
