"""The text of a TTIR module as operations, blocks and types.

Facts used, of the text that Triton 3.6 to 3.9 write: one operation per line, save where a region is opened (`{` or
`({` at a line's end) and closed (`}` at a line's begin, perhaps followed by what belongs to the operation); types stand
after the last colon outside of all brackets. Names of values mean nothing. An operation that is not known is read all
the same, as one with results of the types it names.

"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

_AT_END = re.compile(r"loc\((#loc\d*)\)\s*$")
_LOCATION = re.compile(r'\s*loc\((?:[^()"]|"[^"]*"|\((?:[^()"]|"[^"]*")*\))*\)')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULTS = re.compile(r"((?:%[\w$.-]+(?::\d+)?(?:, )?)+) = ")
_NAME = re.compile(r'"?([A-Za-z_]\w*(?:\.\w+)*)"?')
_LABEL = re.compile(r"\^(\w+)(?:\((.*)\))?:")
_FUNCTION = re.compile(r'tt\.func (?:\w+ )?@"?([\w$.-]+)"?\((.*)\)')
_ARGUMENT = re.compile(r"(%[\w$.-]+): ")
_CALLED = re.compile(r'@"?([\w$.-]+)')
_TARGET = re.compile(r"\^(\w+)(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?")
_WHOLE = re.compile(r"i(\d+)$")
_LITERAL = re.compile(r"dense<([^<>]*)>|(?:^|\s)(true|false|-?[\w.+-]+)\s*$")
_ORDER = re.compile(r"array<i32: ([\d, ]+)>")
_ITEM_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "tf32": 4, "f64": 8, "index": 8}
_POINTER = "!tt.ptr<"
_DESCRIPTOR = "!tt.tensordesc<"


class UntoldError(Exception):
    """A kernel of which something cannot be told; it says why."""


class UnreadableError(UntoldError):
    """A text that is no TTIR module of a form that is known here."""


@dataclass(frozen=True)
class Type:
    """The type of a value."""

    shape: tuple[int, ...]  # extents of a tensor or of a descriptor's block; empty for a scalar
    element: str  # what it holds: `bf16`, `i32`, or what a pointer or a descriptor points to
    pointer: bool = False
    descriptor: bool = False
    layout: str = field(default="", compare=False, repr=False)  # who holds which element, in a TTGIR module's words

    @property
    def whole(self) -> bool:
        """Check whether the elements are whole numbers or truth values."""
        return not self.pointer and (self.element == "index" or _WHOLE.match(self.element) is not None)

    @property
    def truth(self) -> bool:
        """Check whether the elements are truth values."""
        return self.element == "i1" and not self.pointer

    @property
    def item_bytes(self) -> int:
        """Size of an element, or of what a pointer points to."""
        if (whole := _WHOLE.match(self.element)) is not None:
            return max(1, int(whole[1]) // 8)
        if self.element.startswith(_POINTER):
            return 8
        return _ITEM_BYTES.get(self.element, 1)  # all others are formats of 8 bits and fewer


@dataclass
class TtirOperation:
    """One operation, such as `arith.addi`, with the blocks of each of its regions."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]  # names of the values between its name and its types, in the order of the text
    text: str  # what stands between its name and its types, without quoted texts
    types: tuple[Type, ...]  # the types after the colon, up to an arrow or `to`; `result_types` are those after it
    result_types: tuple[Type, ...]
    quoted: tuple[str, ...] = ()
    regions: list[list[TtirBlock]] = field(default_factory=list)
    tail: str = ""  # what follows its last region, such as the attributes of a loop
    number: int = 0  # its place in the text, which names it
    location: str = ""  # the name of its place in the source, such as `#loc12`; empty if the text has none

    @property
    def kinds(self) -> tuple[Type, ...]:
        """The type of each result; the last type that it names stands for those that it does not name."""
        types = self.result_types or self.types[-1:] or (Type((), "none"),)
        return (*types, *types[-1:] * len(self.results))[: len(self.results)]

    @property
    def result_type(self) -> Type:
        """The type of its result, where that is the last type that it names; raises UntoldError if it names none."""
        types = self.result_types or self.types
        if not types:
            raise UntoldError(f"{self.name} names no type")
        return types[-1]

    @property
    def literal(self) -> str:
        """The number or truth value of a constant, as the text has it; empty for another form."""
        match = _LITERAL.search(self.text)
        return (match[1] if match[1] is not None else match[2]) if match else ""

    @property
    def predicate(self) -> str:
        """The first word before a comma: how a comparison compares, or what an atomic operation does."""
        return self.text.split(",")[0].strip()

    def attribute(self, name: str) -> int | None:
        """A whole number among its attributes; None if it has none of this name."""
        match = re.search(rf"\b{re.escape(name)} = (-?\d+)", self.text + self.tail)
        return None if match is None else int(match[1])

    def order(self, rank: int) -> list[int]:
        """The axes of its operand in the order in which its result has them; reversed where the text does not say."""
        match = _ORDER.search(self.text)
        return [int(axis) for axis in match[1].split(",")] if match else list(range(rank))[::-1]

    def jumps(self) -> list[tuple[str, list[str]]]:
        """The jumps at the end of a block: labels, each with the names of the values that it passes."""
        return [(label, _VALUE.findall(values)) for label, values in _TARGET.findall(self.text)]


@dataclass
class TtirBlock:
    """Operations that run one after another, entered with arguments; the first block of a region has no label."""

    label: str = ""
    arguments: tuple[str, ...] = ()
    operations: list[TtirOperation] = field(default_factory=list)


@dataclass
class Function:
    """A function of the module."""

    name: str
    arguments: tuple[tuple[str, Type], ...]
    blocks: list[TtirBlock]


@dataclass
class Module:
    """The kernel that is launched, with all functions by name."""

    kernel: Function
    functions: dict[str, Function]

    def called(self, operation: TtirOperation) -> Function | None:
        """The function that a call names; None if it is not in the text."""
        match = _CALLED.search(operation.text)
        return self.functions.get(match[1]) if match else None


def parsed_module(text: str) -> Module:
    """The module that a text of TTIR stands for; raises UnreadableError if it is none that is known here.

    Cost: about 2 ms for 100 operations.
    """
    reader = _TextReader(_lines(text))
    functions: dict[str, Function] = {}
    kernel: Function | None = None
    while (line := reader.next()) is not None:
        if (match := _FUNCTION.match(line)) is None or not line.endswith("{"):
            continue  # nor a declaration
        pairs = (part.partition(": ") for part in _split(match[2]) if part)
        arguments = tuple((name, parsed_type(kind.partition(" {")[0])) for name, _, kind in pairs)
        function = Function(match[1], arguments, reader.region())
        functions[function.name] = function
        if line.startswith("tt.func public"):
            kernel = kernel or function
    if kernel is None:
        raise UnreadableError("the text has no public function")
    return Module(kernel, functions)


@lru_cache(maxsize=4096)
def parsed_type(text: str) -> Type:
    """The type that `text` stands for, such as `tensor<64x32x!tt.ptr<bf16>>`, or `<64x32xbf16>` of a descriptor."""
    text = text.strip()
    if text.startswith(_POINTER):
        return Type((), _inside(text).rpartition(",")[0] or _inside(text), pointer=True)
    if text.startswith((_DESCRIPTOR, "<")):  # or a descriptor's block: `<64x32xbf16>`, or `<tensor<64x32xbf16>>`
        inner = _inside(text)
        block = parsed_type(inner if inner.startswith("tensor<") else f"tensor<{inner}>")
        return replace(block, descriptor=not text.startswith("<"))
    if text.startswith("tensor<"):
        inner = _inside(text)
        extents, element = [], inner
        while (match := re.match(r"(\d+)x", element)) is not None:
            extents.append(int(match[1]))
            element = element[match.end() :]
        inner, *layout = _split(element)
        content = parsed_type(inner)
        return Type(tuple(extents), content.element, content.pointer, layout="".join(layout))
    return Type((), text)


def _inside(text: str) -> str:
    return text[text.index("<") + 1 : text.rindex(">")]


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines that say something, each with the name of its place in the source."""
    for line in text.splitlines():
        code = _LOCATION.sub("", line).strip() if "loc(" in line else line.strip()
        code = code.partition("  // ")[0].rstrip() if "//" in code else code
        if code and not code.startswith(("#", "//")):
            place = _AT_END.search(line) if "loc(" in line else None
            yield code, place[1] if place else ""


class _TextReader:
    def __init__(self, lines: Iterator[tuple[str, str]]) -> None:
        self._lines = lines
        self._count = 0
        self._closing = ""
        self._location = ""

    def next(self) -> str | None:
        line, self._location = next(self._lines, (None, ""))
        return line

    def region(self) -> list[TtirBlock]:
        """The blocks up to the bracket that closes the region; what follows the bracket is kept for the operation."""
        blocks = [TtirBlock()]
        while (line := self.next()) is not None:
            if line.startswith("}"):
                self._closing = line[1:].strip()
                return blocks
            if (label := _LABEL.match(line)) is not None:
                if not blocks[-1].operations and not blocks[-1].label:
                    blocks.pop()
                blocks.append(TtirBlock(label[1], tuple(_ARGUMENT.findall(label[2] or ""))))
            else:
                blocks[-1].operations.append(self._operation(line))
        raise UnreadableError("the text ends within a region")

    def _operation(self, line: str) -> TtirOperation:
        self._count += 1
        number, regions = self._count, []
        head, opens = (line.removesuffix("{").rstrip(), True) if line.endswith("{") else (line, False)
        generic = opens and head.endswith("(")
        while opens:
            regions.append(self.region())
            tail = self._closing
            opens = tail.endswith("{")
        if not regions:
            operation = _parse_operation(head, number, "")
        else:
            operation = _parse_operation(head[:-1] + tail.removeprefix(")") if generic else head, number, tail)
            operation.regions = regions
        operation.location = self._location
        return operation


def _parse_operation(line: str, number: int, tail: str) -> TtirOperation:
    results: tuple[str, ...] = ()
    if (match := _RESULTS.match(line)) is not None:
        results, line = tuple(_result_names(match[1])), line[match.end() :]
    if (name := _NAME.match(line)) is None:
        raise UnreadableError(f"no operation is known in {line[:60]!r}")
    rest = line[name.end() :]
    quoted = tuple(_TEXT.findall(rest)) if '"' in rest else ()
    rest = _TEXT.sub('""', rest) if quoted else rest
    body, types = _split_types(rest)
    before, arrow, after = types.partition(" -> ")
    if not arrow:
        before, _, after = types.partition(" to ")
    operands, (before_types, after_types) = tuple(_VALUE.findall(body)), map(tuple, map(_type_list, (before, after)))
    return TtirOperation(name[1], results, operands, body, before_types, after_types, quoted, tail=tail, number=number)


def _result_names(text: str) -> Iterator[str]:
    for part in text.split(", "):
        name, _, count = part.partition(":")
        yield from [f"{name}#{at}" for at in range(int(count))] if count else [name]


def _split_types(text: str) -> tuple[str, str]:
    """The text before and after the last colon outside of brackets."""
    at = text.rfind(":")
    while at >= 0 and _open_brackets(text[at:]):
        at = text.rfind(":", 0, at)
    return (text, "") if at < 0 else (text[:at], text[at + 1 :])


def _open_brackets(text: str) -> int:
    """How many brackets a text opens beyond those that it closes; an arrow closes none."""
    return sum(map(text.count, "<({[")) - sum(map(text.count, ">)}]")) + text.count("->")


def _type_list(text: str) -> Iterator[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    for part in _split(text.replace(" * ", ", ")):
        if part:
            yield parsed_type(part)


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts: list[str] = []
    for piece in text.split(","):
        if parts and _open_brackets(parts[-1]):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return [part.strip() for part in parts]
