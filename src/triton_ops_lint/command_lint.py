"""The command `triton-ops lint`: pitfalls of kernels, with their lines and what to change, without a GPU.

Source of SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any
from urllib.parse import quote

import typer

from triton_ops import settings
from triton_ops.backend import Operation
from triton_ops.base import counted
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.processes import TerminatedError
from triton_ops.terminal import ExitCode, Facts, followed, option
from triton_ops.typed import TypedProblem, TypedTarget
from triton_ops_lint.apart import LintOptions
from triton_ops_lint.engine import BAD, RULES, checked_options, lint, lint_each
from triton_ops_lint.findings import Finding, LintReport, Undecided, merge_reports
from triton_ops_lint.island import text_if_readable

WRONG_RESULTS = (
    "missing-mask", "wrong-mask", "wrong-identity", "stride-order", "low-precision-sum", "overlapping-writes",
    "changed-global", "static-grid", "offset-overflow",
)  # fmt: skip
_MOST_HINTS = 3
_SHOWN = 12
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ANSWERS = ("a comment that answers nothing", "write # triton-ops: ignore[RULE] reason", "source")


def lint_command(
    context: typer.Context,
    targets: Annotated[
        list[str],
        option(
            "TARGET...",
            "FILE.py, a folder, a shipped kernel; package.module:NAME or FILE.py:NAME of a kernel or Operation.",
        ),
    ],
    rule: Annotated[list[str] | None, option("--rule", "Only this rule; may be given several times.", "RULE")] = None,
    sarif: Annotated[
        Path | None, option("--sarif", "Write the findings as SARIF 2.1.0, for code hosts.", "FILE")
    ] = None,
    jsonl: Annotated[bool, option("--jsonl", "Print one line of JSON for each file, as soon as it is read.")] = False,
    jobs: Annotated[
        int | None, option("--jobs", "Files that are read at a time; default all CPUs.", "N", min=1)
    ] = None,
    strict: Annotated[bool, option("--strict", "End with 5 too if a rule is undecided.")] = False,
    pass_without_kernels: Annotated[
        bool, option("--pass-without-kernels", "End with 0 where no target has a kernel, as hooks on any file need.")
    ] = False,
    gpu: str | None = None,
    run: Annotated[
        bool, option("--run", "Import TARGET too, and run its operations once by Triton's interpreter.")
    ] = False,
    no_run: Annotated[
        bool, option("--no-run", "Run nothing of the files; what cannot be decided by reading alone is undecided.")
    ] = False,
    *,
    problem: Annotated[TypedProblem, "shape arg"],
) -> Facts:
    """Look for pitfalls in Triton kernels, without a GPU and, without --run, without launching them.

    Constants and decorators of a file that its kernels need are run, and so are modules beside it: for files of
    strangers use --no-run.

    Each finding has its line, what users see, what decided, and what to change. What a rule cannot decide is said.
    Comments such as `# triton-ops: ignore[missing-mask] callers pad` answer findings of their line.
    Exit code 5: there are findings; 2: there are none, and a file could not be read; 7: no target has a kernel.
    """
    options = checked_options(rule, gpu, run, problem.shape, no_run)
    output = _Output(jsonl)
    with TerminatedError.cleaned_up():
        try:
            output.waiting = lint_each([one for text in targets for one in _targets(text, options, problem)], jobs)
            output.take()
            end = None
        except (KeyboardInterrupt, TerminatedError) as error:
            output.take_what_is_done()  # what was found so far is told, and written as SARIF, all the same
            end = error
        report = merge_reports(output.reports)
        if sarif is not None:
            text = json.dumps(as_sarif(report, str(context.find_root().obj)), indent=2) + "\n"
            Facts.save(sarif, text, "name another file")
        facts = output.end(report)
        if end is not None:
            facts.code = ExitCode.INTERRUPTED
        elif report.findings or (strict and report.undecided):
            facts.code = ExitCode.CHECK_FAILED
        elif report.unread:
            facts.code = ExitCode.BAD_INPUT
        elif not report.kernels:
            facts.tell("nothing was read: no target has a Triton kernel", "warning", "yellow")
            facts.code = ExitCode.DONE if pass_without_kernels else ExitCode.NOTHING_READ
        if isinstance(end, TerminatedError):
            facts.written()  # before the signal ends the process
            raise end
    return facts


class _Output:
    """The reports of a command, which tells what is found as soon as a file is read.

    `waiting` are the files and other targets whose reports are still to come, in their order.
    """

    def __init__(self, as_lines: bool) -> None:
        self._as_lines = as_lines
        self._told: set[tuple[str, str, int]] = set()
        self.reports: list[LintReport] = []
        self.waiting: list[tuple[str, Future[LintReport]]] = []

    def take(self) -> None:
        """Take the reports while they come."""
        waits = (_waited(future) for _, future in tuple(self.waiting))
        for _ in followed(waits, len(self.waiting), "targets"):
            self._tell(*self.waiting[0])
            del self.waiting[0]

    def take_what_is_done(self) -> None:
        """Take the reports that are there, and say of the others that they are not."""
        for name, future in self.waiting:
            if not future.done():
                future = Future()
                future.set_result(LintReport(unread={name: "the run was ended before"}))
            self._tell(name, future)

    def _tell(self, name: str, future: Future[LintReport]) -> None:
        """Tell a report, again where the end of the run came in the middle of it."""
        try:
            report = future.result()
        except TargetError as error:
            report = LintReport(unread={name: str(error)})
        facts = Facts("lint", {"file": name, **report.as_json()})
        fresh = [one for one in report.findings if (one.rule, one.file, one.line) not in self._told]
        for one in fresh:
            facts.text(f" in {one.kernel}" if one.kernel else "", f"{_short(one.file)}:{one.line}: {one.rule}")
            for part in ("symptom", "evidence", "fix"):
                facts.text(getattr(one, part), f"  {part:<10}")
        for file, why in report.unread.items():
            facts.tell(f"{_short(file)} is not read: {why}", "error", "red")
        facts.show_ahead(as_line=self._as_lines)
        self._told.update((one.rule, one.file, one.line) for one in fresh)
        self.reports.append(report)

    def end(self, report: LintReport) -> Facts:
        """What is said at the end, of all reports as one."""
        facts = Facts("lint", report.as_json())
        facts.tell_most(_undecided_lines(report.undecided), _SHOWN, "are undecided")
        counts = f"{counted(len(report.findings), 'finding')} in {counted(len(report.kernels), 'kernel')}"
        answered = f", {len(report.suppressed)} answered by comments" if report.suppressed else ""
        unread = f", {counted(len(report.unread), 'file')} not read" if report.unread else ""
        line = f"{counts}{answered}, {len(report.undecided)} undecided{unread}"
        return facts.tell(line) if self._as_lines else facts.lines(line)


def _waited(future: Future[LintReport]) -> bool:
    """Wait for a report, a second at a time: Python does not see a signal that arrives just before a wait begins."""
    while not futures.wait([future], 1.0).done:
        pass
    return True


def _targets(text: str, options: LintOptions, problem: TypedProblem) -> list[tuple[str, Any, LintOptions]]:
    """The objects or texts that are linted, each with its name, and how.

    A shipped kernel's operation where the text is its name, and a kernel at its launch by the function after an `@`. To
    be run, a file stands for its operations beside itself, and `place:name` for the object; else a text stands for
    itself, and nothing of it is imported.
    """
    if "@" in text.partition(":")[2]:
        if options.no_run:
            raise TargetError(f"{text} is a launch, which runs its file", hint="name the file, or leave --no-run out")
        launch = TypedTarget(text, problem=problem, gpu=options.gpu)
        return [(text, launch.around_list(", which launches no kernel"), options)]
    if text in Operation.shipped_names() and not Path(text).exists():
        return [(text, _operation(Operation.shipped(text)), options)]
    if options.run and text.endswith(".py") and Path(text).is_file():
        values = (_operation(value) for value in TypedTarget(text).values().values() if not isinstance(value, type))
        operations = {id(one): one for one in values if isinstance(one, Operation)}.values()  # each once, in order
        file = (text, text, replace(options, run=not operations))
        return [file, *((f"{text}:{one.name}", one, options) for one in operations)]
    if options.run and ":" in text:
        target = _operation(TypedTarget(text).object())
        return [(text, target if isinstance(target, (Operation, FunctionType)) else text, options)]
    return [(text, text, options)]


def _operation(target: Any) -> Any:
    return getattr(target, "operation", target)


def _undecided_lines(undecided: tuple[Undecided, ...]) -> list[str]:
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for one in undecided:
        reasons.setdefault((one.file, one.kernel, one.why), []).append(one.rule)
    return [
        f"{_short(file)}: undecided in {kernel}: {', '.join(rules)}: {why}"
        for (file, kernel, why), rules in reasons.items()
    ]


def _short(file: str) -> str:
    path, folder = Path(file), settings.current_folder()
    return file if folder is None or not path.is_relative_to(folder) else str(path.relative_to(folder))


def hints(target: Any) -> list[str]:
    """The findings that may be why results of a tune of an operation, or of what holds one, were wrong: one line each.

    Cost: 0.1 to 0.5 s for each kernel, and the import of Triton.
    """
    try:
        findings = lint(target, rules=WRONG_RESULTS).findings
    except TritonKernelError:
        return []  # it launches no Triton kernel that can be read
    lines = [
        f"{Path(one.file).name}:{one.line}: {one.rule} in {one.kernel} may be why: {one.evidence}"
        for one in findings[:_MOST_HINTS]
    ]
    more = len(findings) - _MOST_HINTS
    return [*lines, f"{more} more: triton-ops lint"] if more > 0 else lines


def as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """A report as a log of SARIF 2.1.0, the form in which code hosts take findings.

    What comments answer is suppressed, what is undecided or not read is a note. A result's fingerprint is made of its
    rule, file and kernel and the text of its line, so that code hosts know it again below lines that were added.
    """
    texts = {one.id: (one.symptom, one.fix, one.level) for one in RULES} | {BAD: _ANSWERS}
    sections = {one.id: f"rules.html#{one.id}" for one in RULES} | {BAD: "lint.html#suppressing-a-finding"}
    site = _documentation()
    rules = [
        {
            "id": name, "shortDescription": {"text": symptom}, "help": {"text": fix}, "properties": {"level": level},
            "defaultConfiguration": {"level": "warning"},
            **({"helpUri": f"{site}/reference/{sections[name]}"} if site else {}),
        }
        for name, (symptom, fix, level) in texts.items()
    ]  # fmt: skip
    index = {name: number for number, name in enumerate(texts)}
    prints = _fingerprints([*report.findings, *(one for one, _ in report.suppressed)])
    answers = {one: [{"kind": "inSource", "justification": reason}] for one, reason in report.suppressed}
    results = [
        {
            "ruleId": one.rule, "ruleIndex": index[one.rule], "level": "warning",
            "message": {"text": f"{one.kernel}: {one.symptom}. {one.evidence}. Fix: {one.fix}"},
            "locations": [_location(one.file, one.line)], "partialFingerprints": {"primaryLocationLineHash": mark},
            "properties": {"evidence": one.evidence, "decidedBy": one.level},
            **({"suppressions": answers[one]} if one in answers else {}),
        }
        for one, mark in prints.items()
    ]  # fmt: skip
    notes = [
        {
            "level": "note", "message": {"text": f"{one.kernel}: undecided: {one.why}"},
            "descriptor": {"id": one.rule, "index": index[one.rule]}, "locations": [_location(one.file)],
        }
        for one in report.undecided
    ]  # fmt: skip
    notes += [
        {"level": "error", "message": {"text": f"not read: {why}"}, "locations": [_location(file)]}
        for file, why in report.unread.items()
    ]
    driver = {"name": "triton-ops lint", "version": version, "rules": rules}
    invocation = {"executionSuccessful": not report.unread, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "results": results, "invocations": [invocation]}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _documentation() -> str:
    """The address of the documents, as the installed package names it; empty while it names none."""
    try:
        links = metadata("triton-ops").get_all("Project-URL") or []
    except PackageNotFoundError:  # it runs from a source tree
        return ""
    addresses = dict(link.split(", ", 1) for link in links)
    return str(addresses.get("Documentation", "")).rstrip("/")


def _location(file: str, line: int = 0) -> dict[str, Any]:
    region = {"region": {"startLine": line}} if line else {}
    return {"physicalLocation": {"artifactLocation": _address(file), **region}}


def _address(file: str) -> dict[str, str]:
    """A path below the working folder as a relative one, so that a code host finds the file; else as a file's URI."""
    path, here = Path(file).absolute(), settings.current_folder()
    if here is None or not path.is_relative_to(here):
        return {"uri": path.as_uri()}
    return {"uri": quote(os.fsencode(path.relative_to(here))), "uriBaseId": "%SRCROOT%"}


def _fingerprints(findings: Iterable[Finding]) -> dict[Finding, str]:
    counts: Counter[str] = Counter()
    prints = {}
    for one in findings:
        line = next(iter(text_if_readable(Path(one.file)).splitlines()[one.line - 1 :]), "")
        words = "\0".join((one.rule, _address(one.file)["uri"], one.kernel, line.strip()))
        digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        counts[digest] += 1  # equal lines of a kernel are told apart by their order
        prints[one] = f"{digest}:{counts[digest]}"
    return prints
