"""Grids that do not follow the size of the data, or the block sizes that are tuned."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from triton_ops.lint.kernel import KernelReading
from triton_ops.lint.meaning.terms import inner_terms, parts
from triton_ops.lint.rules.base import Rule, Statement
from triton_ops.lint.rules.indices import all_indices, arguments_in
from triton_ops.lint.source.launches import SourceLaunch


def _find_static(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    for launch in kernel.launches:
        if launch.grid is None:
            continue
        stepped = _stepped_limits(kernel)
        if stepped is None:
            yield rule.undecided(kernel, f"how it steps from program to program cannot be read: {kernel.lowered[1]}")
            return
        tuned_extents = _tuned_steps(kernel)
        if (
            tuned_extents
            and not _may_follow_config(launch)
            and not (_is_function(launch) and _strides_the_grid(kernel))
        ):
            yield rule.found(
                kernel, launch.line,
                f"the grid {ast.unparse(launch.grid)} is no function of the config, and {', '.join(tuned_extents)}, by "
                "which programs step, differs between configs: with blocks smaller than the grid was made for, some "
                "elements are never computed; with larger ones, programs are left over",
                fix=f"grid = lambda meta: (triton.cdiv(n, meta[{tuned_extents[0]!r}]),)",
            )  # fmt: skip
        elif stepped and _is_fixed(launch) and not _strides_the_grid(kernel):
            yield rule.found(
                kernel, launch.line,
                f"the grid {ast.unparse(launch.grid)} does not depend on {', '.join(sorted(stepped))}, at which the "
                "stepped index ends: elements beyond the last program are never computed",
            )  # fmt: skip


def _stepped_limits(kernel: KernelReading) -> set[str] | None:
    """The arguments at which an index ends that steps from program to program; None if nothing could be read."""
    if not kernel.variants:
        return None
    return {
        name
        for index in all_indices(kernel.variants[0].facts)
        if any(one.name == "program_id" and parts(index.term).get((one,), 0) for one in index.stepping)
        for bound in index.bounds
        if bound.fits
        for name in arguments_in(bound.last)
    }


def _tuned_steps(kernel: KernelReading) -> list[str]:
    variant, extents = kernel.tuned
    if variant is None:
        return []
    stepping = (one for one in all_indices(variant.facts) if one.plain and one.tiled("program_id"))
    return sorted({extents[one.extent] for one in stepping if one.extent in extents})


def _may_follow_config(launch: SourceLaunch) -> bool:
    """Check whether a grid may follow the config: a function does that reads its first parameter, or cannot be read."""
    grid = launch.grid
    if not isinstance(grid, ast.Lambda):
        return _is_function(launch)
    parameters = [*grid.args.posonlyargs, *grid.args.args, grid.args.vararg, grid.args.kwarg]
    names = {one.arg for one in parameters[:1] + parameters[-2:] if one is not None}
    inside = launch.made_from(grid)
    nodes = [inner for one in inside for inner in ast.walk(one)]
    return not inside or any(isinstance(one, ast.Name) and one.id in names for one in nodes)


def _is_function(launch: SourceLaunch) -> bool:
    return isinstance(launch.grid, (ast.Lambda, ast.Name, ast.Attribute, ast.Call))


def _is_fixed(launch: SourceLaunch) -> bool:
    grid = launch.grid.body if isinstance(launch.grid, ast.Lambda) else launch.grid
    if grid is None:
        return False
    names = [one for one in ast.walk(grid) if isinstance(one, (ast.Name, ast.Attribute, ast.Call))]
    return all(isinstance(one, ast.Name) and isinstance(launch.literal(one), int) for one in names)


def _strides_the_grid(kernel: KernelReading) -> bool:
    """Check whether programs go on to further blocks, so that any number of them does all the work."""
    facts = kernel.variants[0].facts
    for loop in facts.loops:
        if any(
            one.name in ("num_programs", "program_id") for term in (loop.step, loop.lower) for one in inner_terms(term)
        ):
            return True
    return any(one.name == "num_programs" for access in facts.accesses for one in inner_terms(access.offset))


STATIC = Rule(
    id="static-grid",
    level="source",
    symptom="the end of large inputs is never computed, or the tuned block sizes do not fit the number of programs",
    fix="make the grid from the size of the data and the block: (triton.cdiv(n, BLOCK),)",
    decide=_find_static,
    needs_ttir=False,
)
