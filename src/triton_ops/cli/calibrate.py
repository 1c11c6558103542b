"""`triton-ops calibrate`: measure this GPU for the model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from triton_ops.cli.microbenchmarks import calibrate
from triton_ops.device import Calibration
from triton_ops.terminal import Facts, folder_of, option


def calibrate_command(
    device: Annotated[str | None, option("--device", "cuda or cuda:N; default the current GPU.", "DEVICE")] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Measure this GPU for the ranking model: bandwidths, launch, matrix rates; a few seconds.

    The figures are kept in the cache folder, one file per device, and used from then on.

    They are copy bandwidths of DRAM and L2, launch and sync latency, and the matrix rate of each dtype. A figure
    counts if it lies between half and 1.25 times what is expected of the device. Exit code 3: there is no GPU.
    """
    folder = folder_of(cache_dir)
    calibration = calibrate(device)
    path = calibration.save(folder)
    return Facts("calibration", asdict(calibration)).listing(_facts(calibration)).tell(f"kept in {path}")


def _facts(calibration: Calibration) -> dict[str, str]:
    def text(value: float | None, unit: str) -> str:
        return "not measured" if value is None else f"{value:.4g} {unit}"

    rates = {f"matrix {dtype}": text(rate, "TFLOP/s") for dtype, rate in calibration.mma_tflops.items()}
    return {
        "device": f"{calibration.device}, driver {calibration.driver or 'not known'}",
        "DRAM": text(calibration.dram_gbps, "GB/s"), "L2": text(calibration.l2_gbps, "GB/s"),
        "launch": text(calibration.launch_us, "us"), "sync": text(calibration.sync_us, "us"), **rates,
    }  # fmt: skip
