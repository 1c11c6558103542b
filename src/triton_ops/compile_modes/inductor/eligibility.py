"""Inductor's backends for a product or a convolution: those that `max-autotune` measures, and why it leaves others out.

Each backend has a predicate, which says yes or no and why, from the figures of a device that need not be here. The
rules are those of the functions `use_…_template` of `torch._inductor.utils`, and of their callers, in torch 2.11 to
2.15. What they ask of a tensor's memory, such as its alignment, is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TypeAlias

from triton_ops.compile_modes.inductor.backends import LISTS, gate_of, known_backends, names_in, wrong_list
from triton_ops.compile_modes.inductor.sources import option_values
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import SettingsError

_TEMPLATE_DTYPES = ("float16", "bfloat16", "float32")
_CUTLASS_DTYPES = ("float16", "bfloat16", "int32")
_CPP_DTYPES = ("float32", "bfloat16", "float16", "uint8", "int8")
_CK_ARCHS = ("gfx90a", "gfx942", "gfx950")
_GROUPED_ONLY = "it is for grouped products of bfloat16 on Blackwell alone (sm_100 to sm_109)"


@dataclass(frozen=True, kw_only=True)
class Site:
    """An operation on a device, for which backends are asked.

    Attributes:
        kind: `mm` for a product of matrices, `conv` for a convolution.
        device: The device.
        dtype: The dtype of the result, such as `bfloat16`.
        extents: M, N and K of a product; empty where they are not known, and for convolutions.
        frozen: Whether weights are constants (the option `freezing`).

    Raises:
        SettingsError: Inductor has no backends for operations of this kind.
    """

    kind: str
    device: DeviceSpec
    dtype: str
    extents: tuple[int, ...] = ()
    frozen: bool = False

    def __post_init__(self) -> None:
        if self.kind not in LISTS:
            raise SettingsError(f"there are no backends for {self.kind!r}", hint=f"name one of {', '.join(LISTS)}")

    def backends(self, names: str | None = None) -> list[BackendChoice]:
        """Every backend that this torch has for the operation, with whether it takes part, and why.

        Args:
            names: The list of backends; None is that of this process, which its environment may have set.

        Raises:
            SettingsError: The list has a name that no backend has.
        """
        option = LISTS[self.kind]
        text = option_values()[option] if names is None else names
        if wrong := wrong_list(option, text):
            raise SettingsError(wrong, hint="correct the list: such as ATEN,TRITON")
        return [self._choice(name, option, name in names_in(text)) for name in known_backends(self.kind)]

    def _choice(self, name: str, option: str, listed: bool) -> BackendChoice:
        eligible, reason = _PREDICATES[self.kind].get(name, _unheard_of)(self)
        if not listed:
            reason = f"{option} does not list it" + (f"; and {reason}" if reason and not eligible else "")
        return BackendChoice(name=name, listed=listed, eligible=eligible, reason=reason)


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """One backend of an operation.

    Attributes:
        name: Its name in the list.
        listed: Whether the list has it.
        eligible: Whether it could take part if it were listed.
        reason: Why not; of one that takes part what a reader should know.
    """

    name: str
    listed: bool
    eligible: bool
    reason: str

    @property
    def takes_part(self) -> bool:
        """Tell whether Inductor measures it."""
        return self.listed and self.eligible


Predicate: TypeAlias = "Callable[[Site], tuple[bool, str]]"


def _aten(site: Site) -> tuple[bool, str]:
    return True, "the library's kernel" if site.device.kind != "cpu" else "torch's own kernel, or a library's"


def _triton(site: Site) -> tuple[bool, str]:
    if site.device.kind == "cpu":
        return False, "on a CPU there are no Triton templates"
    return _first_no(_nonzero(site), _dtype(site, _TEMPLATE_DTYPES), _gate(site))


def _cpp(site: Site) -> tuple[bool, str]:
    if site.device.kind != "cpu":
        return False, "its templates are for CPUs"
    if not site.frozen:
        return False, "its templates take weights that are constants: set the option freezing"
    return _dtype(site, _CPP_DTYPES)


def _cutlass(site: Site) -> tuple[bool, str]:
    place = str(option_values().get("cutlass.cutlass_dir", ""))
    there = Path(place, "python").is_dir()
    return _first_no(
        _nvidia(site), _nonzero(site), _dtype(site, _CUTLASS_DTYPES), _gate(site),
        (there, f"CUTLASS is not at {place or 'cutlass.cutlass_dir'} of this machine"),
    )  # fmt: skip


def _nvgemm(site: Site) -> tuple[bool, str]:
    return _first_no(_nvidia(site), _nonzero(site), _package("cutlass"), _package("cutlass_api"))


def _cutedsl(_: Site) -> tuple[bool, str]:
    return False, _GROUPED_ONLY


def _ck(site: Site) -> tuple[bool, str]:
    if site.device.kind != "hip":
        return False, "it is for AMD's GPUs"
    arch = site.device.arch.split(":")[0]
    supported = arch in _CK_ARCHS, f"it is for {', '.join(_CK_ARCHS)}, and this is {arch}"
    return _first_no(supported, _nonzero(site), _dtype(site, _TEMPLATE_DTYPES), _package("ck4inductor"))


def _unheard_of(_: Site) -> tuple[bool, str]:
    return False, "this package does not know when torch takes it"


_PREDICATES: Mapping[str, Mapping[str, Predicate]] = {
    "mm": {
        "ATEN": _aten, "TRITON": _triton, "CPP": _cpp, "CUTLASS": _cutlass, "NVGEMM": _nvgemm, "CUTEDSL": _cutedsl,
        "CK": _ck, "CKTILE": _ck,
    },
    "conv": {"ATEN": _aten, "TRITON": _triton, "CK": _ck},
}  # fmt: skip


def _first_no(*conditions: tuple[bool, str]) -> tuple[bool, str]:
    """The first answer that is no, with its reason; else yes."""
    answers: Sequence[tuple[bool, str]] = [answer for answer in conditions if not answer[0]]
    return answers[0] if answers else (True, "")


def _nonzero(site: Site) -> tuple[bool, str]:
    return not site.extents or prod(site.extents) > 0, "the product has no elements"


def _dtype(site: Site, dtypes: Sequence[str]) -> tuple[bool, str]:
    return site.dtype in dtypes, f"it takes {', '.join(dtypes)}, and this is {site.dtype}"


def _gate(site: Site) -> tuple[bool, str]:
    digits = site.device.arch.split(":")[0].removeprefix("gfx")[:-2]
    major = int(digits) if site.device.kind == "hip" and digits.isdigit() else None
    gate = gate_of(site.device.kind, site.device.units, major)
    return gate.open, gate.reason


def _nvidia(site: Site) -> tuple[bool, str]:
    return site.device.kind == "cuda", "it is for NVIDIA's GPUs"


def _package(name: str) -> tuple[bool, str]:
    return find_spec(name) is not None, f"the package {name} is not installed here"
