"""Accesses of several programs to the same memory: atomic sums, overlapping stores, reads of others."""

from __future__ import annotations

from collections.abc import Iterator

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import AccessFact, Facts
from triton_ops.lint.meaning.terms import ZERO, Term, constant, describe, inner_terms, parts
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant
from triton_ops.lint.rules.indices import indices, root_name

_AXES = "xyz"
_LOCKS = ("exch", "tt.atomic_cas")


def _atomics_of(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Sums of floating point, whose order differs from run to run, where two programs can add to one element."""
    facts = variant.facts
    for access in facts.accesses:
        if access.kind != "atomic" or "fadd" not in access.does or _counts(access):
            continue
        shared = _sharing(facts, access)
        if shared:
            yield rule.found(kernel, access, f"tl.atomic_add on {access.type.element}: {shared}")


def _counts(access: AccessFact) -> bool:
    """Check whether whole numbers are added, whose sum is the same in any order."""
    term = access.value.term if access.value is not None else access.offset
    while term.name in ("choose", "arith.extf", "arith.truncf") and isinstance(term.operands[1], Term):
        term = term.operands[1]
    return term.name in ("arith.sitofp", "arith.uitofp") or (
        term.name == "number" and float(term.operands[0]).is_integer()
    )


def _sharing(facts: Facts, access: AccessFact) -> str:
    """Words for how several programs add to one element; empty if each has elements of its own."""
    for program in _programs(facts):
        if _only_one(access, program):
            continue
        if program.number not in access.offset.inside:
            return (
                f"the address does not depend on program_id({program.operands[0]}), so that all "
                f"programs along {_AXES[program.operands[0]]} add to it"
            )
        part = _unused_part(facts, access, program)
        if part:
            return f"the address does not depend on {part}, so that programs that differ in it add to the same elements"
    if _is_scattered(facts, access):
        return "the address is data, so that any program may add to any element"
    return ""


def _is_scattered(facts: Facts, access: AccessFact) -> bool:
    """Check whether data says where each element goes; a block that begins where data says is the program's own."""
    if access.root.name != "argument":
        return True
    axes = {facts.terms.index(axis).number for axis in range(len(access.type.shape))}
    loads = [one for one in inner_terms(access.offset) if one.name == "load"]
    return any(one.inside & axes for one in loads) or (bool(loads) and not access.offset.inside & axes)


def _programs(facts: Facts) -> list[Term]:
    """The program numbers that decide what the kernel reads, writes or computes."""
    programs: dict[Term, None] = {}
    for access in facts.accesses:
        terms = [access.offset, access.mask, access.path]
        for term in (*terms, *([access.value.term] if access.value else ())):
            for one in inner_terms(term):
                if one.name == "program_id":
                    programs[one] = None
    for loop in facts.loops:
        for term in (loop.lower, loop.upper):
            programs.update(dict.fromkeys(one for one in inner_terms(term) if one.name == "program_id"))
    return sorted(programs)


def _only_one(access: AccessFact, program: Term) -> bool:
    for holder in (access.path, access.mask):
        for one in inner_terms(holder):
            if one.name == ZERO and program.number in one.inside:
                return True
    return False


def _unused_part(facts: Facts, access: AccessFact, program: Term) -> str:
    """A quotient or remainder of the program's number that decides what is read, and not where it is added to."""
    mine = set(inner_terms(access.offset))
    if any(program in monomial for monomial in parts(access.offset)):
        return ""
    others = _parts_of(facts, program)
    quotients = [one for one in mine if one.name in ("quotient", "remainder")]
    if quotients and all(one in mine or any(one in set(inner_terms(two)) for two in quotients) for one in others):
        return ""
    return next((describe(one) for one in others if one not in mine), "")


def _parts_of(facts: Facts, program: Term) -> list[Term]:
    """The quotients and remainders of a program's number that decide what is read."""
    deciding = [access.offset for access in facts.accesses if access.kind == "load"]
    deciding += [term for loop in facts.loops for term in (loop.lower, loop.upper)]
    quotients = (one for term in deciding for one in inner_terms(term) if one.name in ("quotient", "remainder"))
    return list(dict.fromkeys(one for one in quotients if program.number in one.inside))


def _overlaps_of(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    facts = variant.facts
    locked = any(access.kind == "atomic" and any(word in access.does for word in _LOCKS) for access in facts.accesses)
    for access in facts.accesses:
        if access.kind != "store":
            continue
        for program in _programs(facts):
            if _touches(facts, access, program) or not _depends(
                facts, access.value.term if access.value else access.offset, program
            ):
                continue
            what = (
                f"the store to {root_name(access)} goes to the same place for every {describe(program)}, and what it "
                "stores differs"
            )
            why = "the kernel has a lock, whose order is not followed" if locked else _promise(kernel, variant, access)
            if why:
                yield rule.undecided(kernel, f"line {kernel.place(access).line}: {what}; {why}")
            else:
                yield rule.found(kernel, access, what)
        if (step := _narrow_step(kernel, variant, access)) is not None:
            yield rule.found(kernel, access, step)
    if not locked:
        yield from _others_stores(rule, kernel, variant)


def _promise(kernel: KernelReading, variant: Variant, access: AccessFact) -> str:
    """A switch without which the store is not there: whoever sets it may launch one program along that axis."""
    line = kernel.place(access).line
    for other in kernel.variants:
        turned = [name for name, value in variant.guess.constants.items() if other.guess.constants[name] is not value]
        lines = {kernel.place(one).line for one in other.facts.accesses if one.kind == "store"}
        if len(turned) == 1 and isinstance(variant.guess.constants[turned[0]], bool) and line not in lines:
            return f"{turned[0]} decides whether it is there, and may say that there is one such program"
    return ""


def _touches(facts: Facts, access: AccessFact, program: Term) -> bool:
    return any(_depends(facts, term, program) for term in (access.offset, access.mask, access.path, access.root))


def _depends(facts: Facts, term: Term, symbol: Term) -> bool:
    """Check whether a term depends on a symbol, also through what loops carry and what was loaded."""
    queue, numbers = [term], set()
    while queue:
        for one in inner_terms(queue.pop()):
            if one is symbol:
                return True
            if one.name in ("was there", "scaled dot"):
                return True
            if one.name in ("carried", "after", "turn", "turns") and one.number not in numbers:
                numbers.add(one.number)
                queue += _made_of(facts, one)
    return False


def _made_of(facts: Facts, symbol: Term) -> list[Term]:
    number, *place = symbol.operands[:2]
    bounds = [term for loop in facts.loops if loop.number == number for term in (loop.lower, loop.upper)]
    carried = None if symbol.name in ("turn", "turns") else facts.carried.get((number, *place))
    return [*bounds, *((carried.begin, carried.next) if carried else ())]


def _narrow_step(kernel: KernelReading, variant: Variant, access: AccessFact) -> str | None:
    """Blocks of neighbouring programs that overlap: the step between them is smaller than the block."""
    if not kernel.function.constants <= variant.guess.known_names | {name for c in kernel.configs for name in c}:
        return None
    for index in indices(variant.facts, access):
        for program in (one for one in index.stepping if one.name == "program_id"):
            step = parts(index.term).get((program,), 0)
            inside = program.number in access.mask.inside
            if 0 < step < index.extent and not inside and constant(index.stride) == 1:
                return (
                    f"programs step by {step} and store blocks of {index.extent}, so that neighbours "
                    "write the same elements"
                )
    return None


def _others_stores(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Loads of what a neighbouring program stores in the same launch."""
    facts, terms = variant.facts, variant.facts.terms
    stores = [one for one in facts.accesses if one.kind == "store" and one.root.name == "argument" and not one.loops]
    for load in (one for one in facts.accesses if one.kind == "load" and not one.loops):
        for store in stores:
            if load.root is not store.root or load.type.shape != store.type.shape or not store.type.shape:
                continue
            apart = constant(terms.add((1, load.offset), (-1, store.offset)))
            near = any(
                one.stepping and abs(apart or 0) < one.extent and constant(one.stride) == 1
                for one in indices(facts, store)
            )
            if apart and near:
                yield rule.found(
                    kernel, load,
                    f"this reads {root_name(load)} {abs(apart)} elements {'before' if apart < 0 else 'after'} what "
                    f"line {kernel.place(store).line} stores there: at the edge of a block that is another program's, "
                    "which may run before or after",
                    fix="write the result to another tensor",
                )  # fmt: skip


ATOMICS = Rule(
    id="cross-program-atomic",
    level="ttir",
    symptom="results differ in their last bits from run to run, the output must be zeroed before each "
    "launch, and speed "
    "depends on how programs collide",
    fix="two passes: each program stores its partial result, and a second kernel adds them up in a fixed order",
    decide=in_each_variant(_atomics_of),
)
OVERLAPS_IN_TTIR = Rule(
    id="overlapping-writes",
    level="ttir",
    symptom="results depend on which program runs last: several write the same elements, or read what another writes",
    fix="let the address depend on every program_id that the launch has, or store from one program alone",
    decide=in_each_variant(_overlaps_of),
)
