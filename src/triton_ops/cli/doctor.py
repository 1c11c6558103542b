"""`triton-ops doctor`: report which of torch, Triton, a GPU and a cache folder can be used here, and why not."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import asdict, dataclass

import typer

from triton_ops import settings
from triton_ops.backend import TritonProcess, assembler_in_use, installed_assemblers
from triton_ops.base import Folder, available, installed_version, require
from triton_ops.device import gpu_missing, probe
from triton_ops.exceptions import CacheError, MissingDependencyError
from triton_ops.terminal import Facts, folder_of

_OLDEST_TRITON = (3, 6)


@dataclass(frozen=True)
class CheckedPart:
    """One part of the installation, such as torch, with its version or state, and what follows from it."""

    name: str
    found: str
    ok: bool
    means: str


def doctor_command(context: typer.Context, cache_dir: str | None = None) -> Facts:
    """Say what is here, what works with it, what does not, and why.

    torch and Triton are imported. Nothing is made or changed. The exit code is 0 whatever is found.
    """
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    python = CheckedPart("Python", system, True, f"triton-ops {context.find_root().obj}")
    parts = [python, *_system(), _torch(), _triton(), _ptxas(), *_gpu(), _cache(cache_dir)]
    rows = [("ok" if part.ok else "--", part.name, f"{part.found}; {part.means}") for part in parts]
    return Facts("doctor", list(map(asdict, parts))).table(("", "", ""), rows)


def _system() -> list[CheckedPart]:
    """What this system lacks, with what follows; nothing on Linux."""
    posix = hasattr(os, "fork"), "for Linux and macOS"
    rows = (
        ("processes", *posix, "configs run in this process: a crash or a hang ends the tune; nothing is linted"),
        ("locks", *posix, "processes that tune at once do not wait for each other"),
        ("load", sys.platform == "linux", "for Linux", "other programs' use of the CPUs is not seen in a tune"),
    )
    return [CheckedPart(name, systems, False, means) for name, here, systems, means in rows if not here]


def _torch() -> CheckedPart:
    if (version := _version("torch")) is None:
        return CheckedPart("torch", "not installed", False, "callables without tensors can be tuned, kernels cannot")
    if (fault := _fault("torch", "cuda")) is not None:
        why, cure = fault
        return CheckedPart("torch", f"{version}, {why}", False, f"{cure}; callables without tensors work")
    return CheckedPart("torch", version, True, "tensor arguments, dummy inputs and verification work")


def _triton() -> CheckedPart:
    if (version := _version("triton")) is None:
        why = "" if sys.platform == "linux" else ": its wheels are for Linux"
        return CheckedPart("Triton", f"not installed{why}", False, "callables can be tuned, Triton kernels cannot")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers and numbers < _OLDEST_TRITON:
        return CheckedPart("Triton", version, False, "it is older than 3.6, the oldest version that is tested")
    if (fault := _fault("triton", "JITFunction", "compile")) is not None:
        why, cure = fault
        return CheckedPart("Triton", f"{version}, {why}", False, f"{cure}; Triton kernels cannot be tuned")
    means = "Triton kernels can be compiled"
    if TritonProcess.numpy_misfit() is not None:
        means += f"; run as Python, those with loops fail with NumPy {_version('numpy')}: pip install 'numpy<2.4'"
    return CheckedPart("Triton", version, True, means)


def _ptxas() -> CheckedPart:
    if (ptxas := assembler_in_use()) is None:
        return CheckedPart("ptxas", "none", False, "kernels for NVIDIA's GPUs cannot be assembled")
    if not ptxas.faulty:
        note = "" if ptxas.path == settings.torchs_ptxas() else "; its version is part of every record's key"
        return CheckedPart("ptxas", str(ptxas), True, f"the assembler for sm_90{note}")
    newer = next((each for each in installed_assemblers() if not each.faulty), None)
    way = "pip install nvidia-cuda-nvcc" if newer is None else f"use_ptxas() takes {newer.version}, {newer.path}"
    # It reuses registers of a factor while a product still reads them: triton-lang/triton#9433.
    means = f"before 13.3 it can compile matrix products of attention wrongly for sm_90; {way}"
    return CheckedPart("ptxas", str(ptxas), True, means)


def _gpu() -> list[CheckedPart]:
    if (missing := gpu_missing()) is not None:
        cpu = probe("cpu")
        gpu = CheckedPart("GPU", f"none: {missing}", False, f"callables are tuned on {cpu.name}, {cpu.units} cores")
        return [gpu, CheckedPart("driver", "none looked for", False, "there is no GPU")]
    spec = probe("cuda")
    memory = f", {spec.memory_bytes / 2**30:.0f} GiB" if spec.memory_bytes else ""
    name = f"{spec.name} {spec.arch}, {spec.units} units{memory}"
    means = "install nvidia-ml-py to have it in" if spec.driver is None else "it is part of"
    driver = CheckedPart("driver", spec.driver or "not known", bool(spec.driver), f"{means} every record's key")
    return [CheckedPart("GPU", name, True, "kernels are timed by device events"), driver]


def _cache(cache_dir: str | None) -> CheckedPart:
    try:
        folder = folder_of(cache_dir)
        Folder(folder).check_home()
    except CacheError as error:
        return CheckedPart("cache", str(cache_dir or "TRITON_OPS_CACHE_DIR"), False, str(error))
    if Folder(folder).exists:
        if not os.access(folder, os.R_OK | os.X_OK):
            return CheckedPart("cache", str(folder), False, "it cannot be read, so that its records are not used")
        if not Folder(folder).writable:
            return CheckedPart("cache", str(folder), False, "it is read-only: winners are read, new ones are not kept")
        return CheckedPart("cache", str(folder), True, "winners are remembered, interrupted runs go on")
    nearest = next(path for path in folder.parents if Folder(path).exists)
    if Folder(nearest).writable:
        return CheckedPart("cache", str(folder), True, "it is not there yet: the first tune makes it")
    return CheckedPart("cache", str(folder), False, f"it cannot be made: {nearest} is read-only")


def _fault(name: str, *parts: str) -> tuple[str, str] | None:
    """The fault of an installed package, by its import or a part that it lacks, and the cure; None if it is whole."""
    again = "install it again"
    try:
        package = require(name, "a check")
    except MissingDependencyError as error:
        hint = error.hint or again
        return error.message.partition(", and ")[2], again if hint.startswith("install ") else hint
    # An empty folder of the package's name can be imported, too, and has no part.
    missing = next((part for part in parts if not hasattr(package, part)), None)
    return None if missing is None else (f"has no {missing}", again)


def _version(name: str) -> str | None:
    if not available(name):
        return None
    return installed_version(name) or "of no known version"  # a folder of that name that no installer made
