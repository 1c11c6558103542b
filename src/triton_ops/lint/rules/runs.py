"""Faults that only a run shows: accesses outside of tensors, elements never written, programs that conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from triton_ops.kernel_ir import SourcePlace
from triton_ops.lint.findings import Finding, Undecided
from triton_ops.lint.kernel import KernelReading
from triton_ops.lint.rules.base import Rule, Statement
from triton_ops.lint.rules.programs import OVERLAPS_IN_TTIR
from triton_ops.lint.run.record import CONFLICT, OUTSIDE, UNWRITTEN


def _observed(kind: str) -> Callable[[Rule, KernelReading], Iterator[Statement]]:
    """A rule's decision by what was seen of a kind; nothing where no run was asked for."""

    def decide(rule: Rule, kernel: KernelReading) -> Iterator[Statement]:
        if kernel.run is None:
            return
        observations = list(kernel.run.of(kind, kernel.name))
        for one in observations:
            yield replace(rule.found(kernel, SourcePlace(one.file, one.line), one.evidence), level="run")
        if not observations and (why := kernel.run.why_open(kind, kernel.name)):
            yield rule.undecided(kernel, why)

    return decide


def _overlaps_and_conflicts(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """Statements by the TTIR, and beside them those of a run."""
    statements = list(OVERLAPS_IN_TTIR.decide(rule, kernel))
    open_already = any(isinstance(one, Undecided) for one in statements)
    observations = _observed(CONFLICT)(rule, kernel)
    return [*statements, *(one for one in observations if isinstance(one, Finding) or not open_already)]


OVERLAPS = replace(OVERLAPS_IN_TTIR, decide=_overlaps_and_conflicts)
OUTSIDE_TENSOR = Rule(
    id="outside-tensor",
    level="run",
    symptom="wrong results or an illegal address: elements are read or written that belong to no tensor of the launch",
    fix="a mask or an extent that fits the tensor, and the strides that it has",
    decide=_observed(OUTSIDE),
    needs_ttir=False,
)
NEVER_WRITTEN = Rule(
    id="never-written",
    level="run",
    symptom="some elements of the result hold what the memory held before",
    fix="programs and blocks for all of the result; or zero it before each launch, if that is meant",
    decide=_observed(UNWRITTEN),
    needs_ttir=False,
)
