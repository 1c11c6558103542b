"""What the configs of a space take on several architectures, side by side: what is good on one may spill on another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triton_ops.cli.console import bold
from triton_ops.cli.layout import paragraph, table
from triton_ops.trial import Compiled


def side_by_side(
    problem: str, by_arch: Mapping[str, Sequence[Compiled]], elapsed_s: float, columns: int | None
) -> list[str]:
    """The lines of a table with a column for each architecture, and of what differs between them.

    Args:
        problem: The problem, in words.
        by_arch: What became of the configs, in one order, by architecture.
        elapsed_s: Seconds that compiling took.
        columns: The columns of a line; None is no limit.
    """
    rows = [[*map(_cell, each), str(each[0].config)] for each in zip(*by_arch.values(), strict=True)]
    header, *lines = table((*by_arch, "config"), rows, columns)
    head = f"{problem} for {', '.join(by_arch)}: registers and spilled bytes per thread"
    said = [head, bold(header), *lines]
    for arch, results in by_arch.items():
        said += paragraph("", _summary(arch, results), columns)
    for text in _differences(by_arch):
        said += paragraph("", text, columns)
    return [*said, f"{len(rows)} configs on {len(by_arch)} targets, {elapsed_s:.1f} s"]


def _cell(result: Compiled) -> str:
    registers = result.resources.registers if result.resources else None
    if not result.launchable or registers is None:
        return str(result.status)
    return f"{registers}, spills {_spills(result):,}" if _spills(result) else f"{registers}"


def _spills(result: Compiled) -> int:
    """Spilled bytes per thread of what can be launched."""
    return (result.resources.spill_bytes or 0) if result.launchable and result.resources else 0


def _clean(result: Compiled) -> bool:
    return result.launchable and result.resources is not None and not _spills(result)


def _summary(arch: str, results: Sequence[Compiled]) -> str:
    clean, spilling = sum(map(_clean, results)), sum(_spills(result) > 0 for result in results)
    return f"{arch}: {clean} without spills, {spilling} spill, {len(results) - clean - spilling} cannot run"


def _differences(by_arch: Mapping[str, Sequence[Compiled]]) -> list[str]:
    """For each pair of architectures how many configs are good on the one and not on the other."""
    found = []
    for arch, results in by_arch.items():
        for other, its in by_arch.items():
            pairs = [(a, b) for a, b in zip(results, its, strict=True) if _clean(a) and not _clean(b)]
            spilling = sum(_spills(b) > 0 for _, b in pairs)
            if pairs:
                found.append(
                    f"of those without spills on {arch}, {spilling} spill on {other}, and {len(pairs) - spilling} "
                    "cannot run there"
                )
    return found
