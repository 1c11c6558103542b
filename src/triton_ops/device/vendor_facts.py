"""What all GPUs of one vendor have in common, and the names of Triton's backend for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SM = "sm_"
_GENERATION = re.compile(r"sm_(\d+)\d|gfx(\d+)[\da-f]{2}\b")


@dataclass(frozen=True)
class TritonBackend:
    """The names of Triton's backend for the GPUs of one vendor."""

    module: str
    compiler: str  # its class
    options: str  # the class of its launch options
    passes: str  # the part of Triton's library with its own passes
    driver: str  # the module that launches kernels
    utilities: str  # its class; a new object prepares the driver in a process
    launcher: str  # its class; a new object builds a kernel's launcher


@dataclass(frozen=True, kw_only=True)
class VendorFacts:
    """What all GPUs of one vendor have in common, to compile for them, read their code and speak of them."""

    kind: str  # by which torch and Triton call the vendor
    name: str
    brands: frozenset[str]  # words in the names of its devices, in lower case
    warp_size: int
    registers_per_thread: int  # the most that one thread can have
    registers_per_block: int | None  # None without such a limit
    most_blocks: tuple[int, ...]  # of a grid, by axis; empty where nothing is published
    binary: str  # the stage of Triton's compiler that gives machine code
    assembly: str  # the stage before it, and the language of that
    allots_registers: bool  # the assembly names the registers that are used, and what is spilled
    multiplies_float32: bool  # its matrix units multiply float32 in full precision
    lowers_with_torch: bool  # Triton's backend for it imports torch
    units: str  # the word for its multiprocessors
    warps: str
    backend: TritonBackend

    def generation(self, arch: str) -> int | None:
        """The number of an architecture's generation, such as 9 of `sm_90` and of `gfx942`; None if it has none."""
        match = _GENERATION.match(arch)
        return int(match[1] or match[2]) if match else None

    def triton_arch(self, arch: str) -> int | str:
        """The architecture as Triton's backend names it: the number of `sm_90`, and else the name."""
        return int(arch.removeprefix(_SM)) if arch.startswith(_SM) else arch


VENDOR_FACTS = {
    facts.kind: facts
    for facts in (
        VendorFacts(
            kind="cuda", name="NVIDIA", brands=frozenset({"nvidia", "geforce"}), warp_size=32,
            registers_per_thread=255, registers_per_block=65536, most_blocks=(2**31 - 1, 65_535, 65_535),
            binary="cubin", assembly="ptx",
            allots_registers=False, multiplies_float32=False, lowers_with_torch=False,
            units="multiprocessors", warps="warps",
            backend=TritonBackend(
                "triton.backends.nvidia.compiler", "CUDABackend", "CUDAOptions", "nvidia",
                "triton.backends.nvidia.driver", "CudaUtils", "CudaLauncher",
            ),
        ),
        VendorFacts(
            kind="hip", name="AMD", brands=frozenset({"amd", "radeon", "instinct"}), warp_size=64,
            registers_per_thread=512, registers_per_block=None, most_blocks=(), binary="hsaco", assembly="amdgcn",
            allots_registers=True, multiplies_float32=True, lowers_with_torch=True,
            units="compute units", warps="wavefronts",
            backend=TritonBackend(
                "triton.backends.amd.compiler", "HIPBackend", "HIPOptions", "amd",
                "triton.backends.amd.driver", "HIPUtils", "HIPLauncher",
            ),
        ),
    )
}  # fmt: skip
"""Registers of one thread: CUDA C++ Programming Guide, whose table of technical specifications also has the blocks of a
grid; CDNA 3 ISA guide, VGPRs and AGPRs."""
