"""Loads and stores that move few bytes at a time: why, from the address and the mask, and that it is so, from PTX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod

from triton_ops.backend import one_line
from triton_ops.kernel_ir import widths_by_line
from triton_ops.lint.compiled import compile_variant, in_words, known_configs
from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import AccessFact
from triton_ops.lint.meaning.terms import AT_LEAST_ZERO, Monomial, Term, all_of, constant, parts
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant
from triton_ops.lint.rules.indices import Index, indices

_NARROW_BYTES = 4  # less than a word at a time
_WIDEST_BYTES = 16
_EVEN = 16  # arguments are taken as multiples of this
_SECTOR_BYTES = 32


@dataclass(frozen=True, eq=False)
class _Suspect:
    """An access that may be narrow.

    Attributes:
        gap: How many elements its neighbours lie apart.
    """

    access: AccessFact
    cause: str
    gap: int = 1


def _decide_variant(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Compile what the address or the mask makes narrow, to see whether it is; nothing else is compiled."""
    suspects = list(_suspects(variant))
    if not suspects:
        return
    if kernel.target.kind != "cuda":
        yield rule.undecided(kernel, f"how wide {kernel.target.arch} loads each line is not read; PTX is")
        return
    configs = list(known_configs(kernel))
    config = configs[0] if configs else {"num_warps": 1}
    with_tiles = kernel.with_values(config) or variant
    try:
        widths = widths_by_line(compile_variant(kernel, with_tiles, config).assembly)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        yield rule.undecided(kernel, f"{kernel.target.arch} refuses {in_words(config)}: {one_line(error)}")
        return
    for one in _suspects(with_tiles):
        place = kernel.place(one.access)
        line_widths = widths.get((one.access.kind, place.file.rpartition("/")[2], place.line))
        if not line_widths:
            yield rule.undecided(kernel, f"line {place.line}: {one.cause}; no load or store of PTX names the line")
            continue
        item = one.access.type.item_bytes
        room = min(_WIDEST_BYTES, prod(one.access.type.shape) * item // (kernel.target.warp_size * config["num_warps"]))
        if (one.gap > 1 and max(line_widths) <= item) or (max(line_widths) < _NARROW_BYTES <= room):
            yield rule.found(kernel, one.access, _evidence(kernel, one, max(line_widths), in_words(config)))


def _evidence(kernel: KernelReading, one: _Suspect, width: int, config: str) -> str:
    usage = f"; {min(1.0, 1 / one.gap):.0%} of what is moved is used" if one.gap > 1 else ""
    return (
        f"{one.cause}: compiled for {kernel.target.arch} with {config}, a thread moves {width} "
        f"byte{'s' if width > 1 else ''} at a time, of {_WIDEST_BYTES} at most{usage}"
    )


def _suspects(variant: Variant) -> Iterator[_Suspect]:
    """The accesses of the kernel's largest blocks whose address or mask keeps them narrow."""
    accesses = [one for one in variant.facts.accesses if one.kind in ("load", "store") and prod(one.type.shape) > 1]
    largest = max((prod(one.type.shape) for one in accesses), default=0)
    for access in accesses:
        along = indices(variant.facts, access)
        axes = sum(extent > 1 for extent in access.type.shape)
        if 2 * prod(access.type.shape) < largest or len(along) < axes:
            continue
        strides = [constant(index.stride) for index in along]
        if any(stride is None for stride in strides):
            continue  # one of them is 1 for contiguous tensors
        gap = min(abs(stride) for stride in strides if stride is not None)
        if gap > 1 and not _is_guessed(variant, gap):
            yield _Suspect(access, f"neighbours lie {_elements(gap)} apart in memory", gap)
        elif gap == 1 and not any(_is_guessed(variant, stride or 0) for stride in strides):
            cause = _misalignment(variant, access, along[[abs(s or 0) for s in strides].index(1)])
            if cause:
                yield _Suspect(access, cause)


def _is_guessed(variant: Variant, gap: int) -> bool:
    """Check whether a distance may be a multiple of a size that was guessed: callers decide how tensors lie."""
    guess = variant.guess
    sizes = [v for name, v in guess.constants.items() if name not in guess.known_names and type(v) is int and v > 1]
    return any(gap % size == 0 for size in sizes)


def _misalignment(variant: Variant, access: AccessFact, index: Index) -> str:
    """Words for why the address or the mask is no multiple of a word; empty if it is, or if that depends on data."""
    symbol, item = variant.facts.terms.index(index.axis), access.type.item_bytes
    steps = {m: c for m, c in parts(access.offset).items() if symbol not in m}
    if _is_shifted(variant, access) or index.extent * item < _WIDEST_BYTES:
        return ""
    if (shift := _odd_part(steps, item)) is not None:
        return f"it begins {shift} element{'s' if shift != 1 else ''} after a multiple of {_WIDEST_BYTES} bytes"
    for condition in all_of(access.mask):
        sums = parts(condition.operands[0]) if condition.name == AT_LEAST_ZERO else {}
        if sums.get((symbol,), 0) != -1:
            continue
        end = {m: c for m, c in sums.items() if symbol not in m}
        end[()] = end.get((), 0) + 1
        if (shift := _odd_part(end, item)) is not None and shift < 0:
            return f"its mask ends {_elements(-shift)} before a multiple of {_WIDEST_BYTES} bytes"
    return ""


def _odd_part(sums: dict[Monomial, int], item: int) -> int | None:
    """The number that keeps a sum from being a multiple of a word; None if it is one, or if data says."""
    even = {m: _EVEN if any(one.name == "argument" for one in m) else 1 for m in sums}
    remainders = [(m, c) for m, c in sums.items() if gcd(c * even[m] * item, _WIDEST_BYTES) < _NARROW_BYTES]
    if len(remainders) != 1 or remainders[0][0] != ():
        return None
    return remainders[0][1]


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"


def _is_shifted(variant: Variant, access: AccessFact) -> bool:
    """Check whether the same elements are read at another offset too, as stencils do: one of both is not aligned."""

    def apart(one: AccessFact) -> Term:
        return variant.facts.terms.sum({m: c for m, c in parts(one.offset).items() if m})

    return any(
        one is not access and one.root is access.root and apart(one) is apart(access) for one in variant.facts.accesses
    )


NARROW = Rule(
    id="narrow-access",
    level="binary",
    symptom="a fraction of the bandwidth: threads move few bytes at a time, or memory moves what nobody uses",
    fix="let neighbouring threads take neighbouring elements, from a multiple of 16 bytes on: load whole rows and "
    "tl.split, tl.reshape or tl.trans them in registers, or pad what is stored",
    decide=in_each_variant(_decide_variant, 1),
)
