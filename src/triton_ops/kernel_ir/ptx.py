"""The registers of a kernel in each thread of a block, read from its PTX without running it.

Facts used, of LLVM's PTX: registers begin with `%`; a register with several definitions is one that a loop carries or a
branch decides; `.reqntid` has the threads of a block. What the instructions do is that of NVIDIA's "Parallel Thread
Execution ISA".

Facts used, of LLVM's PTX: `.file` numbers the files, `.loc` names the place of what follows, and the comment behind it
the places that the function was inlined at: `// standard.py:293:36 @[ kernel.py:34:22 ]`.

A value is a number for each thread, known up to one summand that is the same in all threads: what a kernel is given,
the number of its program and the turn of a loop are such summands. Which banks threads ask for depends on the threads
alone, so that this is enough.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from triton_ops.kernel_ir.trace import COMPARISONS

_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FRAME = re.compile(r"([^\s@\[\]/]+):(\d+):\d+")
_TRITONS = "/triton/language/"


class Places:
    """Follows the lines of a PTX text; `here` is the last place of the innermost function that is not Triton's own."""

    def __init__(self, ptx: str) -> None:
        self.here = ("", 0)
        files = {number: (name or folder, folder) for number, folder, name in _FILE.findall(ptx)}
        self._names = {number: name.rpartition("/")[2] for number, (name, _) in files.items()}
        own = [number for number, both in files.items() if any(_TRITONS in f"{part}/" for part in both)]
        self._tritons = {self._names[number] for number in own}

    def follow(self, line: str) -> bool:
        """Take a line in; whether it names a place."""
        match = _PLACE.match(line)
        if match is None:
            return False
        frames = [(self._names.get(match[1], ""), int(match[2]))]
        frames += [(name, int(number)) for name, number in _FRAME.findall(line.partition("@[")[2])]
        self.here = next((frame for frame in frames if frame[0] not in self._tritons), frames[-1])
        return True


Lanes: TypeAlias = "np.ndarray[Any, Any]"

_HALF = 1 << 63
_EXACT = 1 << 62  # what a summand is a multiple of where there is none


@dataclass(frozen=True, eq=False)
class RegisterValue:
    """The value of a register: the part that threads differ in, int64 [threads], and a summand that is not known.

    The summand is a multiple of `even`, a power of two; `_EXACT` where there is none.
    """

    lanes: Lanes
    even: int = _EXACT

    @property
    def exact(self) -> bool:
        """Check whether nothing is added to `lanes`."""
        return self.even == _EXACT

    @property
    def uniform(self) -> bool:
        """Check whether all threads hold the same."""
        return bool((self.lanes == self.lanes[0]).all())


UNKNOWN = None  # a register of which the threads hold anything
MaybeValue: TypeAlias = "RegisterValue | None"


def constant(number: int, threads: int) -> RegisterValue:
    """One number in all threads."""
    signed = (number + _HALF) % (2 * _HALF) - _HALF  # one number in all threads, of 64 bits without a sign
    return RegisterValue(np.full(threads, signed, dtype=np.int64))


def unknown_uniform(threads: int) -> RegisterValue:
    """A number that is not known, and the same in all threads."""
    return RegisterValue(np.zeros(threads, dtype=np.int64), 1)


def join(one: MaybeValue, other: MaybeValue) -> MaybeValue:
    """The common knowledge of a register that is given either."""
    if one is None or other is None:
        return UNKNOWN
    apart = other.lanes - one.lanes
    if (apart != apart[0]).any():
        return UNKNOWN
    first = int(apart[0])
    if one.exact and other.exact and not first:
        return one
    return RegisterValue(one.lanes, min(one.even, other.even, _largest_power_of_two(first)))


def agree(one: MaybeValue, other: MaybeValue) -> bool:
    """Check whether as much is known of both."""
    if one is None or other is None:
        return one is other
    return one.even == other.even and bool((one.lanes == other.lanes).all())


def add(one: RegisterValue, other: RegisterValue, sign: int = 1) -> RegisterValue:
    """The sum, or the difference for a sign of -1."""
    return RegisterValue(one.lanes + sign * other.lanes, min(one.even, other.even))


def multiply(one: RegisterValue, other: RegisterValue) -> MaybeValue:
    """The product."""
    if one.exact and other.exact:
        return RegisterValue(one.lanes * other.lanes)
    if other.exact and other.uniform:
        if not (factor := int(other.lanes[0])):
            return RegisterValue(0 * one.lanes)
        return RegisterValue(one.lanes * factor, min(one.even * _largest_power_of_two(factor), _EXACT >> 1))
    if one.exact and one.uniform:
        return multiply(other, one)
    return unknown_uniform(len(one.lanes)) if one.uniform and other.uniform else UNKNOWN


def bitwise(name: str, one: RegisterValue, other: RegisterValue) -> MaybeValue:
    """`and`, `or` or `xor` of the bits."""
    work = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    if one.exact and other.exact:
        return RegisterValue(work(one.lanes, other.lanes))
    even = min(one.even, other.even)
    if all(((operand.lanes >= 0) & (operand.lanes < even)).all() for operand in (one, other)):
        # the unknown bits lie above all that threads differ in
        summand = _EXACT if name == "and" and (one.exact or other.exact) else even
        return RegisterValue(work(one.lanes, other.lanes), summand)
    if one.uniform and other.uniform:
        return unknown_uniform(len(one.lanes))
    if name == "and":
        return _mask(one, other) if other.exact else _mask(other, one)
    return UNKNOWN


def _mask(one: RegisterValue, mask: RegisterValue) -> MaybeValue:
    if not mask.uniform or one.exact or ((one.lanes < 0) | (one.lanes >= one.even)).any():
        return UNKNOWN
    bits = int(mask.lanes[0])
    return RegisterValue(one.lanes & bits, _EXACT if bits < one.even else one.even)


def wrap(value: MaybeValue, bits: int, signed: bool) -> MaybeValue:
    """A value as a number of so many bits."""
    if value is None or not value.exact or bits > 32:
        return value
    lanes = value.lanes & ((1 << bits) - 1)
    return RegisterValue(np.where(lanes >= 1 << (bits - 1), lanes - (1 << bits), lanes) if signed else lanes)


def _largest_power_of_two(number: int) -> int:
    return (abs(number) & -abs(number)) or _EXACT


_WARP = 32
_MOST_PASSES = 12
_THREADS = re.compile(r"\.reqntid\s+(\d+)")
_LABEL = re.compile(r"^\s*(\$?[\w$]+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?[\w$]+)")
_LINE = re.compile(r"^\s*(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s+([^;]*);")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^]]*\]|[^,\s{[][^,]*")
_REGISTER = re.compile(r"%\w+(?:\.[xyz])?")
_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)$")
_SIZE = re.compile(r"([bsu])(8|16|32|64)$")
_NO_RESULT = (
    "st", "red", "bra", "bar", "barrier", "fence", "membar", "cp", "ret", "trap", "prefetch", "wgmma", "stmatrix",
)  # fmt: skip
_OWN = ("atom", "ldmatrix", "mma", "elect", "vote", "match")  # what each thread gets for itself


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction, with its suffixes, such as `ld.shared.v4.b32`; negated ones run where the predicate is false.

    Operands are as they are written: vectors with their braces, addresses with their brackets. The place is the source
    file's name and line.
    """

    name: str
    operands: tuple[str, ...]
    guard: str
    negated: bool
    place: tuple[str, int]
    in_loop: bool


@dataclass
class Registers:
    """The values of registers by name; a name that is missing is not known either."""

    threads: int
    contents: dict[str, MaybeValue] = field(default_factory=dict)

    def value(self, text: str) -> MaybeValue:
        """The value of an operand: a register, a number, or the name of a variable, which stands for its address."""
        text = text.strip()
        if _NUMBER.match(text):
            return constant(int(text, 0), self.threads)
        if text in self.contents:
            return self.contents[text]
        if not text.startswith("%"):
            return constant(0, self.threads) if text.isidentifier() else UNKNOWN
        return _special(text, self.threads)

    def has(self, text: str) -> bool:
        """Check whether anything is said of an operand yet."""
        return all(name in self.contents or "." in name or name in _FIXED for name in _REGISTER.findall(text))

    def address(self, text: str) -> MaybeValue:
        """The address in brackets: a register or a variable, and perhaps a number."""
        base, _, offset = text.strip("[] ").partition("+")
        first = self.value(base)
        return first if first is None or not offset else add(first, constant(int(offset, 0), self.threads))


_FIXED = ("%laneid", "%warpid", "%nwarpid", "%smid")


def _special(name: str, threads: int) -> MaybeValue:
    numbers = np.arange(threads, dtype=np.int64)
    if name == "%tid.x":
        return RegisterValue(numbers)
    if name == "%laneid":
        return RegisterValue(numbers % _WARP)
    if name in ("%tid.y", "%tid.z"):
        return constant(0, threads)
    shared = name.startswith(("%ctaid", "%nctaid", "%ntid", "%cluster", "%nclusterid"))
    return unknown_uniform(threads) if shared else UNKNOWN


def read_ptx(ptx: str) -> tuple[list[Instruction], Registers]:
    """The instructions of a kernel, and what its registers hold in all of them.

    Raises ValueError if the text does not say how many threads a block has. Cost: 10 to 200 ms.
    """
    match = _THREADS.search(ptx)
    if match is None:
        raise ValueError("the PTX does not say how many threads a block has")
    instructions = list(instructions_of(ptx))
    registers = Registers(int(match[1]))
    settled = _settle(instructions, registers)
    return instructions, registers if settled else Registers(registers.threads)


def instructions_of(ptx: str) -> Iterator[Instruction]:
    """The instructions of a kernel, in the order of the text."""
    places = Places(ptx)
    whole = ptx.splitlines()
    lines = [line.partition("//")[0] for line in whole]
    spans = loops(lines, _LABEL, _BRANCH)
    for at, line in enumerate(lines):
        if not places.follow(whole[at]) and (one := _LINE.match(line)) is not None:
            yield Instruction(
                name=one[3], operands=tuple(part.strip() for part in _OPERAND.findall(one[4])), guard=one[2] or "",
                negated=one[1] == "!", place=places.here, in_loop=any(first < at < last for first, last in spans),
            )  # fmt: skip


def loops(lines: Sequence[str], label: re.Pattern[str], branch: re.Pattern[str]) -> list[tuple[int, int]]:
    """First and last line of every loop: from a label to a later branch back to it."""
    places: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        if (match := label.match(line)) is not None:
            places[match[1]] = at
        elif (match := branch.search(line)) is not None and match[1] in places:
            spans.append((places[match[1]], at))
    return spans


def _settle(instructions: list[Instruction], registers: Registers) -> bool:
    """Compute all registers until none changes; whether that came to an end."""
    working = [(one, _targets(one)) for one in instructions]
    working = [(one, targets) for one, targets in working if targets]
    counts = Counter(name for _, targets in working for name in targets)
    for _ in range(_MOST_PASSES):
        changed = False
        for one, targets in working:
            if not all(registers.has(text) for text in one.operands[1:]):
                continue
            first = UNKNOWN if one.operands[0].startswith("{") else _result(one, registers)
            for name, value in zip(targets, [first, *[UNKNOWN] * len(targets)], strict=False):
                before = registers.contents.get(name, value)
                after = join(before, value) if counts[name] > 1 else value
                if name not in registers.contents or not agree(registers.contents[name], after):
                    registers.contents[name] = after
                    changed = True
        if not changed:
            return True
    return False


def _targets(one: Instruction) -> list[str]:
    kind = one.name.partition(".")[0]
    if not one.operands or (kind in _NO_RESULT and not one.name.startswith("bar.red")) or "[" in one.operands[0]:
        return []
    return _REGISTER.findall(one.operands[0])


def _result(one: Instruction, registers: Registers) -> MaybeValue:
    kind, *suffixes = one.name.split(".")
    operands = [registers.address(text) if text.startswith("[") else registers.value(text) for text in one.operands[1:]]
    if kind == "ld" and suffixes[0] == "param":
        return unknown_uniform(registers.threads)
    known_operands = [operand for operand in operands if operand is not None]
    if len(known_operands) < len(operands):
        return UNKNOWN
    work = _WORK.get(kind)
    whole = _SIZE.match(suffixes[-1]) if suffixes else None
    if work is not None and suffixes[-1:] == ["pred"]:
        return wrap(work(known_operands, suffixes), 1, signed=False)
    if work is not None and whole is not None:
        bits = 64 if "wide" in suffixes or kind == "setp" else int(whole[2])
        return wrap(work(known_operands, suffixes), bits, whole[1] == "s")
    return _uniform_result(known_operands) if known_operands and kind not in _OWN else UNKNOWN


def _as_signed(operand: RegisterValue, suffixes: list[str]) -> RegisterValue:
    size = _SIZE.match(suffixes[-1])
    value = operand if size is None else wrap(operand, int(size[2]), size[1] == "s")
    return value or operand


def _shift_left(operands: list[RegisterValue], _: list[str]) -> MaybeValue:
    one, by = operands
    if not by.exact or not by.uniform or not 0 <= by.lanes[0] < 63:
        exact = one.exact and by.exact and bool(((by.lanes >= 0) & (by.lanes < 32)).all())
        return RegisterValue(one.lanes << by.lanes) if exact else _uniform_result(operands)
    return multiply(one, constant(1 << int(by.lanes[0]), len(one.lanes)))


def _shift_right(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    one, by = _as_signed(operands[0], suffixes), operands[1]
    if one.exact and by.exact and ((by.lanes >= 0) & (by.lanes < 63)).all():
        return RegisterValue(one.lanes >> by.lanes)
    return _uniform_result(operands)


def _extract_bits(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    """`bfe`: some bits of a number, the highest of which is the sign in the signed form."""
    one, *place = operands
    if not all(operand.exact and operand.uniform for operand in place):
        return _uniform_result(operands)
    first, count = (int(operand.lanes[0]) for operand in place)
    mask = ((1 << count) - 1) << first
    bits = bitwise("and", one, constant(mask, len(one.lanes)))
    if bits is None or not bits.exact:
        return _uniform_result(operands)
    if not count:
        return RegisterValue(0 * one.lanes)
    return wrap(RegisterValue(bits.lanes >> first), count, signed=suffixes[-1].startswith("s"))


def _compare(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    compare = _COMPARISONS.get(suffixes[0])
    one, other, *also = (_as_signed(operand, suffixes) for operand in operands)
    if compare is None or also or not (one.exact and other.exact):
        return _uniform_result(operands)
    return RegisterValue(compare(one.lanes, other.lanes).astype(np.int64))


def _select(operands: list[RegisterValue], _: list[str]) -> MaybeValue:
    one, other, which = operands
    if not which.exact:
        return join(one, other) if which.uniform else UNKNOWN
    if which.uniform:
        return one if which.lanes[0] else other
    return RegisterValue(np.where(which.lanes != 0, one.lanes, other.lanes)) if one.exact and other.exact else UNKNOWN


def _multiply(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    one, other = (_as_signed(operand, suffixes) for operand in operands)
    return _uniform_result(operands) if "hi" in suffixes else multiply(one, other)


def _multiply_and_add(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    product = _multiply(operands[:2], suffixes)
    return UNKNOWN if product is None else add(product, operands[2])


def _shuffle(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
    """`shfl.idx`: what one lane of the warp holds."""
    one, lane = operands[0], operands[1]
    if one.uniform:
        return one
    if "idx" not in suffixes or not lane.exact:
        return UNKNOWN
    numbers = np.arange(len(one.lanes))
    return RegisterValue(one.lanes[numbers // _WARP * _WARP + lane.lanes % _WARP], one.even)


def _lookup_bits(operands: list[RegisterValue], _: list[str]) -> MaybeValue:
    """`lop3`: a table of eight bits says what three bits become."""
    *words, table = operands
    if not all(operand.exact for operand in operands):
        return _uniform_result(operands)
    bits = np.zeros_like(words[0].lanes)
    one, two, three = (operand.lanes for operand in words)
    for at in range(8):
        if int(table.lanes[0]) >> at & 1:
            bits |= (one if at & 4 else ~one) & (two if at & 2 else ~two) & (three if at & 1 else ~three)
    return RegisterValue(bits)


def _uniform_result(operands: list[RegisterValue]) -> MaybeValue:
    return unknown_uniform(len(operands[0].lanes)) if all(operand.uniform for operand in operands) else UNKNOWN


def _on_exact(work: Callable[..., np.ndarray]) -> Callable[[list[RegisterValue], list[str]], MaybeValue]:
    """An operation on numbers of which nothing is unknown."""

    def computed(operands: list[RegisterValue], suffixes: list[str]) -> MaybeValue:
        if not all(operand.exact for operand in operands):
            return _uniform_result(operands)
        return RegisterValue(work(*(_as_signed(operand, suffixes).lanes for operand in operands)))

    return computed


_COMPARISONS = COMPARISONS | {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_WORK: dict[str, Callable[[list[RegisterValue], list[str]], MaybeValue]] = {
    "mov": lambda operands, _: operands[0],
    "cvt": lambda operands, suffixes: _as_signed(operands[0], suffixes),
    "cvta": lambda operands, _: operands[0],
    "add": lambda operands, _: add(operands[0], operands[1]),
    "sub": lambda operands, _: add(operands[0], operands[1], -1),
    "neg": lambda operands, _: add(constant(0, len(operands[0].lanes)), operands[0], -1),
    "mul": _multiply,
    "mad": _multiply_and_add,
    "shl": _shift_left,
    "shr": _shift_right,
    "bfe": _extract_bits,
    "and": lambda operands, _: bitwise("and", *operands),
    "or": lambda operands, _: bitwise("or", *operands),
    "xor": lambda operands, _: bitwise("xor", *operands),
    "not": lambda operands, suffixes: _on_exact(np.logical_not if suffixes[-1] == "pred" else np.invert)(
        operands, suffixes
    ),
    "lop3": _lookup_bits,
    "setp": _compare,
    "selp": _select,
    "shfl": _shuffle,
    "min": _on_exact(np.minimum),
    "max": _on_exact(np.maximum),
    "abs": _on_exact(np.abs),
}
