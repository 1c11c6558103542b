"""Rooflines in words: what a device can do, which limit a kernel meets, and how near to it a time is."""

from __future__ import annotations

from triton_ops.hardware.roofline import MEMORY, Placed, Roofline


def reached(found: Placed | None) -> str:
    """Rates beside their share of the peak, the share of the limit, and which limit that is; empty for None."""
    if found is None:
        return ""
    rates = [_rate(found.tflops, "TFLOP/s", found.of_units)] if found.tflops else []
    rates += [_rate(found.gbps, "GB/s", found.of_memory)] if found.gbps else []
    said = f": {', '.join(rates)}; {found.of_limit:.0%} of its limit, {_limit(found.limit)}"
    if found.of_measured is not None:
        said += f", and {found.of_measured:.0%} of what was measured there"
    return said


def roof_rows(roof: Roofline) -> dict[str, str]:
    """The ceilings, and the operations per byte beside the ridge, where they are known."""
    ceilings = [one for one in (roof.units, roof.memory) if one is not None]
    if not ceilings:
        return {"roof": "no peak of this device is known"}
    said = ", ".join(
        f"{one.peak:,.5g} {one.unit} {'of memory' if one.name == MEMORY else one.name}"
        + (f" ({one.measured:,.5g} measured)" if one.measured else "")
        for one in ceilings
    )
    rows = {"roof": said}
    if roof.ridge is not None and roof.intensity is not None and roof.limit is not None:
        rows["intensity"] = (
            f"{roof.intensity:.4g} FLOP/B, the ridge is at {roof.ridge:.4g}: limited by {_limit(roof.limit.name)}"
        )
    return rows


def _rate(value: float, unit: str, share: float | None) -> str:
    return f"{value:.4g} {unit}" + ("" if share is None else f" ({share:.0%} of the peak)")


def _limit(name: str) -> str:
    return "the memory" if name == MEMORY else f"the units for {name}"
