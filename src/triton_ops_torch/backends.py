"""Inductor's lists of backends, with those of a list that take part in an operation.

Facts used, of torch 2.11 to 2.15: an option such as `max_autotune_gemm_backends` holds names with commas between them,
in any case and with any spaces. Each backend asks whether its own name is in the list; a name that no backend has is
passed over without a word. A convolution of 1 × 1 filters may become a product, which follows the list for products.

The gate before Triton templates is that of `torch._inductor.utils.is_big_gpu` in torch 2.11 to 2.15, by a device's
figures: the device need not be here.

Each backend has a predicate, which says yes or no and why, from the figures of a device that need not be here. The
rules are those of the functions `use_…_template` of `torch._inductor.utils`, and of their callers, in torch 2.11 to
2.15. What they ask of a tensor's memory, such as its alignment, is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from triton_ops.base import require
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import SettingsError, alternatives


def option_values() -> dict[str, Any]:
    """Every option of this torch's Inductor by its dotted name, with its present value."""
    return dict(require("torch._inductor.config", "asking torch's compiler what it knows").get_config_copy())


def torch_sources(patterns: Sequence[str]) -> Iterator[bytes]:
    """The contents of the files below torch's folder that patterns such as `_inductor/**/*.py` name."""
    root = Path(str(require("torch", "looking into its sources").__file__)).parent
    for pattern in patterns:
        for file in root.glob(pattern):
            yield file.read_bytes()


# pytorch/pytorch#123121 lowered the gate to this number; pytorch/pytorch#141690 asks for another rule.
LEAST_UNITS = 68  # of NVIDIA's: an RTX 3080 has as many
_OLDEST_ROCM, _CLOSED_ROCM = 9, 10  # major numbers of the architecture: gfx10 is closed, gfx9 and gfx11 on are open
_TAG = "ungated;"


class TemplateGate(NamedTuple):
    """The gate before Triton templates for products on a device: open or closed, and why."""

    open: bool
    reason: str


def gate_of(device: DeviceSpec) -> TemplateGate:
    """The gate for a device, which need not be here."""
    if device.is_cpu:
        return TemplateGate(True, "the gate is for GPUs: on a CPU products may be tuned with C++ templates")
    if device.kind == "hip":
        major = None if device.vendor is None else device.vendor.generation(device.arch)
        if major is None or (major >= _OLDEST_ROCM and major != _CLOSED_ROCM):
            return TemplateGate(True, f"gfx{major or '?'} is tuned; on ROCm the number of units does not count")
        return TemplateGate(False, f"gfx{major} is not tuned: on ROCm gfx9, and gfx11 or later, are")
    figures = f"{device.units} multiprocessors, {LEAST_UNITS} are needed"
    if device.units >= LEAST_UNITS:
        return TemplateGate(True, figures)
    return TemplateGate(
        False,
        f"{figures}: max-autotune takes no Triton templates for products here, and says so only in its log; TRITON "
        "kernels of your own and this package's matmul are not gated",
    )


def open_gate() -> None:
    """Have Inductor take every GPU of this process for a big one, from now on; there is no option for it.

    What is compiled with the gate open has entries of its own in the compiler's caches, which else would not know.
    """
    utils: Any = require("torch._inductor.utils", "opening Inductor's gate")
    settings: Any = require("torch.compiler.config", "opening Inductor's gate")
    utils.is_big_gpu = lambda _=0: True
    if _TAG not in settings.cache_key_tag:
        settings.cache_key_tag = f"{_TAG}{settings.cache_key_tag}"


LISTS: Mapping[str, str] = {"mm": "max_autotune_gemm_backends", "conv": "max_autotune_conv_backends"}
"""The option with the list, for products and for the forward pass of convolutions."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "mm": ("ATEN", "TRITON", "CPP", "CUTLASS", "NVGEMM", "CUTEDSL", "CK", "CKTILE"),
    "conv": ("ATEN", "TRITON", "CK"),
}
_OPTION = re.compile(r"max_autotune_(?P<kind>gemm|conv)\w*_backends")
_ASKED = re.compile(rb"_use(?P<conv>_conv\w*?)?_autotune_backend\(\s*\"(?P<name>\w+)\"")
_SOURCES = ("_inductor/utils.py", "_inductor/choices.py", "_inductor/kernel/*.py")


def names_in(listed: str) -> tuple[str, ...]:
    """The names of a list as torch reads it: in capitals, without spaces, each once."""
    words = (word.strip().upper() for word in listed.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


@cache
def known_backends(kind: str) -> tuple[str, ...]:
    """The backends that this torch asks for, and those that this package knows.

    Cost: reads a few megabytes of torch's sources the first time that a kind is asked for.
    """
    # Torch has no list of its backends: their names stand only in the calls that ask for them.
    matches = (match for source in torch_sources(_SOURCES) for match in _ASKED.finditer(source))
    names = {match["name"].decode() for match in matches if bool(match["conv"]) == (kind == "conv")}
    return tuple(dict.fromkeys((*KNOWN[kind], *sorted(names))))


def wrong_list(option: str, value: Any) -> str:
    """The fault of a list of backends; empty if nothing is, or if the option is no such list."""
    if (match := _OPTION.fullmatch(option)) is None:
        return ""
    if not isinstance(value, str):
        return f"{option} is {value!r}; it is a text with commas between names, such as 'ATEN,TRITON'"
    backends = known_backends("mm" if match["kind"] == "gemm" else "conv")
    if not names_in(value):
        return f"{option} is empty; there are {', '.join(backends)}"
    return "; ".join(_unknown(option, name, backends) for name in names_in(value) if name not in backends)


def wrong_lists(environment: Mapping[str, str], variables: Mapping[str, Collection[str]]) -> list[str]:
    """Faults of lists of backends in the environment, a text for each; `variables` are those of each option."""
    return [
        text
        for option, names in variables.items()
        for variable in names
        if variable in environment and (text := wrong_list(option, environment[variable]).replace(option, variable))
    ]


def _unknown(option: str, name: str, backends: Collection[str]) -> str:
    why = "which is no backend, and which torch passes over without a word"
    return f"{option} has {name!r}, {why}; {alternatives(name, backends)}"


_TEMPLATE_DTYPES = ("float16", "bfloat16", "float32")
_CUTLASS_DTYPES = ("float16", "bfloat16", "int32")
_CPP_DTYPES = ("float32", "bfloat16", "float16", "uint8", "int8")
_CK_ARCHS = ("gfx90a", "gfx942", "gfx950")
_GROUPED_ONLY = "it is for grouped products of bfloat16 on Blackwell alone (sm_100 to sm_109)"


@dataclass(frozen=True, kw_only=True)
class Site:
    """An operation on a device, for which backends are asked."""

    kind: str  # `mm` for a product of matrices, `conv` for a convolution; others are refused with a `SettingsError`
    device: DeviceSpec
    dtype: str  # the dtype of the result, such as `bfloat16`
    extents: tuple[int, ...] = ()  # M, N and K of a product; empty where they are not known, and for convolutions
    frozen: bool = False  # whether weights are constants (the option `freezing`)

    def __post_init__(self) -> None:
        if self.kind not in LISTS:
            raise SettingsError(f"there are no backends for {self.kind!r}", hint=f"name one of {', '.join(LISTS)}")

    def backends(self, names: str | None = None) -> list[BackendChoice]:
        """Every backend that this torch has for the operation, with whether it takes part, and why.

        `names` is the list of backends; None is that of this process, which its environment may have set.
        """
        option = LISTS[self.kind]
        text = option_values()[option] if names is None else names
        if wrong := wrong_list(option, text):
            raise SettingsError(wrong, hint="correct the list: such as ATEN,TRITON")
        return [self._choice(name, option, name in names_in(text)) for name in known_backends(self.kind)]

    def _choice(self, name: str, option: str, listed: bool) -> BackendChoice:
        predicate = _PREDICATES[self.kind].get(name)
        eligible, reason = predicate(self) if predicate else (False, "this package does not know when torch takes it")
        if not listed:
            reason = f"{option} does not list it" + (f"; and {reason}" if reason and not eligible else "")
        return BackendChoice(name=name, listed=listed, eligible=eligible, reason=reason)


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """One backend of an operation.

    It is `listed` if the list has it, and `eligible` if it could take part then. `reason` says why not; of one that
    takes part what a reader should know.
    """

    name: str
    listed: bool
    eligible: bool
    reason: str

    @property
    def takes_part(self) -> bool:
        """Tell whether Inductor measures it."""
        return self.listed and self.eligible


def _aten(site: Site) -> tuple[bool, str]:
    return True, "the library's kernel" if not site.device.is_cpu else "torch's own kernel, or a library's"


def _triton(site: Site) -> tuple[bool, str]:
    if site.device.is_cpu:
        return False, "on a CPU there are no Triton templates"
    return _first_no(_nonzero(site), _dtype(site, _TEMPLATE_DTYPES), gate_of(site.device))


def _cpp(site: Site) -> tuple[bool, str]:
    if not site.device.is_cpu:
        return False, "its templates are for CPUs"
    if not site.frozen:
        return False, "its templates take weights that are constants: set the option freezing"
    return _dtype(site, _CPP_DTYPES)


def _cutlass(site: Site) -> tuple[bool, str]:
    place = str(option_values().get("cutlass.cutlass_dir", ""))
    there = Path(place, "python").is_dir()
    return _first_no(
        _of_vendor(site, "NVIDIA"), _nonzero(site), _dtype(site, _CUTLASS_DTYPES), gate_of(site.device),
        (there, f"CUTLASS is not at {place or 'cutlass.cutlass_dir'} of this machine"),
    )  # fmt: skip


def _ck(site: Site) -> tuple[bool, str]:
    # ROCm's names go on with features, such as `gfx942:sramecc+:xnack-`.
    arch = site.device.arch.split(":")[0]
    supported = arch in _CK_ARCHS, f"it is for {', '.join(_CK_ARCHS)}, and this is {arch}"
    of_amd, product = _of_vendor(site, "AMD"), _nonzero(site)
    return _first_no(of_amd, supported, product, _dtype(site, _TEMPLATE_DTYPES), _package("ck4inductor"))


_PREDICATES: Mapping[str, Mapping[str, Callable[[Site], tuple[bool, str]]]] = {
    "mm": {
        "ATEN": _aten, "TRITON": _triton, "CPP": _cpp, "CUTLASS": _cutlass, "CK": _ck, "CKTILE": _ck,
        "NVGEMM": lambda site: _first_no(
            _of_vendor(site, "NVIDIA"), _nonzero(site), _package("cutlass"), _package("cutlass_api")
        ),
        "CUTEDSL": lambda _: (False, _GROUPED_ONLY),
    },
    "conv": {"ATEN": _aten, "TRITON": _triton, "CK": _ck},
}  # fmt: skip


def _first_no(*conditions: tuple[bool, str]) -> tuple[bool, str]:
    """The first answer that is no, with its reason; else yes."""
    return next((answer for answer in conditions if not answer[0]), (True, ""))


def _nonzero(site: Site) -> tuple[bool, str]:
    return not site.extents or prod(site.extents) > 0, "the product has no elements"


def _dtype(site: Site, dtypes: Sequence[str]) -> tuple[bool, str]:
    return site.dtype in dtypes, f"it takes {', '.join(dtypes)}, and this is {site.dtype}"


def _of_vendor(site: Site, name: str) -> tuple[bool, str]:
    vendor = site.device.vendor
    return vendor is not None and vendor.name == name, f"it is for {name}'s GPUs"


def _package(name: str) -> tuple[bool, str]:
    return find_spec(name) is not None, f"the package {name} is not installed here"
