"""Operations on single elements, computed in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[Any]


def _quotient(one: Numbers, other: Numbers) -> Numbers:
    return np.asarray(np.floor(one / np.where(other == 0, 1, other)))


def _remainder(one: Numbers, other: Numbers) -> Numbers:
    return np.asarray(np.mod(one, np.where(other == 0, 1, other)))


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_erf = np.vectorize(math.erf, otypes=[float])
_ONE: dict[str, Callable[[Any], Any]] = {
    "math.exp": np.exp, "math.exp2": np.exp2, "math.log": np.log, "math.log2": np.log2, "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x), "math.sin": np.sin, "math.cos": np.cos, "math.tanh": np.tanh,
    "math.absf": np.abs, "math.absi": np.abs, "math.floor": np.floor, "math.ceil": np.ceil, "math.erf": _erf,
    "math.log1p": np.log1p, "math.expm1": np.expm1, "arith.negf": np.negative, "tt.precise_sqrt": np.sqrt,
    "arith.extf": lambda x: x, "arith.truncf": lambda x: x, "tt.fp_to_fp": lambda x: x,
    "arith.sitofp": lambda x: x * 1.0, "arith.uitofp": lambda x: x * 1.0, "arith.fptosi": np.trunc,
    "arith.fptoui": np.trunc,
    "arith.extsi": lambda x: x, "arith.extui": lambda x: x * 1, "arith.trunci": lambda x: x,
}  # fmt: skip
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "tt.precise_divf": np.divide, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin, "math.powf": np.power, "arith.remf": np.fmod, "arith.addi": np.add,
    "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.maxui": np.maximum, "arith.minui": np.minimum,
}  # fmt: skip
_MORE: dict[str, Callable[..., Any]] = {
    "arith.select": np.where, "math.fma": lambda x, y, z: x * y + z, "tt.clampf": np.clip,
    "arith.divsi": _quotient, "arith.divui": _quotient, "quotient": _quotient,
    "arith.remsi": _remainder, "arith.remui": _remainder, "remainder": _remainder,
    "least": np.minimum, "most": np.maximum,
}  # fmt: skip
_BITS = {"arith.andi": np.logical_and, "arith.ori": np.logical_or, "arith.xori": np.logical_xor}
_LIBRARY: dict[str, Callable[[Any], Any]] = {"exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2,
"sqrt": np.sqrt, "tanh": np.tanh,
            "rsqrt": lambda x: 1 / np.sqrt(x), "erf": _erf, "fabs": np.abs, "floor": np.floor, "sin": np.sin,
            "cos": np.cos, "log1p": np.log1p, "expm1": np.expm1, "sinh": np.sinh, "cosh": np.cosh,
            "fast_exp": np.exp, "fast_tanh": np.tanh, "fast_log": np.log, "fast_log2": np.log2}  # fmt: skip


class NotComputedError(Exception):
    """An operation whose result cannot be computed here; it names the operation."""


def applied(name: str, word: str, given: Sequence[Numbers]) -> Numbers:
    """An operation on single elements.

    Args:
        name: TTIR's name of the operation.
        word: What else it says of itself: the predicate of a comparison, the symbol of a library's function.
        given: Its operands.

    Raises:
        NotComputedError: It is not known.
    """
    known: Callable[..., Any] | None = _ONE.get(name) or TWO.get(name) or _MORE.get(name)
    if name in _BITS and all(one.dtype == bool for one in given):
        known = _BITS[name]
    elif name in ("arith.cmpf", "arith.cmpi"):
        known = COMPARE.get(word.strip()[-2:])
    elif name == "tt.extern_elementwise":
        symbol = word.strip('" ').removeprefix("__nv_")
        known = _LIBRARY.get(symbol) or _LIBRARY.get(symbol.removesuffix("f"))
    if known is None:
        raise NotComputedError(f"{name} {word}".strip())
    return np.asarray(known(*given))
