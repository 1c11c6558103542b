"""Types and values for the parameters of a kernel of which no launch is known: what its TTIR can be made with.

What the source says comes first: annotations, defaults, the configs of `triton.autotune`, and what launches in the
file give. The rest is tried: a guess with which Triton's front end accepts the kernel serves, since the rules look at
symbols and not at numbers.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.base import require
from triton_ops.lint.jit_functions import KernelFunction, last_name
from triton_ops.lint.source_launches import SourceLaunch
from triton_ops.lint.usage import Uses, uses_of

_TILES = (64, 32, 16)
_EXTENT, _APART = 104, 8  # of what is no tile: no power of two, so that nothing falls away for fitting a tile
_UNROLLED = 2
_ANNOTATED = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float32": "fp32", "float64": "fp64",
              "uint32": "u32", "uint64": "u64", "float16": "fp16", "bfloat16": "bf16", "int1": "i1"}  # fmt: skip
FLOATS = ("fp16", "fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Types and values with which a kernel is lowered.

    Attributes:
        types: The type of each parameter, in order.
        constants: The values of those whose type is `constexpr`.
        known_names: The parameters whose values the source says.
        element: What tensors of floating point hold.
        ones: Plain numbers that launches are known to give 1, which Triton then takes as a constant.
    """

    types: Mapping[str, str]
    constants: Mapping[str, Any]
    known_names: frozenset[str] = frozenset()
    element: str = "fp16"
    options: Mapping[str, int] = field(default_factory=dict)
    ones: frozenset[str] = frozenset()

    def switched(self, name: str, value: Any) -> Guess:
        """The same with another value of one parameter."""
        return replace(self, constants={**self.constants, name: value})

    @property
    def specialised(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Types and constants as a launch would compile them, with the numbers that are 1 as constants."""
        types = {name: "constexpr" if name in self.ones else kind for name, kind in self.types.items()}
        return types, {**self.constants, **dict.fromkeys(self.ones, 1)}


@dataclass(frozen=True)
class SourceValues:
    """The sources of values of parameters in a file.

    Attributes:
        heuristics: Functions from arguments to a value, by parameter.
    """

    configs: Sequence[Mapping[str, Any]] = ()
    heuristics: Mapping[str, Any] = field(default_factory=dict)
    launches: Sequence[SourceLaunch] = ()


def guesses(kernel: KernelFunction, source: SourceValues, extra: frozenset[str] = frozenset()) -> Iterator[Guess]:
    """Guesses in the order in which they should be tried, with the parameters in `extra` as constants too."""
    uses = uses_of(kernel)
    constant = kernel.constants | extra
    values = {name: value for name, value in _constant_values(kernel, source).items() if name in constant}
    if uses.descriptors:  # their blocks are not known: with tiles of one size, each fits
        values = {name: value for name, value in values.items() if name not in uses.tiles}
    whole = _whole_literals(kernel, source)
    for (apart, tiles), element in itertools.product(_tile_guesses(uses), FLOATS):
        block = next(iter(tiles.values()), _TILES[0])
        constants: dict[str, Any] = {}
        for name in kernel.parameters:
            if name in constant:
                extent = _EXTENT + _APART * len(constants) if apart else _EXTENT
                constants[name] = values[name] if name in values else _constant(name, uses, tiles, (element, extent))
        constants.update(_rounded_up(source, uses, constants, values))
        constants.update(_heuristics(source, constants, constant))
        types = {
            name: "constexpr" if name in constant else _type(name, kernel, uses, (element, block), whole)
            for name in kernel.parameters
        }
        yield Guess(types=types, constants=constants, known_names=frozenset(values), element=element)


def switches(kernel: KernelFunction, guess: Guess) -> Iterator[Guess]:
    """The same guess with each switch in its other position, and with every text that a parameter is compared with."""
    uses = uses_of(kernel)
    for name, value in guess.constants.items():
        if name in guess.known_names:
            continue
        if isinstance(value, bool):
            yield guess.switched(name, not value)
        for text in dict.fromkeys(uses.texts.get(name, ())):
            if type(text) is type(value) and text != value:
                yield guess.switched(name, text)
    off = {name: True for name, value in guess.constants.items() if value is False and name not in guess.known_names}
    if len(off) > 1:
        yield replace(guess, constants={**guess.constants, **off})


def _rounded_up(
    source: SourceValues, uses: Uses, constants: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, int]:
    """Blocks that launches make the next power of two of a size that is a constant too: one block holds all of it."""
    blocks: dict[str, int] = {}
    for launch in source.launches:
        sizes = {
            ast.unparse(launch.resolved(node)): constants[name]
            for name, node in launch.arguments.items()
            if type(constants.get(name)) is int and name not in uses.tiles
        }
        for name, node in launch.arguments.items():
            if name in uses.tiles and name not in values and name not in blocks:
                size = _power_of_two(launch, node, sizes)
                blocks.update({name: size} if size else {})
    return blocks


def _power_of_two(launch: SourceLaunch, node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """The number that an expression of `next_power_of_2`, `max` and `min` is for these sizes; None for any other."""
    call = launch.resolved(node)
    if isinstance(call, ast.Constant):
        return call.value if type(call.value) is int else None
    if not isinstance(call, ast.Call) or not call.args:
        return None
    if last_name(call) == "next_power_of_2":
        size = sizes.get(ast.unparse(launch.resolved(call.args[0])), 0)
        return 1 << (size - 1).bit_length() if size > 0 else None
    parts = [_power_of_two(launch, one, sizes) for one in call.args]
    numbers = [one for one in parts if one is not None]
    if last_name(call) not in ("max", "min") or len(numbers) < len(parts):
        return None
    return max(numbers) if last_name(call) == "max" else min(numbers)


def _tile_guesses(uses: Uses) -> Iterator[tuple[bool, dict[str, int]]]:
    """Extents of blocks, and whether the other sizes are all different, so that none is taken for another."""
    names = list(uses.tiles)
    if not uses.descriptors:
        yield True, {name: _TILES[min(at, len(_TILES) - 1)] for at, name in enumerate(names)}
    for size in (32, 64, 16, 128):
        yield True, dict.fromkeys(names, size)
    yield False, dict.fromkeys(names, 64)


def _constant_values(kernel: KernelFunction, source: SourceValues) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for param in kernel.function.params:
        if param.has_default and param.is_constexpr:
            values[param.name] = getattr(param.default, "value", param.default)
    for launch in source.launches:
        for name, node in launch.arguments.items():
            value = launch.literal(node)
            if value is not None or (isinstance(node, ast.Constant) and node.value is None):
                values[name] = value
    for config in source.configs[:1]:
        values.update(config)
    return values


def _whole_literals(kernel: KernelFunction, source: SourceValues) -> dict[str, str]:
    """The types of the plain parameters whose values launches and defaults show."""
    types: dict[str, str] = {}
    for param in kernel.function.params:
        if param.has_default and not param.is_constexpr:
            types[param.name] = _type_of(param.default)
    for launch in source.launches:
        for name, node in launch.arguments.items():
            value = launch.literal(node)
            if isinstance(value, (bool, int, float)):
                types[name] = _type_of(value)
    return {name: kind for name, kind in types.items() if kind}


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32"
    return "fp32" if isinstance(value, float) else ""


def _constant(name: str, uses: Uses, tiles: Mapping[str, int], sizes: tuple[str, int]) -> Any:
    element, extent = sizes
    language = require("triton", "reading kernels").language
    if name in uses.types:
        return {"fp16": language.float16, "bf16": language.bfloat16, "fp32": language.float32}[element]
    texts = uses.texts.get(name, [])
    words = [text for text in texts if isinstance(text, str)]
    if words:
        return words[0]
    if name in uses.callables or (name in uses.optional and name not in uses.tiles | dict.fromkeys(uses.numbers)):
        return None
    if name in uses.tiles:
        return tiles[name]
    if name in uses.ranges:
        return _UNROLLED
    numbers = [text for text in texts if type(text) is int]
    if name in uses.switches and name not in uses.numbers:
        return False
    if any(type(text) is bool for text in texts):
        return False
    if numbers and name not in uses.numbers:
        return numbers[0]
    return extent


def _type(name: str, kernel: KernelFunction, uses: Uses, sizes: tuple[str, int], whole: Mapping[str, str]) -> str:
    element, block = sizes
    annotated = next((p.annotation for p in kernel.function.params if p.name == name), "")
    if isinstance(annotated, str) and annotated.rpartition(".")[2] in _ANNOTATED:
        return _ANNOTATED[annotated.rpartition(".")[2]]
    if name in uses.descriptors:
        return f"tensordesc<{element}[{', '.join([str(block)] * uses.descriptors[name])}]>"
    if name in uses.pointers:
        element_kind = uses.pointers[name]
        return {"int": "*i64", "atomic": "*fp32"}.get(element_kind, f"*{element}")
    if name in whole:
        return whole[name]
    if name in uses.optional and name not in uses.numbers:
        return f"*{element}"
    return "i32" if name in uses.numbers or name in uses.tiles or name in uses.switches else "fp32"


def _heuristics(source: SourceValues, constants: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Values of heuristics that need only constants; False for the rest, which is what most of them ask."""
    values: dict[str, Any] = {}
    for name, function in source.heuristics.items():
        if name not in names:
            continue
        try:
            values[name] = function({**constants, **values})
        except Exception:  # noqa: BLE001 - it asks for arguments that are not known
            values[name] = constants.get(name) if type(constants.get(name)) is int else False
    return values
