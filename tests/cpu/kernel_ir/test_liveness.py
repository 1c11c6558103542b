"""The words that a block holds at once are those that a plain count over the lines of a program gives.

What was loaded is held as loads that are on the way, up to the next reduction, and as what is computed of it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.kernel_ir.test_ttir import work

LANES = 128
WORDS = {"f32": LANES, "f16": LANES // 2, "i32": LANES}
BINARY = {"f32": "arith.mulf", "f16": "arith.mulf", "i32": "arith.xori"}


class Line:
    """One line: what it makes, of which kind, from which lines before it, and how."""

    def __init__(self, at, how, kind, operands=()):
        self.at, self.how, self.kind, self.operands = at, how, kind, operands

    @property
    def name(self):
        return f"%x{self.at}"

    @property
    def text(self):
        kind, words = f"tensor<{LANES}x{self.kind}>", ", ".join(one.name for one in self.operands)
        if self.how == "load":
            pointers = f"tensor<{LANES}x!tt.ptr<{self.kind}>>"
            cast = f"    %p{self.at} = tt.bitcast %8 : tensor<{LANES}x!tt.ptr<f32>> -> {pointers}\n"
            return f"{cast}    {self.name} = tt.load %p{self.at} : {pointers}\n"
        if self.how == "sum":
            return f"""    {self.name} = "tt.reduce"({words}) <{{axis = 0 : i32}}> ({{
    ^bb0(%p: {self.kind}, %q: {self.kind}):
      %t = arith.addf %p, %q : {self.kind}
      tt.reduce.return %t : {self.kind}
    }}) : ({kind}) -> {self.kind}
"""
        if self.how in ("arith.extf", "arith.fptosi"):
            return f"    {self.name} = {self.how} {words} : tensor<{LANES}x{self.operands[0].kind}> to {kind}\n"
        return f"    {self.name} = {self.how} {words} : {kind}\n"


@st.composite
def programs(draw):
    lines = [Line(0, "load", draw(st.sampled_from(["f32", "f16"])))]
    for at in range(1, draw(st.integers(2, 12))):
        tensors = [one for one in lines if one.how != "sum"]
        one, other = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        how = draw(st.sampled_from(["load", "both", "sum", "sum", "widen", "whole"]))
        if how == "load":
            lines.append(Line(at, how, draw(st.sampled_from(["f32", "f16", "i32"]))))
        elif how == "widen" and one.kind == "f16":
            lines.append(Line(at, "arith.extf", "f32", (one,)))
        elif how == "whole" and one.kind == "f32":
            lines.append(Line(at, "arith.fptosi", "i32", (one,)))
        elif how == "sum" and one.kind != "i32":
            lines.append(Line(at, how, one.kind, (one,)))
        else:
            lines.append(Line(at, BINARY[one.kind], one.kind, (one, other if other.kind == one.kind else one)))
    return lines


def origin(line):
    """What a line's result shares its registers with: a wider form takes the place of the number itself."""
    return origin(line.operands[0]) if line.how == "arith.extf" else line


def held(lines, alive):
    """The words of these lines' results, each place once and as wide as its widest form."""
    several = [one for one in lines if one.how not in ("sum", "load")]
    places = {origin(one) for one in alive if one.how != "sum"}
    return sum(max((WORDS[one.kind] for one in several if origin(one) is place), default=0) for place in places)


@given(programs())
def test_what_is_held_at_a_reduction_and_beside_the_loads_that_are_on_the_way(lines):
    uses = {one: [user.at for user in lines if one in user.operands] for one in lines}
    sums = [one.at for one in lines if one.how == "sum"]
    most, loaded = 0, 0
    for begin, after in zip([-1, *sums], [*sums, len(lines)], strict=True):
        before = [one for one in lines if one.at < begin and any(at > begin for at in uses[one])]
        taken = [one for one in lines if one.at < begin and any(at >= begin for at in uses[one])]
        coming = sum(WORDS[one.kind] for one in lines if one.how == "load" and begin < one.at < after)
        coming += LANES if begin < 0 else 0  # which the kernel around these lines loads
        loaded, most = max(loaded, held(lines, before) + coming), max(most, held(lines, taken))
    result = work("".join(one.text for one in lines))
    assert (result.alive, result.loaded) == (most, loaded)
