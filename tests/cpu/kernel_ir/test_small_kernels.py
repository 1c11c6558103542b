"""All that is read of small kernels, as Triton 3.7 writes them: their facts, padded lanes and figures are golden.

The texts are those of kernels in `tests/cpu/lint/lint_kernels`, one of them with its places in the source, and one with
an operation of each kind. A first line names the parameters of the function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from triton_ops.kernel_ir import AccessFact, KernelFacts, LaunchWork, Operand, Term, UntoldError
from triton_ops.kernel_ir.facts import LoopFact
from triton_ops.kernel_ir.ttir_syntax import parsed_module

FOLDER = Path(__file__).parents[2] / "data" / "ttir"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ttir"))
PARAMETERS = "// parameters: "
PADDINGS = (-math.inf, 0.0, 1.0, math.inf, math.nan)
LAUNCHES = (((5, 3, 2), 37, 8), ((67, 1, 1), 301, 70))  # of more than 64 programs some stand for all
CHARACTERS = 240  # of a term, whose parts follow from those before


def short(*terms: Term | None) -> str:
    words = ["-" if term is None else term.words for term in terms]
    return ", ".join(text if len(text) <= CHARACTERS else text[:CHARACTERS] + "…" for text in words)


def plain(value: object) -> str:
    """A number with six digits, which every machine has; parts of a tuple one by one."""
    if isinstance(value, tuple):
        return f"({' '.join(map(plain, value))})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def figures(value: object) -> str:
    return " ".join(f"{name}={plain(one)}" for name, one in vars(value).items())


def operands_of(text: str, first: int, apart: int) -> list[Operand]:
    """A tensor of 4,000 bytes for each pointer, and whole numbers so far apart, which no tile divides."""
    operands = []
    for at, (name, kind) in enumerate(parsed_module(text).kernel.arguments):
        number = None if kind.pointer or kind.descriptor or not kind.whole else 1 if kind.truth else first + apart * at
        far = dict.fromkeys(("strides", "extents"), (375, 261)[: len(kind.shape)]) if kind.descriptor else {}
        operands.append(Operand(name=name.lstrip("%"), bytes=4000 if number is None else 0, number=number, **far))
    return operands


def of_access(one: AccessFact) -> Iterator[str]:
    yield f"{one.number} {one.kind} {one.does} of {short(one.root)} at {short(one.offset)}"
    yield f"  {one.type} where {short(one.mask)} on {short(one.path)} in {one.loops}"
    if one.block is not None:
        yield f"  {one.block} at {short(*one.at)} of {short(*one.extents)}"
    if one.value is not None:
        yield f"  {short(one.value.term)} from {one.value.source}"
    if one.frames:
        yield "  " + " called at ".join(f"{Path(place.file).name}:{place.line}" for place in one.frames)


def of_loop(facts: KernelFacts, one: LoopFact) -> Iterator[str]:
    yield f"{one.number} loop from {short(one.lower)} to {short(one.upper)} by {short(one.step)} in {one.loops}"
    yield f"  on {short(one.path)} limits {sorted(one.limits)}, counts {facts.loop_of(one.turn) is one}"
    for carried in one.carried:
        yield f"  {carried.place} {short(carried.symbol)} from {short(carried.begin)} to {short(carried.next)}"
    for place, (begin, step) in one.moving.items():
        yield f"  {place} moves from {short(begin)} by {short(step)}"
    yield f"  ends {short(*one.ends)}"


def of_reductions_and_products(facts: KernelFacts) -> Iterator[str]:
    for one in facts.reductions:
        yield f"{one.number} reduces {one.axis} by {one.steps} scans {one.scans} in {one.loops}"
        yield f"  matrix {facts.is_matrix_product(one)} around {sorted(one.around)}"
        yield f"  {short(*(value.term for value in one.inputs))}"
    for one in facts.products:
        yield f"{one.number} multiplies {short(*one.factors)} to {one.type} {one.precision} waits {facts.waits(one)}"


def of_whole_numbers(facts: KernelFacts) -> Iterator[str]:
    for one in facts.multiplications:
        yield f"{one.number} times in {one.bits} bits {short(one.one, one.other)}"
    for bits in (32, 64):
        for term, fact, by in facts.growing(bits, 64):
            yield f"{fact.number} grows in {bits} bits {short(term)} by {by}"
    yield f"widened {short(*facts.widenings)}"
    yield f"narrow {short(*facts.narrow)}"


def of_facts(facts: KernelFacts) -> Iterator[str]:
    for access in (*facts.accesses, *facts.blocks):
        yield from of_access(access)
    for loop in (*facts.loops, *facts.whiles):
        yield from of_loop(facts, loop)
    yield from of_reductions_and_products(facts)
    yield from of_whole_numbers(facts)
    for term, number in facts.loads.items():
        yield f"{number} loads {short(term)}"
    for one in facts.computations:
        yield f"{one.number} computes {one.elements} special {one.special} in {one.way.loops}"
        yield from (f"  {figures(part)}" for part in (one.product, one.reduction) if part is not None)


def of_padding(facts: KernelFacts) -> Iterator[str]:
    for fact, condition, harm in facts.padded_lanes():
        yield f"{fact.number} pads {condition if isinstance(condition, str) else short(condition)}"
        if isinstance(condition, Term):
            yield from (f"  {padding}: {harm(padding) or 'no harm'}" for padding in PADDINGS)


def of_work(text: str, grid: tuple[int, int, int], first: int, apart: int) -> Iterator[str]:
    try:
        work = LaunchWork.of(text, grid, operands_of(text, first, apart))
    except UntoldError as error:
        yield f"{grid} {error}"
        return
    parts = {name: getattr(work, name) for name in ("loops", "accesses", "products", "reduced")}
    yield " ".join(f"{name}={plain(one)}" for name, one in vars(work).items() if name not in ("arguments", *parts))
    for name, several in parts.items():
        yield from (f"  {name} {figures(one)}" for one in several)


@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_read_of_a_kernel_is_golden(name, golden):
    text = (FOLDER / f"{name}.ttir").read_text(encoding="utf-8")
    facts = KernelFacts.of(text, text.partition("\n")[0].removeprefix(PARAMETERS).split(", "))
    lines = [*of_facts(facts), *of_padding(facts), *(line for launch in LAUNCHES for line in of_work(text, *launch))]
    golden(f"ttir/{name}.txt", "\n".join(lines) + "\n")
