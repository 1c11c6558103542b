"""The rates that `triton-ops calibrate` measures on one device, and the file that keeps them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from triton_ops._files import atomic_write, ensure_folder, folder_within, read_file, sweep
from triton_ops._ranges import NotNegative
from triton_ops._sealed import parsed, sealed, unsealed
from triton_ops.exceptions import CacheError

_LOG = logging.getLogger("triton_ops.hardware")
_KIND = "triton-ops calibration"
_VERSION = 1
_LARGEST_BYTES = 64 << 10


@dataclass(frozen=True)
class Calibration:
    """Rates and latencies of one device; None where a figure could not be taken.

    Attributes:
        device: The vendor's name of the device.
        driver: Version of the driver during the calibration.
        dram_gbps: Bytes read and written by a copy much larger than L2, 10^9 per second.
        l2_gbps: Bytes read and written by a copy that stays in L2, 10^9 per second.
        launch_us: Device time from event to event around one tiny kernel, queued behind a delay.
        sync_us: Host time from the launch of a tiny kernel until a synchronize returns.
        mma_tflops: Rate of the vendor's matrix product, by dtype of the inputs, 10^12 operations per second.
    """

    device: str
    driver: str | None = None
    _: KW_ONLY
    dram_gbps: NotNegative | None = None
    l2_gbps: NotNegative | None = None
    launch_us: NotNegative | None = None
    sync_us: NotNegative | None = None
    mma_tflops: dict[str, NotNegative] = field(default_factory=dict, hash=False)


def calibration_path(folder: Path, device: str) -> Path:
    """The file of the calibration of `device`, beside the records in the cache folder `folder`."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return folder / "calibration" / f"{name}.json"


def save_calibration(folder: Path, found: Calibration) -> Path:
    """Write `found` beside the records; returns the file.

    Raises:
        CacheError: The folder cannot be made or written.
    """
    path = calibration_path(folder, found.device)
    content = sealed({"kind": _KIND, "schema_version": _VERSION, **asdict(found)})
    try:
        ensure_folder(folder_within(ensure_folder(folder), path.parent))
        sweep(path.parent)
        atomic_write(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise CacheError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="name a folder that can be written, with --cache-dir",
        ) from error
    return path


def load_calibration(folder: Path, device: str) -> Calibration | None:
    """The calibration of `device` in `folder`; None if there is none, None and a warning if it cannot be read."""
    path = calibration_path(folder, device)
    try:
        folder_within(folder, path.parent)
        return _believed(unsealed(parsed(read_file(path, _LARGEST_BYTES))), device)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        reason = getattr(error, "strerror", None) or error
        _LOG.warning("%s is ignored: %s; `triton-ops calibrate` makes it anew", path, reason)
        return None


def _believed(content: Mapping[str, Any], device: str) -> Calibration:
    """The calibration in decoded JSON.

    Raises:
        ValueError: It is of another kind, version or device.
        msgspec.ValidationError: A field is missing, has another type, or is out of range.
    """
    if content.get("kind") != _KIND or content.get("schema_version") != _VERSION:
        raise ValueError("it is of another kind or version")
    found = msgspec.convert(content, Calibration)
    if found.device != device:
        raise ValueError(f"it is of another device, {found.device}")
    return found
