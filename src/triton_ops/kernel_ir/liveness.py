"""The most values of a block that are alive at once, where the whole block must have come before any of it goes on.

Operations on single elements follow each other element by element, so that what is between them needs few registers. At
a reduction or a product all elements must be there, with everything that is used later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from triton_ops.kernel_ir.ttir_syntax import Function, Module, TtirBlock, TtirOperation, Type

_GATHERING = {"tt.reduce", "tt.scan", "tt.dot", "tt.dot_scaled"}
_SMALLER = {"tt.splat", "tt.broadcast", "tt.expand_dims", "arith.constant"}  # their elements are those of less
_SAME = {"tt.reshape", "tt.trans", "tt.bitcast", "ttg.convert_layout", "arith.extf"}  # the registers of what they take
_WORD_BYTES = 4


def most_alive(module: Module) -> float:
    """The most 32-bit words of floating point that a block holds at once at a reduction or a product; 0 without one."""
    return max((_Liveness(function).most for function in module.functions.values()), default=0.0)


class _Liveness:
    """The values of one function, from its end to its beginning."""

    def __init__(self, function: Function) -> None:
        self._words: dict[str, float] = {}
        self._source: dict[str, str] = {}
        self.most = 0.0
        self._backward(function.blocks, set())

    def _measure(self, blocks: Iterable[TtirBlock]) -> None:
        """Tell the size of every value; what a loop carries is as large as what its turns hand on."""
        for operation in (operation for block in blocks for operation in block.operations):
            for region in operation.regions:
                self._measure(region)
            if operation.name == "scf.for":
                last = operation.regions[0][0].operations[-1:]
                sizes = [self._words.get(name, 0.0) for one in last for name in one.operands]
                self._words.update(zip(operation.operands[4::2], sizes, strict=False))
            else:
                sizes = _sizes(operation)
            for name in operation.results:
                self._source.pop(name, None)
            if operation.name in _SAME:
                source = self._source.get(operation.operands[0], operation.operands[0])
                self._source.update(dict.fromkeys(operation.results, source))
                self._words[source] = max([self._words.get(source, 0.0), *sizes])
            self._words.update(zip(operation.results, sizes, strict=False))

    def _backward(self, blocks: Sequence[TtirBlock], later: set[str]) -> set[str]:
        """Names that are alive before some blocks, from those alive after them.

        Blocks beside each other may use one name for different values, so each measures its own.
        """
        around = dict(self._words), dict(self._source)
        self._measure(blocks)
        alive = set(later)
        for operation in (operation for block in reversed(blocks) for operation in reversed(block.operations)):
            alive -= set(operation.results)
            if operation.name in _GATHERING:
                values = {self._source.get(name, name) for name in alive | set(operation.operands)}
                self.most = max(self.most, sum(self._words.get(name, 0.0) for name in values))
            elif operation.name == "scf.for":
                alive |= self._around(operation, alive)
            else:
                for region in operation.regions:
                    alive |= self._backward(region, alive)
            alive |= set(operation.operands)
        self._words, self._source = around
        return alive

    def _around(self, loop: TtirOperation, later: set[str]) -> set[str]:
        """Names that are alive before the body of a loop: what its turns take from outside is so in all of them."""
        results: set[str] = set()
        operands: set[str] = set()
        _names(loop.regions[0], results, operands)
        results.update((*loop.operands[0:1], *loop.operands[4::2]))
        return self._backward(loop.regions[0], later | (operands - results)) - results


def _names(blocks: Iterable[TtirBlock], results: set[str], operands: set[str]) -> None:
    for operation in (operation for block in blocks for operation in block.operations):
        results.update(operation.results)
        operands.update(operation.operands)
        if operation.name == "scf.for":  # its head names what it carries
            results.update((*operation.operands[0:1], *operation.operands[4::2]))
        for region in operation.regions:
            _names(region, results, operands)


def _sizes(operation: TtirOperation) -> list[float]:
    if operation.name in _SMALLER:
        return [0.0] * len(operation.results)
    return [_words_of(kind) for kind in operation.kinds]


def _words_of(kind: Type) -> float:
    """Registers of all threads together; whole numbers, truth values and pointers are made anew where they are used."""
    if kind.whole or kind.pointer or kind.descriptor:
        return 0.0
    return prod(kind.shape) * kind.item_bytes / _WORD_BYTES if kind.shape else 0.0
