"""The command `triton-ops lint`: pitfalls of kernels, with their lines and what to change, without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import typer

from triton_ops import kernels, settings
from triton_ops.backend import HasOperation, Operation
from triton_ops.base import NamedFile, counted
from triton_ops.exceptions import DeviceError, KernelTypeError, MissingDependencyError, TargetError
from triton_ops.lint.engine import BAD, RULES, lint
from triton_ops.lint.findings import Finding, LintReport, Undecided, merge_reports
from triton_ops.lint.rules.base import Rule
from triton_ops.request import module_at, named_object
from triton_ops.terminal import ExitCode, Facts, Gpu, only_data_on_stdout, option

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """A report as a SARIF 2.1.0 log with one run, the form in which code hosts take findings.

    What comments answer is in it as suppressed, undecided rules as notes. Source:
    https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
    """
    rules = [*map(_rule, RULES), {"id": BAD, "shortDescription": {"text": "a comment that answers nothing"}}]
    results = [_result(one) for one in report.findings]
    results += [
        {**_result(one), "suppressions": [{"kind": "inSource", "justification": reason}]}
        for one, reason in report.suppressed
    ]
    notes = [
        {"level": "note", "message": {"text": f"{one.kernel}: undecided: {one.why}"}, "descriptor": {"id": one.rule}}
        for one in report.undecided
    ]
    driver = {"name": "triton-ops lint", "version": version, "rules": rules}
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "results": results, "invocations": [invocation]}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    texts = {"shortDescription": {"text": rule.symptom}, "help": {"text": rule.fix}}
    return {"id": rule.id, **texts, "properties": {"level": rule.level}}


def _result(one: Finding) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(one.file)}, "region": {"startLine": one.line}}
    return {
        "ruleId": one.rule,
        "level": "warning",
        "message": {"text": f"{one.kernel}: {one.symptom}. {one.evidence}. Fix: {one.fix}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"evidence": one.evidence, "decidedBy": one.level},
    }


def _uri(file: str) -> str:
    """A path below the working folder as a relative one, so that a code host finds the file; else as a file's URI."""
    if (here := settings.current_folder()) is None:
        return Path(file).as_uri()
    path = Path(file).absolute()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_uri()


WRONG_RESULTS = (
    "missing-mask", "wrong-mask", "wrong-identity", "stride-order", "low-precision-sum", "overlapping-writes",
    "changed-global", "static-grid", "offset-overflow",
)  # fmt: skip
_MOST_HINTS = 3
_SHOWN = 12


def lint_command(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...", help="FILE.py, a folder, package.module:kernel, FILE.py:kernel, or a shipped kernel."
        ),
    ],
    rule: Annotated[list[str] | None, option("--rule", "Only this rule; may be given several times.", "RULE")] = None,
    sarif: Annotated[
        Path | None, option("--sarif", "Write the findings as SARIF 2.1.0, for code hosts.", "FILE")
    ] = None,
    gpu: Gpu = None,
    run: Annotated[
        bool, option("--run", "Import TARGET too, and run its operations once by Triton's interpreter.")
    ] = False,
) -> Facts:
    """Look for pitfalls in Triton kernels, without a GPU and, without --run, without running them.

    Each finding has its line, what users see, what decided, and what to change. What a rule cannot decide is said.
    Comments such as `# triton-ops: ignore[missing-mask] callers pad` answer findings of their line.
    Exit code 5: there are findings; 2: there are none, and a file could not be read.
    """
    with only_data_on_stdout():
        reports = [_linted(text, rule, gpu, run) for text in targets]
    report = merge_reports([one for one in reports if isinstance(one, LintReport)])
    errors = {text: one for text, one in zip(targets, reports, strict=True) if not isinstance(one, LintReport)}
    if len(errors) == len(targets):
        raise next(iter(errors.values()))
    report = replace(report, unread={**report.unread, **{text: error.message for text, error in errors.items()}})
    if sarif is not None:
        NamedFile(sarif).write(json.dumps(as_sarif(report, str(context.find_root().obj)), indent=2) + "\n")
    facts = _facts(report)
    if report.findings or report.unread:
        facts.code = ExitCode.CHECK_FAILED if report.findings else ExitCode.BAD_INPUT
    return facts


def _linted(
    text: str, rules: list[str] | None, gpu: str | None, run: bool
) -> LintReport | TargetError | KernelTypeError:
    try:
        return merge_reports([lint(one, rules=rules, gpu=gpu, run=is_run) for one, is_run in _targets(text, run)])
    except (TargetError, KernelTypeError) as error:
        return error


def _targets(text: str, run: bool) -> list[tuple[Any, bool]]:
    """The objects or texts that are linted, and whether each is run.

    A shipped kernel's operation where the text is its name. To be run, a file stands for its operations beside itself,
    and `place:name` for the object; else a text stands for itself, and nothing of it is imported.
    """
    if text in kernels.names() and not Path(text).exists():
        return [(_operation(kernels.load(text)), run)]
    if run and text.endswith(".py") and Path(text).is_file():
        operations = _operations_in(text)
        return [(text, not operations), *((one, True) for one in operations)]
    if run and ":" in text:
        target = _operation(named_object(text))
        return [(target if isinstance(target, (Operation, FunctionType)) else text, True)]
    return [(text, run)]


def _operation(target: Any) -> Any:
    return target.operation if isinstance(target, HasOperation) else target


def _facts(report: LintReport) -> Facts:
    facts = Facts("lint", report.as_json())
    for one in report.findings:
        facts.text(f" in {one.kernel}" if one.kernel else "", f"{_short(one.file)}:{one.line}: {one.rule}")
        facts.lines(f"  symptom   {one.symptom}", f"  evidence  {one.evidence}", f"  fix       {one.fix}")
    facts.tell_most(_undecided_lines(report.undecided), _SHOWN, "are undecided")
    for file, why in report.unread.items():
        facts.tell(f"{_short(file)} is not read: {why}", "error", "red")
    counts = f"{counted(len(report.findings), 'finding')} in {counted(len(report.kernels), 'kernel')}"
    answered = f", {len(report.suppressed)} answered by comments" if report.suppressed else ""
    unread = f", {counted(len(report.unread), 'file')} not read" if report.unread else ""
    return facts.lines(f"{counts}{answered}, {len(report.undecided)} undecided{unread}")


def _undecided_lines(undecided: tuple[Undecided, ...]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in undecided:
        reasons.setdefault((one.kernel, one.why), []).append(one.rule)
    return [f"undecided in {kernel}: {', '.join(rules)}: {why}" for (kernel, why), rules in reasons.items()]


def _short(file: str) -> str:
    path, folder = Path(file), settings.current_folder()
    return file if folder is None or not path.is_relative_to(folder) else str(path.relative_to(folder))


def hints(target: Any) -> list[str]:
    """The findings that may be why results of a tune of an operation, or of what holds one, were wrong: one line each.

    Cost: 0.1 to 0.5 s for each kernel, and the import of Triton.
    """
    try:
        findings = lint(target, rules=WRONG_RESULTS).findings
    except (TargetError, MissingDependencyError, DeviceError, KernelTypeError):
        return []  # it launches no Triton kernel that can be read
    lines = [
        f"{Path(one.file).name}:{one.line}: {one.rule} in {one.kernel} may be why: {one.evidence}"
        for one in findings[:_MOST_HINTS]
    ]
    more = len(findings) - _MOST_HINTS
    return [*lines, f"{more} more: triton-ops lint"] if more > 0 else lines


def _operations_in(path: str) -> list[Operation]:
    """The operations that a file has at its top level, in their order, each once; the file is imported."""
    values = [value for value in vars(module_at(path)).values() if not isinstance(value, type)]
    operations = [value.operation if isinstance(value, HasOperation) else value for value in values]
    return list({id(one): one for one in operations if isinstance(one, Operation)}.values())
