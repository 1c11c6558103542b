"""`triton-ops doctor`: what is here, what works with it, what does not, and why."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from triton_ops import __version__
from triton_ops._files import writable
from triton_ops._optional import available
from triton_ops.cli.console import CacheDir, Json, Verbose, say, say_json, width
from triton_ops.cli.layout import table
from triton_ops.cli.records import folder_of
from triton_ops.exceptions import CacheError
from triton_ops.hardware import gpu_missing, probe

_OLDEST_TRITON = (3, 6)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        found: What is there.
        ok: Whether it can be used.
        means: What works with it, or does not without it.
    """

    name: str
    found: str
    ok: bool
    means: str


def doctor_command(
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say what is here, what works with it, what does not, and why.

    Nothing is made or changed. The exit code is 0 whatever is found.
    """
    findings = [_python(), _torch(), _triton(), _gpu(), _driver(), _cache(cache_dir)]
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        rows = [("ok" if f.ok else "--", f.name, f"{f.found}; {f.means}") for f in findings]
        say(*table(["", "", ""], rows, width()))


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("Python", found, True, f"triton-ops {__version__}")


def _torch() -> Finding:
    version = _version("torch")
    if version is None:
        return Finding("torch", "not installed", False, "callables without tensors can be tuned, kernels cannot")
    return Finding("torch", version, True, "tensor arguments, dummy inputs and verification work")


def _triton() -> Finding:
    version = _version("triton")
    if version is None:
        return Finding("Triton", "not installed", False, "callables can be tuned, Triton kernels cannot")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST_TRITON:
        return Finding("Triton", version, False, "it is older than 3.6, with which nothing was tested")
    return Finding("Triton", version, True, "Triton kernels can be compiled")


def _gpu() -> Finding:
    missing = gpu_missing()
    if missing is not None:
        cpu = probe("cpu")
        return Finding("GPU", f"none: {missing}", False, f"callables are tuned on {cpu.name}, {cpu.units} cores")
    spec = probe("cuda")
    memory = f", {spec.memory_bytes / 2**30:.0f} GiB" if spec.memory_bytes else ""
    found = f"{spec.name} {spec.arch}, {spec.units} units{memory}"
    return Finding("GPU", found, True, "kernels are timed by device events")


def _driver() -> Finding:
    if gpu_missing() is not None:
        return Finding("driver", "none looked for", False, "there is no GPU")
    driver = probe("cuda").driver
    if driver is None:
        return Finding("driver", "not known", False, "install nvidia-ml-py to have it in every record's key")
    return Finding("driver", driver, True, "it is part of every record's key")


def _cache(cache_dir: str | None) -> Finding:
    try:
        folder = folder_of(cache_dir)
    except CacheError as error:
        return Finding("cache", str(cache_dir or "TRITON_OPS_CACHE_DIR"), False, str(error))
    if folder.is_dir():
        if not os.access(folder, os.R_OK | os.X_OK):
            return Finding("cache", str(folder), False, "it cannot be read: nothing in it is of use to you")
        if not writable(folder):
            return Finding("cache", str(folder), False, "it is read-only: winners are read, new ones are not kept")
        return Finding("cache", str(folder), True, "winners are remembered, interrupted runs go on")
    if writable(_nearest(folder)):
        return Finding("cache", str(folder), True, "it is not there yet: the first tune makes it")
    return Finding("cache", str(folder), False, f"it cannot be made: {_nearest(folder)} is read-only")


def _nearest(folder: Path) -> Path:
    """The innermost folder on the way to `folder` that exists."""
    return next(path for path in folder.parents if path.is_dir())


def _version(name: str) -> str | None:
    if not available(name):
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
