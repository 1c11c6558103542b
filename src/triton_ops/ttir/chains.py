"""Which products of tiles wait for each other within one turn of a loop.

The score of attention must be whole before its softmax begins, and the softmax before the second product: nothing of
one turn overlaps. A product whose operands were only loaded waits for no arithmetic, and its loads run ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.ttir.syntax import Block, Module, Operation

_PRODUCTS = ("tt.dot", "tt.dot_scaled")
_LOOPS = ("scf.for", "scf.while")
_NOT_COMPUTED = {
    "tt.trans", "tt.reshape", "tt.bitcast", "ttg.convert_layout", "tt.load", "tt.descriptor_load", "tt.splat",
    "tt.descriptor_gather", "arith.constant",
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """How a value was made in this turn of the loop around.

    Attributes:
        after: The products that had to be whole before, by their numbers.
        computed: Whether floating point was computed to make it.
    """

    after: frozenset[int] = frozenset()
    computed: bool = False


_GIVEN = Made()
_Known: TypeAlias = "dict[str, Made]"


def chains(module: Module) -> dict[int, Made]:
    """How the operands of each product were made, by the product's number.

    What a turn is entered with, and what was made outside of the loop, counts as given. A function that is called is
    looked at by itself.
    """
    found: dict[int, Made] = {}
    for function in module.functions.values():
        _walked(function.blocks, {}, found)
    return found


def _walked(blocks: Iterable[Block], known: _Known, found: dict[int, Made]) -> Made:
    """Look at blocks in order; how the operands of the last operation were made, together."""
    last = _GIVEN
    for block in blocks:
        for operation in block.operations:
            last = _together(operation.operands, known)
            made = _made(operation, known, found)
            known.update(dict.fromkeys(operation.results, made))
    return last


def _made(operation: Operation, known: _Known, found: dict[int, Made]) -> Made:
    given = _together(operation.operands, known)
    if operation.name in _PRODUCTS:
        operands = _together(operation.operands[:2], known)
        found[operation.number] = operands
        return Made(frozenset((operation.number,)), True)
    inner = [_walked(region, {} if operation.name in _LOOPS else known, found) for region in operation.regions]
    whole = all(kind.whole or kind.pointer for kind in operation.result_types or operation.types[-1:])
    computed = not whole and not operation.regions and operation.name not in _NOT_COMPUTED
    return _joined([given, *inner, Made(computed=computed)])


def _together(names: Sequence[str], known: _Known) -> Made:
    return _joined([known[name] for name in names if name in known])


def _joined(several: Sequence[Made]) -> Made:
    return Made(frozenset().union(*(one.after for one in several)), any(one.computed for one in several))
