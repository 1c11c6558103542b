"""`triton-ops calibrate`: measure this GPU's rates for the model, and keep them beside the records."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from triton_ops.device import Calibration, save_calibration
from triton_ops.terminal import CacheDir, Json, folder_of, listing, say, say_json, tell, width
from triton_ops.timing.microbenchmarks import calibrate


def calibrate_command(
    device: Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.")] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Measure this GPU for the ranking model: bandwidths, launch, matrix rates; a few seconds.

    The figures are kept in the cache folder, one file per device, and used from then on.
    """
    folder = folder_of(cache_dir)
    calibration = calibrate(device)
    path = save_calibration(folder, calibration)
    if as_json:
        say_json(asdict(calibration))
    else:
        say(*listing(_facts(calibration), width()))
    tell(f"kept in {path}")


def _facts(calibration: Calibration) -> dict[str, str]:
    def text(value: float | None, unit: str) -> str:
        return "not measured" if value is None else f"{value:.4g} {unit}"

    rates = {f"matrix {dtype}": text(rate, "TFLOP/s") for dtype, rate in calibration.mma_tflops.items()}
    return {
        "device": f"{calibration.device}, driver {calibration.driver or 'not known'}",
        "DRAM": text(calibration.dram_gbps, "GB/s"),
        "L2": text(calibration.l2_gbps, "GB/s"),
        "launch": text(calibration.launch_us, "us"),
        "sync": text(calibration.sync_us, "us"),
        **rates,
    }
