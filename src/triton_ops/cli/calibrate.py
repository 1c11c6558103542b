"""`triton-ops calibrate`: measure this GPU's rates for the model, and keep them beside the records."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from triton_ops.cli.console import CacheDir, Json, Verbose, listing, say, say_json, tell, width
from triton_ops.cli.record_selection import folder_of
from triton_ops.device import Calibration, save_calibration
from triton_ops.timing import calibrate


def calibrate_command(
    device: Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.")] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Measure this GPU for the ranking model: bandwidths, launch, matrix rates; a few seconds.

    The figures are kept in the cache folder, one file per device, and used from then on.
    """
    folder = folder_of(cache_dir)
    found = calibrate(device)
    path = save_calibration(folder, found)
    if as_json:
        say_json(asdict(found))
    else:
        say(*listing(_facts(found), width()))
    tell(f"kept in {path}")


def _facts(found: Calibration) -> dict[str, str]:
    def shown(value: float | None, unit: str) -> str:
        return "not measured" if value is None else f"{value:.4g} {unit}"

    rates = {f"matrix {dtype}": shown(rate, "TFLOP/s") for dtype, rate in found.mma_tflops.items()}
    return {
        "device": f"{found.device}, driver {found.driver or 'not known'}",
        "DRAM": shown(found.dram_gbps, "GB/s"),
        "L2": shown(found.l2_gbps, "GB/s"),
        "launch": shown(found.launch_us, "us"),
        "sync": shown(found.sync_us, "us"),
        **rates,
    }
