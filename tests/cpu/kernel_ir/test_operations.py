"""Each operation computes what its name says, and a block that is formed anew has the same elements in new places."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.kernel_ir.test_terms import value_of
from tests.strategies import examples
from triton_ops.kernel_ir import KernelFacts
from triton_ops.kernel_ir.operations import OPERATIONS, NotComputedError, computed, meaning_of

REALS = (-2.5, -1.0, -0.25, 0.0, 0.5, 1.0, 3.75)
POSITIVE = (0.25, 0.5, 1.0, 3.75)
WHOLE = (-7, -4, -1, 0, 1, 2, 5, 64)
SHIFTS = (0, 1, 5, 62)


def towards_zero(x, by):
    return x if by == 0 else math.trunc(x / by)


def rest(x, by):
    return 0 if by == 0 else math.fmod(x, by)


OF_ONE = {
    "math.exp": (REALS, math.exp), "math.exp2": (REALS, lambda x: 2**x), "math.log": (POSITIVE, math.log),
    "math.log2": (POSITIVE, math.log2), "math.sqrt": (POSITIVE, math.sqrt), "math.sin": (REALS, math.sin),
    "math.cos": (REALS, math.cos), "math.tanh": (REALS, math.tanh), "math.log1p": (POSITIVE, math.log1p),
    "math.expm1": (REALS, math.expm1), "math.rsqrt": (POSITIVE, lambda x: x**-0.5), "math.erf": (REALS, math.erf),
    "tt.precise_sqrt": (POSITIVE, math.sqrt), "math.floor": (REALS, math.floor), "math.ceil": (REALS, math.ceil),
    "math.absf": (REALS, abs), "math.absi": (WHOLE, abs), "arith.negf": (REALS, lambda x: -x),
    "arith.sitofp": (WHOLE, float), "arith.uitofp": (SHIFTS, float), "arith.fptosi": (REALS, math.trunc),
    "arith.fptoui": (POSITIVE, math.trunc), "arith.truncf": (REALS, float), "tt.fp_to_fp": (REALS, float),
    "arith.extf": (REALS, float), "arith.extsi": (WHOLE, int), "arith.extui": (SHIFTS, int),
    "arith.trunci": (WHOLE, int),
}  # fmt: skip
OF_TWO = {
    "math.powf": (POSITIVE, REALS, lambda x, y: x**y), "tt.precise_divf": (REALS, POSITIVE, lambda x, y: x / y),
    "arith.divf": (REALS, POSITIVE, lambda x, y: x / y), "arith.remf": (REALS, POSITIVE, math.fmod),
    "arith.addf": (REALS, REALS, lambda x, y: x + y), "arith.subf": (REALS, REALS, lambda x, y: x - y),
    "arith.mulf": (REALS, REALS, lambda x, y: x * y), "arith.maximumf": (REALS, REALS, max),
    "arith.minimumf": (REALS, REALS, min), "arith.maxnumf": (REALS, REALS, max), "arith.minnumf": (REALS, REALS, min),
    "arith.ceildivsi": (WHOLE, WHOLE, lambda x, by: x if by == 0 else math.ceil(x / by)),
    "arith.ceildivui": (SHIFTS, SHIFTS, lambda x, by: x if by == 0 else math.ceil(x / by)),
    "arith.addi": (WHOLE, WHOLE, lambda x, y: x + y), "arith.subi": (WHOLE, WHOLE, lambda x, y: x - y),
    "arith.muli": (WHOLE, WHOLE, lambda x, y: x * y), "arith.divsi": (WHOLE, WHOLE, towards_zero),
    "arith.divui": (SHIFTS, SHIFTS, towards_zero), "quotient": (WHOLE, WHOLE, towards_zero),
    "arith.floordivsi": (WHOLE, (-4, 1, 3), lambda x, by: x // by), "arith.remsi": (WHOLE, WHOLE, rest),
    "arith.remui": (SHIFTS, SHIFTS, rest), "remainder": (WHOLE, WHOLE, rest),
    "arith.shli": ((-1, 0, 1), (*SHIFTS, 99), lambda x, by: x << min(by, 62)),
    "arith.shrsi": (WHOLE, (*SHIFTS, 99), lambda x, by: x >> min(by, 62)),
    "arith.shrui": (SHIFTS, SHIFTS, lambda x, by: x >> by), "arith.minsi": (WHOLE, WHOLE, min),
    "arith.minui": (SHIFTS, SHIFTS, min), "least": (WHOLE, WHOLE, min), "arith.maxsi": (WHOLE, WHOLE, max),
    "arith.maxui": (SHIFTS, SHIFTS, max), "most": (WHOLE, WHOLE, max), "arith.andi": (WHOLE, WHOLE, lambda x, y: x & y),
    "arith.ori": (WHOLE, WHOLE, lambda x, y: x | y), "arith.xori": (WHOLE, WHOLE, lambda x, y: x ^ y),
}  # fmt: skip
OF_THREE = {
    "math.fma": (REALS, REALS, REALS, lambda x, y, z: x * y + z),
    "tt.clampf": (REALS, (-1.0, 0.5), (0.75, 2.0), lambda x, low, high: min(max(x, low), high)),
    "arith.select": ((True, False), REALS, WHOLE, lambda condition, x, y: x if condition else y),
}  # fmt: skip
ALL = OF_ONE | OF_TWO | OF_THREE


def results(name, word, *several):
    """The results for all combinations of some operands, by the operands."""
    grids = [axis.ravel() for axis in np.meshgrid(*several, indexing="ij")]
    return zip(zip(*(grid.tolist() for grid in grids), strict=True), computed(name, word, grids).tolist(), strict=True)


def test_every_operation_that_computes_numbers_is_asked_for_them():
    computing = {name for name, meaning in OPERATIONS.items() if meaning.numbers is not None}
    assert computing - {"arith.cmpi"} == ALL.keys() - {"quotient", "remainder", "least", "most"}


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_operation_computes_what_it_does_in_python(name):
    *several, function = ALL[name]
    for operands, result in results(name, "", *several):
        assert result == pytest.approx(function(*operands), rel=1e-12), operands


NOT_A_NUMBER = (math.nan, 1.0)


def test_a_maximum_may_keep_or_drop_what_is_no_number():
    for name, keeps in (("maximumf", True), ("minimumf", True), ("maxnumf", False), ("minnumf", False)):
        assert np.isnan(computed(f"arith.{name}", "", NOT_A_NUMBER)) == keeps


@pytest.mark.parametrize("name", ["cmpf", "cmpi"])
@pytest.mark.parametrize(
    ("word", "function"),
    [
        ("eq", "__eq__"), ("ne", "__ne__"), ("lt", "__lt__"), ("le", "__le__"), ("gt", "__gt__"), ("ge", "__ge__"),
    ],
)  # fmt: skip
def test_a_comparison_goes_by_the_end_of_its_word(name, word, function):
    for sign in "uos":
        for (one, other), result in results(f"arith.{name}", f" {sign}{word} ", REALS, REALS):
            assert result == getattr(one, function)(other)


@pytest.mark.parametrize(
    ("symbol", "function"),
    [
        ("__nv_expf", math.exp),
        ("__nv_fast_expf", math.exp),
        ("__nv_exp", math.exp),
        ("__nv_tanhf", math.tanh),
        ("__nv_fabsf", abs),
        ("__nv_sinhf", math.sinh),
        ("__nv_cosh", math.cosh),
        ("__nv_erff", math.erf),
        ("__nv_absf", abs),
        ("__nv_floorf", math.floor),
        ("rsqrt", lambda x: x**-0.5),
    ],
)
def test_a_function_of_a_library_goes_by_its_name(symbol, function):
    for (one,), result in results("tt.extern_elementwise", f'"{symbol}"', POSITIVE):
        assert result == pytest.approx(function(one))


@pytest.mark.parametrize(
    ("name", "word", "operands"),
    [
        ("tt.extern_elementwise", '"__nv_powf"', (1.0,)), ("tt.extern_elementwise", '"__nv_fmaf"', (1.0,)),
        ("arith.cmpf", "uno", (1.0, 1.0)), ("tt.load", "", (1,)), ("new.thing", "", (1,)),
        ("arith.shli", "", (1.5, 1)), ("arith.andi", "", (1.5, 1)),
    ],
)  # fmt: skip
def test_what_is_not_computed_says_its_name(name, word, operands):
    with pytest.raises(NotComputedError, match=f"^{name} {word}".strip()):
        computed(name, word, [np.asarray(one) for one in operands])
    assert meaning_of("new.thing").does == ""


class Block:
    """Lines of TTIR that make a block of whole numbers, beside its elements."""

    def __init__(self, extent):
        self.lines, self.elements = [], np.arange(extent)
        self.put(f"tt.make_range {{end = {extent} : i32, start = 0 : i32}} : AFTER", self.elements)

    @property
    def name(self):
        return f"%v{len(self.lines) - 1}"

    @property
    def kind(self):
        return f"tensor<{'x'.join(map(str, self.elements.shape))}xi32>"

    def put(self, text, elements, results=""):
        """One more line, with the kinds that the block had before and has after it."""
        before, self.elements = self.kind, elements
        text = text.replace("BEFORE", before).replace("AFTER", self.kind)
        self.lines.append(f"    {results or f'%v{len(self.lines)}'} = {text}")

    def reshape(self, shape):
        self.put(f"tt.reshape {self.name} : BEFORE -> AFTER", self.elements.reshape(shape))

    def transpose(self, order):
        words = f"{{order = array<i32: {', '.join(map(str, order))}>}}"
        self.put(f"tt.trans {self.name} {words} : BEFORE -> AFTER", self.elements.transpose(order))

    def expand(self, axis):
        words = f"{{axis = {axis} : i32}}"
        self.put(f"tt.expand_dims {self.name} {words} : BEFORE -> AFTER", np.expand_dims(self.elements, axis))

    def broadcast(self, shape):
        self.put(f"tt.broadcast {self.name} : BEFORE -> AFTER", np.broadcast_to(self.elements, shape))

    def join(self):
        """Each element beside its square."""
        one, elements = self.name, self.elements
        self.put(f"arith.muli {one}, {one} : AFTER", elements * elements)
        self.put(f"tt.join {one}, {self.name} : BEFORE -> AFTER", np.stack([elements, self.elements], axis=-1))

    def split(self, which):
        """One half, twice, so that it has a name like all others."""
        half = self.elements[..., which]
        self.put(f"tt.split {self.name} : BEFORE -> AFTER", half, results=f"%a{len(self.lines)}, %b{len(self.lines)}")
        name = f"%{'ab'[which]}{len(self.lines) - 1}"
        self.put(f"arith.addi {name}, {name} : AFTER", half + half)


@st.composite
def shapes(draw, size):
    """Up to four extents whose product is this size."""
    extents = []
    while size > 1 and len(extents) < 3:
        extents.append(draw(st.sampled_from([one for one in (1, 2, 4, 8) if size % one == 0])))
        size //= extents[-1]
    return *extents, size


@st.composite
def blocks(draw):
    """A block that was formed anew some times."""
    block = Block(draw(st.sampled_from([4, 8, 16, 32])))
    for _ in range(draw(st.integers(0, 5))):
        shape = block.elements.shape
        ways = {
            "reshape": True, "transpose": len(shape) > 1, "expand": len(shape) < 4, "broadcast": 1 in shape,
            "join": block.elements.size < 64, "split": shape[-1] == 2 and len(shape) > 1,
        }  # fmt: skip
        how = draw(st.sampled_from([way for way, fits in ways.items() if fits]))
        operand = {
            "reshape": shapes(block.elements.size), "transpose": st.permutations(range(len(shape))),
            "expand": st.integers(0, len(shape)), "broadcast": st.just(tuple(max(2, one) for one in shape)),
            "join": st.none(), "split": st.sampled_from([0, 1]),
        }[how]  # fmt: skip
        getattr(block, how)(*() if how == "join" else (draw(operand),))
    return block


def offset_of(block):
    """The term of where a load goes whose offsets are a block's elements."""
    pointers = block.kind.replace("i32>", "!tt.ptr<f32>>")
    lines = [
        *block.lines, f"    %base = tt.splat %x : !tt.ptr<f32> -> {pointers}",
        f"    %p = tt.addptr %base, {block.name} : {pointers}, {block.kind}", f"    %w = tt.load %p : {pointers}",
    ]  # fmt: skip
    text = "module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n" + "\n".join(lines) + "\n    tt.return\n  }\n}\n"
    (access,) = KernelFacts.of(text).accesses
    return access.offset


@examples(100)
@given(blocks())
def test_a_block_that_is_formed_anew_has_its_elements_in_new_places(block):
    offset = offset_of(block)
    for place in np.ndindex(block.elements.shape):
        assert value_of(offset, dict(enumerate(place))) == block.elements[place]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(8, 4), (2, 2, 8)], "2·i + j + 4·k"), ([(4, 8), (16, 2)], "(2·i + j) // 4 + 8·(2·i + j) % 4"),
        ([(2, 16), (4, 4, 2)], "4·i + j + 16·k"), ([(32, 1), (1, 32)], "j"), ([(1, 32), (32, 1)], "i"),
    ],
)  # fmt: skip
def test_places_of_axes_that_are_split_are_sums(shapes, words):
    """The first form is transposed, and formed again."""
    block = Block(32)
    block.reshape(shapes[0])
    block.transpose((1, 0))
    block.reshape(shapes[1])
    assert offset_of(block).words == words
