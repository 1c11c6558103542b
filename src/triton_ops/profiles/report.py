"""A whole profile: kernels by their share of the time, each with its verdict, and what is worth doing about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triton_ops.compile_modes.advice import Advice, CallProfile, OpShare, decided
from triton_ops.exceptions import ProfileError
from triton_ops.hardware import DeviceSpec, spec_called
from triton_ops.hardware.roofline import Placed, Roofline, roofline
from triton_ops.profiles.figures import KernelProfile, figures_of
from triton_ops.profiles.ncu_csv import read_ncu
from triton_ops.profiles.verdict import LAUNCH, Judgement, judged

_PRODUCT = re.compile(
    r"gemm|cutlass|xmma|cublas|nvjet|matmul|product|conv|attention|attn|flash|fmha|(?:^|_)(?:add|b|baddb)?mm(?:_|$)",
    re.IGNORECASE,
)
_MATRIX_UNITS = 5.0  # percent of their peak at which a kernel multiplies matrices, whatever its name
_SCATTERED = re.compile(r"sort|scatter|gather|index|radix|topk|cumsum|scan|unique|histogram|embedding", re.IGNORECASE)
_LEAST_SHARE = 0.005  # of the time, to be worth a word
_LAUNCH_S = 3.5e-6  # of an empty kernel between two events, as measured on an H200 (docs/concepts/model.md)


@dataclass(frozen=True)
class ProfiledKernel:
    """All launches of one kernel in a profile.

    Attributes:
        judgement: The verdict on its launch of median length.
        launches: Number of launches.
        share: Share of the time of all kernels; None if the profile has no times.
    """

    judgement: Judgement
    launches: int
    share: float | None


@dataclass(frozen=True)
class ProfileReport:
    """What a profile says.

    Attributes:
        kernels: The kernels, the longest first.
        advice: What is worth doing about all of them; None if the profile has no times.
        notes: What a reader should know, such as that the file is cut.
    """

    kernels: tuple[ProfiledKernel, ...]
    advice: Advice | None
    notes: tuple[str, ...] = ()


def read_profile(path: str | Path, *, kernel: str = "", tried: Collection[str] = ()) -> ProfileReport:
    """What a CSV file of Nsight Compute says of the kernels in it; no GPU and no profiler are needed.

    Args:
        path: The file, as `ncu --csv` printed it.
        kernel: A regular expression; only kernels in whose name it is found are read.
        tried: Ways that were tried already: `library`, `torch.compile`, `Triton`, `CUDA`.

    Returns:
        A verdict for each kernel with its figures, what to try next, and what is worth doing about the whole.

    Raises:
        ProfileError: The file cannot be read, is none of Nsight Compute's, or has no such kernel.
    """
    table = read_ncu(path)
    try:
        wanted = re.compile(kernel)
    except re.error as error:
        raise ProfileError(f"{kernel!r} is no regular expression: {error}", hint="such as --kernel matmul") from error
    found = [figures_of(launch) for launch in table.launches if wanted.search(launch.kernel)]
    if not found:
        names = ", ".join(dict.fromkeys(launch.kernel for launch in table.launches))
        raise ProfileError(f"{path} has no kernel with {kernel!r} in its name", hint=f"it has {names[:300]}")
    grouped: dict[str, list[KernelProfile]] = {}
    for profile in found:
        grouped.setdefault(profile.kernel, []).append(profile)
    whole_s = sum(profile.duration_s or 0.0 for profile in found)
    kernels = sorted((_together(group, whole_s) for group in grouped.values()), key=lambda one: -(one.share or 0.0))
    return ProfileReport(tuple(kernels), _advice(found, kernels, whole_s, tried), table.notes)


def _together(group: Sequence[KernelProfile], whole_s: float) -> ProfiledKernel:
    """A kernel's launches as one, by the launch of median length."""
    timed = sorted((one for one in group if one.duration_s is not None), key=lambda one: one.duration_s or 0.0)
    middle = timed[len(timed) // 2] if timed else group[0]
    share = sum(one.duration_s or 0.0 for one in timed) / whole_s if whole_s else None
    return ProfiledKernel(judged(middle), len(group), share)


def _advice(
    found: Sequence[KernelProfile], kernels: Sequence[ProfiledKernel], whole_s: float, tried: Collection[str]
) -> Advice | None:
    """What is worth doing, by the rules for models; operators are kernels here."""
    if not whole_s:
        return None
    ops = tuple(
        OpShare(one.judgement.profile.kernel, one.share or 0.0, one.launches, _kind(one.judgement.profile))
        for one in kernels
    )
    busy = [(one.tensor or 0.0, one.duration_s or 0.0) for one in found if one.tensor and _kind(one) == "product"]
    busy_s = sum(took for _, took in busy)
    arch = next((one.arch for one in found if one.arch), "")
    advice = decided(
        CallProfile(
            call_ms=1e3 * max(whole_s, len(found) * _LAUNCH_S), idle=max(0.0, 1 - whole_s / (len(found) * _LAUNCH_S)),
            ops=ops, of_peak=sum(share / 100 * took for share, took in busy) / busy_s if busy_s else None, arch=arch,
        ), tried,
    )  # fmt: skip
    return replace(advice, reasons=(*advice.reasons, *_verdicts(kernels)))


def _verdicts(kernels: Sequence[ProfiledKernel]) -> list[str]:
    """How the time divides among the verdicts, in words."""
    shares: dict[str, float] = {}
    for one in kernels:
        shares[one.judgement.verdict] = shares.get(one.judgement.verdict, 0.0) + (one.share or 0.0)
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    said = [f"{share:.0%} of the time is {verdict}" for verdict, share in ordered if share >= _LEAST_SHARE]
    many = sum(one.launches for one in kernels if one.judgement.verdict == LAUNCH)
    return said + ([f"{many} launches are too short to fill the device"] if many else [])


def _kind(profile: KernelProfile) -> str:
    """What kind of work a kernel does: by what the profiler counted, else by its name."""
    multiplies = profile.products or (profile.tensor or 0.0) >= _MATRIX_UNITS
    return "product" if multiplies else kernel_kind(profile.kernel)


def kernel_kind(name: str) -> str:
    """What kind of work a kernel's name means, in the words of `compile_modes.advice`."""
    if _PRODUCT.search(name):
        return "product"
    return "scattered" if _SCATTERED.search(name) else "fusable"


def device_of(profile: KernelProfile, gpu: str | None = None) -> DeviceSpec | None:
    """The device of a profile, from the table, or the one that is named; None if it is not known.

    Raises:
        ProfileError: There is no device of the given name.
    """
    if gpu is None:
        return spec_called(profile.device) if profile.device else None
    spec = spec_called(gpu)
    if spec is None:
        raise ProfileError(f"no device {gpu!r} is in the table", hint="for example --gpu 'NVIDIA H200'")
    return spec


def placed_below_roof(
    profile: KernelProfile, spec: DeviceSpec | None, flops: float = 0.0, dtype: str = ""
) -> tuple[Roofline, Placed] | None:
    """The roofline of a launch and its place below it, by the time and the bytes that the profiler counted.

    Args:
        profile: The figures of the launch.
        spec: The device; None if it is not known.
        flops: Operations of one launch; 0 takes those of products that the profiler counted.
        dtype: Of the operands of these operations; empty takes that of the counted ones.

    Returns:
        None if the profile has no time, neither bytes nor operations are known, or no peak of the device is.
    """
    if spec is None or profile.duration_s is None:
        return None
    roof = roofline(
        spec, flops=flops or profile.flops, bytes_=profile.moved_bytes or 0.0, dtype=dtype or profile.dtype,
        products=True,
    )  # fmt: skip
    placed = roof.placed(1e3 * profile.duration_s)
    return None if placed is None else (roof, placed)
