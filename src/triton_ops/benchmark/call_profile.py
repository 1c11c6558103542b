"""Profiles of calls, and what is worth doing about their speed.

The way to go is nothing, a library, torch.compile, a Triton kernel, or CUDA: a function of a few shares of a profile.
The order is that of the cost of the work: what is found by a switch comes before what is written by hand, and what was
tried already is not named again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from triton_ops import settings
from triton_ops.base import require

Way: TypeAlias = Literal["skip", "library", "torch.compile", "Triton", "CUDA"]

_HOT = 0.1  # of a call's time: what takes less is not worth a kernel
_NAMED = 0.01  # of the time: operators that take less are not named
_FUSABLE_HOT = 0.2
_IDLE = 0.25
_NEAR_PEAK = 0.6
_PRODUCTS_RULE = 0.7
_HOPPER = 90  # of `sm_90`


@dataclass(frozen=True)
class OpShare:
    """An operator's share of a call.

    `share` is its own share of the time, without operators that it calls. `kind` is `product` for what libraries do,
    `scattered` for what no fusion helps, `unknown` for what is not torch's own, else `fusable`.
    """

    name: str
    share: float
    calls: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """Shares of the time of a call."""

    call_ms: float
    idle: float | None = None  # share of the time in which a GPU waits for the host; None on a CPU
    ops: tuple[OpShare, ...] = ()  # operators, the most expensive first
    of_peak: float | None = None  # rate of the products over the device's peak by datasheet; None if not known
    arch: str = ""  # the device's architecture, such as `sm_90`

    def share(self, kind: str) -> float:
        """The share of all operators of a kind."""
        return sum(op.share for op in self.ops if op.kind == kind)

    def advice(self, tried: Collection[str] = ()) -> Advice:
        """Decide what to do about a call with this profile; ways in `tried` are not named again."""
        for way, look in _LOOKS:
            if way not in tried and (reasons := look(self)):
                return Advice(way, tuple(reasons), self)
        hottest = self.ops[0] if self.ops else None
        if hottest is not None and hottest.kind == "unknown":
            unknown = f"{hottest.name} takes {hottest.share:.0%}, and nothing is known of what would make it faster"
            return Advice("skip", (unknown,), self)
        most = f"the hottest operator, {hottest.name}, takes {hottest.share:.0%}" if hottest else "nothing was measured"
        return Advice("skip", (f"{most}, and no further way promises more than its work costs",), self)


@dataclass(frozen=True)
class Advice:
    """The way to go, and the reasons.

    Attributes:
        way: `skip`, `library`, `torch.compile`, `Triton` or `CUDA`.
        reasons: Why, with the figures.
        profile: The profile from which that was drawn.
    """

    WAYS: ClassVar[tuple[Way, ...]] = get_args(Way)
    way: Way
    reasons: tuple[str, ...]
    profile: CallProfile = field(default_factory=lambda: CallProfile(call_ms=0.0))

    @classmethod
    def by_shares(
        cls, ops: Iterable[tuple[str, float, int, str]], tried: Collection[str], *, call_ms: float, idle: float | None,
        of_peak: float | None, arch: str,
    ) -> Advice:  # fmt: skip
        """Decide by the fields of an `OpShare` for each operator, and those of a `CallProfile`."""
        shares = tuple(OpShare(*op) for op in ops)
        return CallProfile(call_ms=call_ms, idle=idle, ops=shares, of_peak=of_peak, arch=arch).advice(tried)

    def __str__(self) -> str:
        return f"{self.way}: {'; '.join(self.reasons)}"


def _fusion(profile: CallProfile) -> list[str]:
    reasons = []
    if profile.idle is not None and profile.idle >= _IDLE:
        reasons.append(
            f"the GPU waits for the host in {profile.idle:.0%} of a call: fewer launches, and CUDA graphs, help"
        )
    fusable = profile.share("fusable")
    if fusable >= _FUSABLE_HOT:
        fusable_ops = [op for op in profile.ops if op.kind == "fusable"]
        names = ", ".join(op.name for op in fusable_ops if op.share >= _NAMED or op is fusable_ops[0])
        reasons.append(f"{fusable:.0%} goes to operators that a compiler fuses: {names}")
    return reasons


def _library(profile: CallProfile) -> list[str]:
    """Reasons why products of the vendor's library are as good as it gets."""
    products = profile.share("product")
    if products < _PRODUCTS_RULE or (profile.of_peak is not None and profile.of_peak < _NEAR_PEAK):
        return []
    rate = "" if profile.of_peak is None else f", at {profile.of_peak:.0%} of the device's peak"
    return [
        f"{products:.0%} goes to products, which a vendor's library does well{rate}: try its precisions and layouts"
    ]


def _kernel(profile: CallProfile) -> list[str]:
    """Reasons why a Triton kernel of one's own pays."""
    reasons = [
        f"{op.name} takes {op.share:.0%}, and neither a library nor fusion makes it faster"
        for op in profile.ops
        if op.kind == "scattered" and op.share >= _HOT
    ]
    if profile.of_peak is not None and profile.of_peak < _NEAR_PEAK and profile.share("product") >= _HOT:
        reasons.append(
            f"products run at {profile.of_peak:.0%} of the device's peak: tiles tuned for these shapes may do better"
        )
    return reasons


def _cuda(profile: CallProfile) -> list[str]:
    """Reasons why nothing but CUDA is left: products that want what Triton does not give."""
    version = re.fullmatch(r"sm_(\d+)\w*", profile.arch)
    if version is None or int(version[1]) < _HOPPER or profile.share("product") < _PRODUCTS_RULE:
        return []
    if profile.of_peak is None or profile.of_peak >= _NEAR_PEAK:
        return []
    share, rate = f"{profile.share('product'):.0%}", f"{profile.of_peak:.0%} of the peak of {profile.arch}"
    return [
        f"{share} goes to products at {rate}: roles of warps and asynchronous copies are controlled in CUDA and CUTLASS"
    ]


_LOOKS: tuple[tuple[Way, Callable[[CallProfile], list[str]]], ...] = (
    ("torch.compile", _fusion),
    ("library", _library),
    ("Triton", _kernel),
    ("CUDA", _cuda),
)


def profile_of(call: Callable[[], Any], device_name: str, calls: int = 1, **more: Any) -> Any:
    """So many calls in torch's profiler, with further options; it keeps its events, since torch 2.11 else warns."""
    torch: Any = require("torch", "profiling a model")
    settings.keep_cupti()  # timers capture graphs in this process, and models may
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, *([kinds.CUDA] if device_name.startswith("cuda") else [])]
    with torch.profiler.profile(activities=activities, acc_events=True, **more) as profile:
        for _ in range(calls):
            call()
        if device_name.startswith("cuda"):
            torch.cuda.synchronize()
    return profile
