"""The way of many programs through a kernel: loops, conditions, jumps and calls, without its data.

The body of a loop is walked for the first turn, the second and the last. What it carries moves evenly from turn to
turn, which the first two tell; the first stands for all but the last, which prices a mask at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.trace import LoopTrace, LoopWork, Trace, Weights
from triton_ops.kernel_ir.ttir_operations import HANDLERS, unknown_results
from triton_ops.kernel_ir.ttir_syntax import Module, TtirOperation, UntoldError
from triton_ops.kernel_ir.ttir_walk import Programs, ProgramScope, TtirWalk
from triton_ops.kernel_ir.values import Value, Vector, advance, equal, merge, unknown

_MOST_OPERATIONS = 40_000  # walked in all, about 0.4 s
_DEEP = 3  # loops within loops up to which turns are told apart
_MOST_TURNS = 1 << 20
_GUESSED = 1024  # of what a loop walks through, where its bounds are data

Alive: TypeAlias = "NDArray[np.bool_]"
Turn: TypeAlias = "Callable[[Sequence[Value], ProgramScope], list[Value]]"
"""One turn of a loop: from what it is entered with to what it hands on."""


def evaluate(module: Module, programs: Programs, arguments: Sequence[Value]) -> Trace:
    """Trace the programs on their way through a kernel with these arguments; raises UntoldError, with the reason.

    Cost: about 10 µs for each operation, and three turns for each loop.
    """
    count = len(programs.ids)
    trace = Trace(count)
    scope = ProgramScope(
        programs=programs,
        trace=trace,
        first_pointers=[],
        values={},
        weight=np.ones(count),
        alive=np.ones(count, dtype=bool),
    )
    _ProgramWalk(module, _MOST_OPERATIONS).call(module.kernel, list(arguments), scope)
    return trace


class _ProgramWalk(TtirWalk[ProgramScope, Value]):
    """A walk of many programs at once, whose values are numbers of each."""

    def _joined(self, ways: list[tuple[ProgramScope, list[Value]]]) -> tuple[ProgramScope, list[Value]] | None:
        while ways and not ways[0][0].alive.any():
            ways = ways[1:]
        if not ways:
            return None
        weight, alive = np.add.reduce([one.weight for one, _ in ways]), np.any([one.alive for one, _ in ways], axis=0)
        return replace(ways[0][0], weight=weight, alive=alive), self._merged(ways)

    def _merged(self, ways: list[tuple[ProgramScope, list[Value]]]) -> list[Value]:
        result: list[Value] = []
        for at, (scope, values) in enumerate(ways):
            result = _either(scope.alive, values, result) if at else values
        return result

    def _jumps(self, last: TtirOperation, scope: ProgramScope) -> list[tuple[str, ProgramScope, list[Value]]]:
        branches = [(label, scope.all(values)) for label, values in last.jumps()]
        if last.name == "cf.br" and len(branches) == 1:
            return [(branches[0][0], scope, branches[0][1])]
        if last.name != "cf.cond_br" or len(branches) != 2:
            raise UntoldError(f"a block ends with {last.name}, which is not known here")
        condition = scope.value(last.operands[0])
        if condition.base is None:
            scope.trace.note("a condition that depends on data is taken to hold for half of the programs")
            half = replace(scope, weight=scope.weight / 2)
            return [(label, half, values) for label, values in branches]
        sides = (condition.base != 0, condition.base == 0)
        return [
            (label, replace(scope, weight=scope.weight * side, alive=scope.alive & side), values)
            for (label, values), side in zip(branches, sides, strict=True)
        ]

    def _other(self, operation: TtirOperation, here: ProgramScope) -> Sequence[Value]:
        return HANDLERS.get(operation.name, unknown_results)(here, operation)

    def _if(self, operation: TtirOperation, scope: ProgramScope) -> list[Value]:
        condition = scope.value(operation.operands[0])
        branches: list[list[Value]] = []
        for blocks, (share, alive) in zip(operation.regions, _sides(condition, operation, scope), strict=False):
            if alive.any():
                last = self._block(blocks[0], replace(scope, weight=scope.weight * share, alive=alive))
                branches.append(scope.yielded(last))
            else:
                branches.append([])
        one, other = (*branches, [], [])[:2]
        if not one or not other:
            return one or other
        if condition.base is None:
            return [a if a is b else unknown(a.type, made_up=True) for a, b in zip(one, other, strict=True)]
        return [merge(condition.base, a, b) for a, b in zip(one, other, strict=True)]

    def _for(self, operation: TtirOperation, scope: ProgramScope) -> list[Value]:
        lower, upper, step = scope.all(operation.operands[1:4])
        count = _turns(lower, upper, step, scope)
        names = (operation.operands[0], *operation.operands[4::2])
        begin = [replace(lower, written=False), *scope.all(operation.operands[5::2])]

        def turn(entries: Sequence[Value], here: ProgramScope) -> list[Value]:
            here.values.update(zip(names, entries, strict=True))
            handed_on = here.yielded(self._block(operation.regions[0][0], here))
            index = entries[0]
            if index.base is not None and step.base is not None:
                index = replace(index, base=index.base + step.base, written=False)
            return [index, *handed_on]

        return self._looped(operation, scope, count, begin, turn)[1:]

    def _while(self, operation: TtirOperation, scope: ProgramScope) -> list[Value]:
        before, after = (region[0] for region in operation.regions)
        names, begin = operation.operands[0::2], scope.all(operation.operands[1::2])

        def test(entries: Sequence[Value], here: ProgramScope) -> tuple[Value, list[Value]]:
            here.values.update(zip(names, entries, strict=True))
            last = self._block(before, here)
            if last is None or last.name != "scf.condition":
                raise UntoldError("a loop has no condition")
            condition, *values = here.all(last.operands)
            return condition, values

        def turn(entries: Sequence[Value], here: ProgramScope) -> list[Value]:
            here.values.update(zip(after.arguments, test(entries, here)[1], strict=True))
            return here.yielded(self._block(after, here))

        quiet = replace(scope, trace=Trace(scope.count), weight=np.zeros_like(scope.weight))
        count = _while_turns(
            begin, lambda entries: test(entries, quiet)[0], lambda entries: turn(entries, quiet), scope.trace
        )
        return test(self._looped(operation, scope, count, begin, turn), quiet)[1]

    def _looped(
        self, operation: TtirOperation, scope: ProgramScope, count: _TurnCount, begin: list[Value], turn: Turn
    ) -> list[Value]:
        """The values that a loop carries at its end, after its first turn, its second and its last."""
        turns, alive = count.turns, scope.alive & (count.turns > 0)
        _enter(operation, scope, count)
        if not alive.any():
            return begin
        loops = (*scope.loops, operation.number)
        again = alive & (turns > 1)
        apart = len(loops) <= _DEEP and bool(again.any())
        share = np.where(again, turns - 1, turns) if apart else turns
        first = replace(scope, weight=scope.weight * share, alive=alive, loops=loops)
        second, before = _watch_turn(turn, begin, first)
        if apart:
            several = replace(first, weight=scope.weight, alive=again)
            outcome = self._ended(turn, (begin, second, before), several, turns)
        else:
            pairs = zip(begin, second, strict=True)
            outcome = [b if a is b else unknown(a.type, root=a.root, made_up=True) for a, b in pairs]
        return _either(alive, outcome, begin)

    def _ended(
        self, turn: Turn, entries: tuple[list[Value], list[Value], dict[int, Value]], scope: ProgramScope, turns: Vector
    ) -> list[Value]:
        """The values at the end by programs that take several turns, and by those that take one."""
        begin, second, before = entries
        third, after = _watch_turn(turn, second, replace(scope, weight=np.zeros_like(scope.weight)))
        for number, pointer in before.items():
            if number in after and number in scope.trace.accesses and equal(pointer, after[number]):
                scope.trace.accesses[number].still.add(scope.loop)
        last = [_at(a, b, c, np.maximum(turns - 1, 0)) for a, b, c in zip(begin, second, third, strict=True)]
        outcome = turn(last, replace(scope, weight=scope.weight * scope.alive))
        return _either(scope.alive, outcome, second)


def _sides(condition: Value, operation: TtirOperation, scope: ProgramScope) -> list[tuple[Weights, Alive]]:
    """For each side of a condition the share of the programs, and which of them are on it."""
    if condition.base is None:
        sides = len(operation.regions)
        assumption = "is taken to hold" if sides == 1 else "is taken to hold for half of the programs"
        scope.trace.note(f"a condition that depends on data {assumption}")
        return [(np.full(scope.count, 1.0 / sides), scope.alive)] * 2
    holds = condition.base != 0
    return [(holds.astype(float), scope.alive & holds), ((~holds).astype(float), scope.alive & ~holds)]


class _TurnCount(NamedTuple):
    """The turns of a loop by program, whether data decides, and whether its bounds are numbers in the text."""

    turns: Vector
    by_data: bool
    written: bool = False


def _turns(lower: Value, upper: Value, step: Value, scope: ProgramScope) -> _TurnCount:
    if step.base is None or step.made_up:
        raise UntoldError("the step of a loop depends on data")
    if (step.base <= 0).any():
        raise UntoldError("a loop has no end")
    if lower.base is None or upper.base is None or lower.made_up or upper.made_up:
        scope.trace.note(f"the bounds of a loop are data; it is taken to count through {_GUESSED}")
        return _TurnCount(np.maximum(1, _GUESSED // step.base), True)
    written = lower.written and upper.written and step.written
    return _TurnCount(np.maximum(0, -((lower.base - upper.base) // step.base)), False, written)


def _enter(operation: TtirOperation, scope: ProgramScope, count: _TurnCount) -> None:
    flags = tuple(flag for flag in ("flatten", "warp_specialize") if f"tt.{flag}" in operation.tail)
    figures = LoopWork(
        parent=-1, entries=0.0, turns=0.0, most=0.0, stages=operation.attribute("tt.num_stages"), flags=flags,
        by_data=False, plain=0.0, special=0.0, written=True,
    )  # fmt: skip
    nothing = LoopTrace(figures, scope.loops, np.zeros(scope.count), np.zeros(scope.count))
    loop = scope.trace.loops.setdefault(operation.number, nothing)
    loop.entries += scope.weight
    loop.turns += scope.weight * count.turns
    by_data, written = loop.figures.by_data or count.by_data, loop.figures.written and count.written
    loop.figures = replace(loop.figures, by_data=by_data, written=written)


def _watch_turn(turn: Turn, entries: Sequence[Value], scope: ProgramScope) -> tuple[list[Value], dict[int, Value]]:
    """The values that a turn hands on, and the pointers of its accesses."""
    scope.first_pointers.append({})
    try:
        return turn(entries, scope), scope.first_pointers[-1]
    finally:
        scope.first_pointers.pop()


def _at(begin: Value, second: Value, third: Value, turns: Vector) -> Value:
    """The value that is carried into the last of several turns: known if it moves evenly."""
    if not (begin.type.whole or begin.type.pointer):
        return third
    one, other = advance(begin, turns, begin, second), advance(second, turns, second, third)
    later = None if one is None else advance(one, np.ones_like(turns), begin, second)
    if one is None or other is None or later is None or not equal(replace(later, axes=other.axes), other):
        return unknown(begin.type, root=begin.root, made_up=True)
    return one


def _while_turns(
    begin: list[Value], condition: Callable[[Sequence[Value]], Value], turn: Callable[..., list[Value]], trace: Trace
) -> _TurnCount:
    """The turns of a loop by program: the first for which its condition fails."""
    first = condition(begin)
    if first.base is None:
        trace.note("the end of a loop depends on data; it is taken for one turn")
        return _TurnCount(np.ones(trace.programs, dtype=np.int64), True)
    second = turn(begin)
    third = turn(second)

    def holds(steps: Vector) -> Alive:
        outcome = condition([_at(*each, steps) for each in zip(begin, second, third, strict=True)])
        if outcome.base is None:
            raise UntoldError("the end of a loop depends on what does not move evenly")
        return np.asarray(outcome.base != 0)

    return _TurnCount(_first_false(holds, trace.programs), False)


def _first_false(holds: Callable[[Vector], Alive], count: int) -> Vector:
    """The first turn, by program, for which a condition does not hold, by doubling and halving."""
    low, high = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    now = holds(low)
    while (on := now & holds(high)).any():
        low, high = np.where(on, high, low), np.where(on, 2 * high, high)
        if (high > _MOST_TURNS).any():
            raise UntoldError("a loop has no end")
    while (high - low > 1).any():
        middle = (low + high) // 2
        on = holds(middle)
        low, high = np.where(on, middle, low), np.where(on, high, middle)
    return np.where(now, high, 0)


def _either(choose: Alive, one: Sequence[Value], other: Sequence[Value]) -> list[Value]:
    return [merge(choose.astype(np.int64), a, b) for a, b in zip(one, other, strict=False)]
