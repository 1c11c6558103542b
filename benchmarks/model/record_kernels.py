"""Record whole spaces of kernels on plain tensors, without declared work, on the GPU that is there.

    python -m benchmarks.model.record_kernels --out FOLDER --limit-s 400
    python -m benchmarks.model.record_kernels --out FOLDER --only flash_d64 layer_norm

The spaces are those of `benchmarks/model/plain_kernels.py`, in their order there, and with `--fresh` or `--unseen` a
set of `held_out_spaces.py`. A recording is written when it is done, and nothing is begun that would probably end after
the limit.
"""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

from benchmarks.model import held_out_spaces, plain_kernels
from benchmarks.model.plain_kernels import Recorded
from triton_ops.exceptions import TritonKernelError
from triton_ops_lab.recording import record, write_recording

_LONGEST_S = 45.0  # of one recording, before one has been made
_TOLERANCE = 0.1  # configs are compared with the default: wrong ones are left out, and rounding is not judged


def recorded(space: Recorded, folder: Path, passes: int) -> None:
    """Record one space."""
    content = record(space.operation, space.space, space.shape, space.dtype, passes=passes, tolerance=_TOLERANCE)
    path = folder / f"{space.name}.json.gz"
    write_recording(path, content)
    rows = [row for row in content["rows"] if row["status"] == "ok"]
    best = min(row["ms"][0][2] for row in rows)
    print(f"{space.name}: {len(rows)} of {len(content['rows'])} ran, best {best:.4f} ms", flush=True)


def all_recorded(options: argparse.Namespace, spaces: list[Recorded]) -> None:
    """Record one space after another until the limit; a space that fails is told and left out."""
    options.out.mkdir(parents=True, exist_ok=True)
    outset, longest, first = time.monotonic(), _LONGEST_S, True
    for space in spaces:
        start = time.monotonic()
        if start - outset + longest > options.limit_s:
            print(f"{space.name}: not begun, {start - outset:.0f} s have passed", flush=True)
            continue
        try:
            recorded(space, options.out, options.passes)
        except (TritonKernelError, RuntimeError, ValueError, OSError):
            traceback.print_exc()
            continue
        took = time.monotonic() - start
        longest, first = took if first else max(longest, took), False
        print(f"    {took:.1f} s", flush=True)


def main() -> None:
    """Record what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = (plain_kernels.SPACES, held_out_spaces.FRESH, held_out_spaces.UNSEEN)
    plain, fresh, unseen = ([space.name for space in spaces] for spaces in sets)
    every = {space.name: space for spaces in sets for space in spaces}
    parser.add_argument("--out", type=Path, default=Path("recordings"), metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=every, metavar="NAME")
    parser.add_argument("--fresh", action="store_true", help="the spaces that were recorded after the model was frozen")
    parser.add_argument("--unseen", action="store_true", help="those that were recorded after it was changed by these")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    options = parser.parse_args()
    spaces = [every[name] for name in options.only or (fresh if options.fresh else unseen if options.unseen else plain)]
    all_recorded(options, spaces)


if __name__ == "__main__":
    main()
