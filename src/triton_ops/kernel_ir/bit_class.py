"""The class of a compiled config: configs of one class give the same bits, as far as their texts tell.

Two configs are in one class if every element that they write is the same expression: the same operations in the same
types, by their TTIR; sums in the same order and grouping, by the layouts and the matrix instructions of their TTGIR;
and the same share of products fused with additions by the assembler, by their PTX and machine code. A class is a
proposal: bits are compared on a device before it counts. What cannot be told is a class of its own.

Its name is the same for other extents, versions of Triton and GPUs as long as these parts are. Products of matrices and
approximations, such as `exp`, belong to one architecture, whose own way of computing them no text tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from triton_ops.kernel_ir.expressions import EXACT, ZERO, Expressions, digest, walk
from triton_ops.kernel_ir.facts import SourcePlace, places_in
from triton_ops.kernel_ir.layouts import IN_A_THREAD, Layouts
from triton_ops.kernel_ir.machine_code import TRITONS, PtxText, contraction
from triton_ops.kernel_ir.ttir_syntax import TtirOperation, UntoldError, parsed_module

_DOTS = ("tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "tt.dot_scaled", "ttng.tc_gen5_mma_scaled")
_INSTRUCTIONS = {"2": "mma.sync", "3": "wgmma", "5": "tcgen05"}

_ALIKE = "mma.sync or wgmma"  # both add up 16 products of halves at a time, and were equal in every bit on an H200
_SPREAD = ("tt.broadcast", "ttg.convert_layout")
_IN_SHARED_MEMORY = re.compile(r"!ttg\.memdesc<(?:\d+x)*(\w+),.*")


@dataclass(frozen=True)
class Order:
    """How a sum is grouped and ordered, in words; its line is no part of that."""

    words: str
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.words} at line {self.line}" if self.line else self.words


@dataclass(frozen=True)
class BitClass:
    """What decides the bits of a config's results.

    Attributes:
        expression: A name for what is written, without orders.
        orders: Of its sums, in the order of their lines.
        fused: How the assembler fused products with sums, in words; empty if it fused all that were left to it.
        silent: Why it cannot be told; empty if it can.
        hardware: The architecture that multiplies or approximates in its own way; empty if any gives these bits.
        bounds: The numbers of a launch that say how many terms its sums have: arguments by name, and `PROGRAMS`.
    """

    expression: str = ""
    orders: tuple[Order, ...] = ()
    fused: str = ""
    silent: str = ""
    hardware: str = ""
    bounds: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A name that two configs of one class share; empty where it cannot be told."""
        orders = [order.words for order in self.orders]
        return "" if self.silent else digest(self.expression, orders, self.fused, self.hardware)

    def beside(self, other: BitClass) -> list[str]:
        """What it has otherwise than another class, in words; empty for the same class."""
        if self.silent or other.silent:
            return [self.silent or other.silent]
        found = [] if self.expression == other.expression else ["other operations"]
        found += [str(order) for order in self.orders if order not in other.orders]
        found += [self.fused or "all products in sums fused"] * (self.fused != other.fused)
        architecture = self.hardware or "no architecture of its own"
        found += [f"products or functions of {architecture}"] * (self.hardware != other.hardware)
        return found or ["its sums otherwise in order"] * (self.key != other.key)

    @classmethod
    def of(cls, stages: Mapping[str, Any], *, pairs: bool = False) -> BitClass:
        """The class of a config from its texts by the names of Triton's stages: `ttir`, `ttgir`, `ptx`, `cubin`.

        With `pairs`, as of Triton 3.8, a thread adds up pairs of its elements first; before it adds one after another.

        Cost: some 10 to 50 ms.
        """
        if missing := [name for name in ("ttir", "ttgir", "ptx", "cubin") if name not in stages]:
            return cls(silent=f"its compiler makes no {missing[0]}, as for other GPUs than NVIDIA's and of Gluon")
        try:
            found = Expressions.of(parsed_module(stages["ttir"]), _place_in(stages["ttir"]))
            orders = {*found.groups, *_orders(stages["ttgir"], pairs)}
            fused = contraction(stages["cubin"], stages["ptx"])
        except UntoldError as error:
            return cls(silent=str(error))
        lines = [(Path(at.file).name, at.line, words) if at else ("", 0, words) for at, words in orders]
        told, hardware = tuple(Order(words, line) for _, line, words in sorted(lines)), PtxText(stages["ptx"]).hardware
        return cls(digest(sorted(found.stored)), told, fused, hardware=hardware, bounds=tuple(sorted(found.bounds)))

    def bounded(self, numbers: Mapping[str, Any]) -> BitClass:
        """The class of a launch whose sums have as many terms as these numbers say."""
        words = f"sums by {', '.join(f'{name} {number}' for name, number in sorted(numbers.items()))}"
        return replace(self, orders=(*self.orders, Order(words))) if numbers and not self.silent else self

    @classmethod
    def joined(cls, launches: Sequence[BitClass]) -> BitClass:
        """The class of a config that launches several kernels, one after another."""
        if len(launches) == 1:
            return launches[0]
        if silent := next((one.silent for one in launches if one.silent), "" if launches else "it launches no kernel"):
            return cls(silent=silent)
        orders = tuple(order for one in launches for order in one.orders)
        return cls(digest([one.key for one in launches]), orders, "; ".join(one.fused for one in launches if one.fused))


_GIVEN = TtirOperation("", (), (), "", (), ())  # stands for what no operation makes, such as a loop's turn


class _Values(dict[str, TtirOperation]):
    """The operation that each value is made by."""

    def one_at_most(self, sum_: TtirOperation) -> bool:
        """Whether a sum adds zeros but for one element, which is chosen where a range has a number: in any order."""
        axis, chosen = sum_.attribute("axis") or 0, self.before(sum_.operands[0])
        adds = sum_.name == "tt.reduce" and [one.name for one in sum_.regions[0][0].operations[:-1]] == ["arith.addf"]
        if not adds or chosen.name != "arith.select" or self.before(chosen.operands[-1]).literal != ZERO:
            return False
        where = self.before(chosen.operands[0], _SPREAD)
        equal, sides = (where.name, where.predicate) == ("arith.cmpi", "eq"), permutations(where.operands)
        return equal and any(self._counts(one, axis) and self._even(other, axis) for one, other in sides)

    def before(self, name: str, moves: Sequence[str] = ()) -> TtirOperation:
        """What makes a value before such moves."""
        one = self.get(name, _GIVEN)
        return self.before(one.operands[0], moves) if one.name in moves else one

    def _counts(self, name: str, axis: int) -> bool:
        """Whether a value is a range along an axis."""
        own, begin = self.before(name, _SPREAD), self.before(name, (*_SPREAD, "tt.expand_dims"))
        return begin.name == "tt.make_range" and own.kinds[0].shape[axis] == begin.kinds[0].shape[0]

    def _even(self, name: str, axis: int) -> bool:
        """Whether a value is the same all along an axis."""
        own = self.before(name, _SPREAD)
        return bool(own.literal) or own.name == "tt.splat" or any(kind.shape[axis] == 1 for kind in own.kinds)


def _place_in(text: str) -> Callable[[TtirOperation], SourcePlace | None]:
    places = places_in(text)
    return lambda one: next((place for place in places(one) if TRITONS not in place.file), None)


def _orders(ttgir: str, pairs: bool) -> Iterator[tuple[SourcePlace | None, str]]:
    """How the sums of a module of TTGIR are ordered, with their lines."""
    if '"ttg.num-ctas" = 1 :' not in ttgir:
        raise UntoldError("its blocks work in clusters, whose layouts are not read")
    layouts, place = Layouts.of(ttgir), _place_in(ttgir)
    values = _Values()
    for one in walk(parsed_module(ttgir).kernel.blocks):
        words = ""
        values.update(dict.fromkeys(one.results, one))
        if one.name in ("tt.reduce", "tt.scan"):
            words = "" if values.one_at_most(one) else _reduced(one, layouts, values.before(one.operands[0]))
        elif one.name in _DOTS:
            words = _multiplied(one, layouts)
        if pairs and one.name == "tt.reduce":
            words = words.replace(IN_A_THREAD, f"{IN_A_THREAD} by pairs")
        if words:
            yield place(one), words


def _reduced(one: TtirOperation, layouts: Layouts, before: TtirOperation) -> str:
    axis, kind = one.attribute("axis") or 0, one.types[0]
    extent, scans = kind.shape[axis], one.name == "tt.scan"
    exact = kind.whole or all(each.name in EXACT for each in one.regions[0][0].operations[:-1])
    if extent == 1 or exact:
        return ""
    order = f"{layouts.order(kind.layout, axis, extent, scans)}{_reordered(before, layouts)}"
    return f"a {'running ' * scans}sum over {extent}: {order}"


def _reordered(one: TtirOperation, layouts: Layouts) -> str:
    if one.name != "tt.reshape" or "allow_reorder" not in one.text:
        return ""
    before, after = one.types[0], one.kinds[0]
    axis = next((nth for nth, pair in enumerate(zip(before.shape, after.shape, strict=False)) if pair[0] != pair[1]), 0)
    return f", of what was {layouts.order(before.layout, axis, before.shape[axis])}"


def _multiplied(one: TtirOperation, layouts: Layouts) -> str:
    layout = layouts.whole(one.kinds[-1].layout) if one.kinds else "versionMajor = 5"  # it writes to tensor memory
    version = re.search(r"versionMajor = (\d)", layout)
    element = _IN_SHARED_MEMORY.sub(r"\1", one.types[0].element)
    if one.types[0].whole:  # exact in any order
        return ""
    if version is None:
        return f"products of {element} term by term"
    instruction, halves = _INSTRUCTIONS[version[1]], element in ("f16", "bf16")
    return f"products of {element} by {_ALIKE if halves and instruction in _ALIKE else instruction}"
