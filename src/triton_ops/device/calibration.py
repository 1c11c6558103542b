"""What was measured of a device, in a file beside the records."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from triton_ops.base import Frozen, NotNegative, Sealed, SealedFile, warn

_LARGEST_BYTES = 64 << 10
_KIND = "triton-ops calibration"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates and latencies of one device; None where a figure could not be taken.

    Attributes:
        launch_us: Device time from event to event around one tiny kernel, queued behind a delay.
        mma_tflops: Rate of the vendor's matrix product, by dtype of the inputs, 10^12 operations per second.
    """

    device: str = field(kw_only=False)
    driver: str | None = field(default=None, kw_only=False)
    dram_gbps: NotNegative | None = None  # bytes read and written by a copy much larger than L2, 10^9 per second
    l2_gbps: NotNegative | None = None  # bytes read and written by a copy that stays in L2, 10^9 per second
    launch_us: NotNegative | None = None
    sync_us: NotNegative | None = None  # host time from the launch of a tiny kernel until a synchronize returns
    mma_tflops: dict[str, NotNegative] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        Frozen.fields(self, "mma_tflops")

    def save(self, folder: Path) -> Path:
        """Write it beside the records; returns the file."""
        path = calibration_path(folder, self.device)
        SealedFile(path, folder).write({"kind": _KIND, "schema_version": _VERSION, **asdict(self)})
        return path

    @classmethod
    def load(cls, folder: Path, device: str) -> Calibration | None:
        """The calibration of `device` in `folder`; None if there is none, None and a warning if it cannot be read."""
        path = calibration_path(folder, device)
        try:
            content = SealedFile(path, folder).read(limit_bytes=_LARGEST_BYTES)
            if content.get("kind") != _KIND or content.get("schema_version") != _VERSION:
                raise ValueError("it is of another kind or version")
            calibration = Sealed.typed(content, Calibration)
            if calibration.device != device:
                raise ValueError(f"it is of another device, {calibration.device}")
            return calibration
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            warn("%s is ignored: %s; `triton-ops calibrate` makes it anew", path, reason)
            return None


def calibration_path(folder: Path, device: str) -> Path:
    """The file of the calibration of `device`, beside the records in the cache folder `folder`."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return folder / "calibration" / f"{name}.json"
