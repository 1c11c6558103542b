"""`triton-ops why`: the config that a call of TARGET would run, or those that a process ran, and from which rung."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from triton_ops.base import counted
from triton_ops.dispatch import Decision, LaunchedConfig, would_run
from triton_ops.records import Lockfile
from triton_ops.terminal import Facts, option
from triton_ops.typed import TypedProblem, TypedTarget


def why_command(
    target: Annotated[str, option("TARGET", "As for tune; or a FILE.json that TRITON_OPS_REPORT named.")],
    problem: Annotated[TypedProblem, "shape dtype arg"],
    device: str | None = None,
    lockfile: Annotated[Path | None, option("--lockfile", "The lockfile that is asked first.", "FILE")] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Say which config a call would run, from which rung of the ladder, and why every rung above did not answer.

    Nothing is run or compiled. For a report of a process, say what was launched, how often, and why.

    Of the nearest record the fields that differ are shown, each as `field: asked | recorded`.
    """
    if target.endswith(".json"):
        return _report_facts(target)
    typed_target = TypedTarget(target, cache_dir, problem)
    operation, _, extents, element = typed_target.tuned(typed_target.operation(", whose calls nothing decides"))
    # Not by its class, whose import would import Triton.
    decision = operation.why(device) if hasattr(operation, "why") else would_run(
        operation, shape=extents, dtype=element, device=device, cache_dir=cache_dir,
        lockfile=None if lockfile is None else Lockfile.read(lockfile),
    )  # fmt: skip
    own = Facts.members(decision, "kernel", "problem", "device")
    answer = Facts.members(decision.found, "rung", "config", "why", "record")
    return Facts("why", {**own, **answer, "passed": decision.passed}).listing(_facts(decision))


def _facts(decision: Decision) -> dict[str, str]:
    answer = decision.found
    facts = {
        "kernel": f"{decision.kernel} {decision.problem}".rstrip(), "device": decision.device,
        "config": str(answer.config), "from": answer.rung, "why": answer.why,
    }  # fmt: skip
    rungs = [text.partition(": ") for text in decision.passed]
    return {**facts, **{f"not from {rung}": why for rung, _, why in rungs}}


def _report_facts(path: str) -> Facts:
    rows = LaunchedConfig.read_report(path)
    total = sum(row.launches for row in rows)
    facts = Facts("why", {"launches": rows})
    return facts.lines(f"{counted(total, 'launch')} in {counted(len(rows), 'problem')}", *(row.text for row in rows))
