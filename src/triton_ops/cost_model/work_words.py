"""Work that was read from a kernel, in words, and how it differs from what is declared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, count

from triton_ops.cost_model.inferred_rows import passes_of, why_silent
from triton_ops.cost_model.prediction import Model
from triton_ops.kernel_ir import Access, KernelWork, LaunchWork, Product
from triton_ops.values import Work

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_AGREE = 0.8  # Spearman's correlation below which two rankings of a space differ
_LEAST_SHARE, _MOST_SHARE = 0.8, 1.25  # of the declared bytes or operations


def work_in_words(work: KernelWork) -> dict[str, str]:
    """The launches of a config in words: a name and a text for each part."""
    if work.silent:
        return {"work": f"cannot be read: {work.silent}"}
    facts: dict[str, str] = {}
    for number, launch in enumerate(work.launches, 1):
        before = f"launch {number}: " if len(work.launches) > 1 else ""
        for name, text in _launch_words(launch):
            names = chain((before + name,), (f"{before}{name} {at}" for at in count(2)))  # a second load is `load 2`
            facts[next(one for one in names if one not in facts)] = text
    return facts


def differences(
    declared: Work, read: Work, works: Sequence[KernelWork], scores: Sequence[tuple[float, float]]
) -> list[str]:
    """The differences of a declaration and of what was read, in words; `scores` are pairs of their expected times."""
    sentences: list[str] = []
    passes = getattr(declared.tiles, "passes", None)
    walks = {passes_of(launch) for work in works for launch in work.launches if not launch.products}
    if passes is not None and walks and passes not in walks:
        times = " or ".join(map(str, sorted(walks)))
        sentences.append(f"{passes} passes over a row are declared, and the kernel reads it {times} times")
    for amount, least, unit in ((declared.flops, read.flops, "FLOP"), (declared.bytes, read.bytes, "B")):
        if amount and least and not _LEAST_SHARE <= least / amount <= _MOST_SHARE:
            sentences.append(f"{_short(amount)}{unit} are declared, and the kernel's least is {_short(least)}{unit}")
    pairs = [(a, b) for a, b in scores if math.isfinite(a) and math.isfinite(b)]
    if len(pairs) > 2 and (rho := Model.spearman(*zip(*pairs, strict=True))) < _AGREE:
        sentences.append(f"both order {len(pairs)} configs in other ways: their rank correlation is {rho:.2f}")
    return sentences


def _launch_words(launch: LaunchWork) -> list[tuple[str, str]]:
    lines = [("programs", " x ".join(str(extent) for extent in launch.grid if extent > 1) or "1")]
    lines += [("loop", text) for text in _loops_in_words(launch)]
    lines += [("product", _product_in_words(product, launch)) for product in launch.products]
    lines += [(access.kind, _access_in_words(access, launch)) for access in launch.accesses if access.elements]
    lines += [("reductions", f"{_count(launch.reductions)} per program")] if launch.reductions else []
    lines += [("note", note) for note in launch.notes]
    if why := why_silent(launch):
        lines.append(("no forecast", why))
    return lines


def _times(count: float, word: str) -> str:
    return f"{_count(count)} {word}{'' if _count(count) == '1' else 's'}"


def _loops_in_words(launch: LaunchWork) -> Iterator[str]:
    for loop in launch.loops:
        text = _times(loop.turns, "iteration")
        text += f", {_count(loop.most)} at most" if loop.most > 1.01 * loop.turns else ""
        text += f" in {_count(loop.entries)} walks" if loop.entries > 1.01 else ""
        text += f", {loop.stages} stage{'s' if loop.stages != 1 else ''} asked for" if loop.stages is not None else ""
        yield text + (", its bounds are data" if loop.by_data else "")


def _product_in_words(product: Product, launch: LaunchWork) -> str:
    tile = f"{product.rows}x{product.columns}, sums of {product.inner}, {product.dtype}"
    computed = [name for name, load in zip(("left", "right"), product.loads, strict=True) if load < 0]
    text = f"{tile}, {_times(product.executions, 'time')}; {_short(product.flops * launch.programs)}FLOP in all"
    text += f"; the {computed[0]} operand is computed" if len(computed) == 1 else ""
    if product.after:
        names = " and ".join("product" if at == 0 else f"product {at + 1}" for at in product.after)  # as listed
        return f"{text}; in each iteration it waits for {names}"
    return text + ("; in each iteration it waits for arithmetic" if product.computed else "")


def _access_in_words(access: Access, launch: LaunchWork) -> str:
    name = launch.arguments[access.argument].name if 0 <= access.argument < len(launch.arguments) else ""
    text = f"{name or 'an unknown argument'}: {_short(access.bytes)}B per program"
    text += f" in {_count(access.executions)} iterations" if access.executions > 1.01 else ""
    text += f", {_short(access.bytes * launch.programs)}B in all, runs of {_count(access.run_bytes)} B"
    if not access.known:
        return text + ", at unknown addresses"
    shared = launch.looked_at / max(access.shared[-1], 1e-9)
    text += f", each address by {_count(shared)} programs" if shared > 1.5 and access.kind == "load" else ""
    text += f", the same addresses {_count(access.repeats)} times" if access.repeats > 1.01 else ""
    if access.again < 0:
        return text
    share = f"{1 - access.anew:.0%} of its addresses with" if access.anew else "the same addresses as"
    return text + f", {share} {_listed_name(launch, access.again)}"


def _listed_name(launch: LaunchWork, at: int) -> str:
    """An access by the name under which it stands in the list."""
    kind = launch.accesses[at].kind
    number = sum(access.kind == kind and access.elements > 0 for access in launch.accesses[: at + 1])
    return kind if number == 1 else f"{kind} {number}"


def _short(number: float) -> str:
    for size, unit in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g} "


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"
