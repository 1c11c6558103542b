"""Record whole spaces of kernels on plain tensors, without declared work, on the GPU that is there.

    python -m benchmarks.model.record_kernels --out FOLDER --archive FILE.tar --limit-s 400
    python -m benchmarks.model.record_kernels --out FOLDER --only flash_d64 layer_norm
    python -m benchmarks.model.record_kernels --dry 4

The spaces are those of `benchmarks/model/plain_kernels.py`, in their order there, and with `--fresh` or `--unseen`
those of `fresh_spaces.py` or `unseen_spaces.py`. A recording is written when it is done, and the archive is written
anew then; nothing is begun that would probably end after the limit. `--dry N` compiles N configs of each space for
sm_90 and reads them instead, without a GPU.
"""

from __future__ import annotations

import argparse
import tarfile
import time
import traceback
from pathlib import Path

from benchmarks.model import fresh_spaces, plain_kernels, unseen_spaces
from benchmarks.model.plain_kernels import Recorded
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.exceptions import TritonKernelError
from triton_ops.space import ConfigSpace
from triton_ops_lab.recording import record, write_recording

_LONGEST_S = 45.0  # of one recording, before one has been made
_TOLERANCE = 0.1  # configs are compared with the default: wrong ones are left out, and rounding is not judged


def recorded(space: Recorded, folder: Path, passes: int) -> Path:
    """Record one space."""
    content = record(space.operation, space.space, space.shape, space.dtype, passes=passes, tolerance=_TOLERANCE)
    path = folder / f"{space.name}.json.gz"
    write_recording(path, content)
    rows = [row for row in content["rows"] if row["status"] == "ok"]
    best = min(row["ms"][0][2] for row in rows)
    print(f"{space.name}: {len(rows)} of {len(content['rows'])} ran, best {best:.4f} ms", flush=True)
    return path


def archived(paths: list[Path], archive: Path) -> None:
    """Put all recordings into one file."""
    with tarfile.open(archive, "w") as file:
        for path in paths:
            file.add(path, arcname=path.name)


def all_recorded(options: argparse.Namespace, spaces: list[Recorded]) -> None:
    """Record one space after another until the limit; a space that fails is told and left out."""
    options.out.mkdir(parents=True, exist_ok=True)
    outset, longest, paths = time.monotonic(), _LONGEST_S, []
    for space in spaces:
        start = time.monotonic()
        if start - outset + longest > options.limit_s:
            print(f"{space.name}: not begun, {start - outset:.0f} s have passed", flush=True)
            continue
        try:
            paths.append(recorded(space, options.out, options.passes))
        except (TritonKernelError, RuntimeError, ValueError, OSError):
            traceback.print_exc()
            continue
        took = time.monotonic() - start
        longest = took if len(paths) == 1 else max(longest, took)
        print(f"    {took:.1f} s", flush=True)
        if options.archive:
            archived(paths, options.archive)


def dry_run(space: Recorded, count: int) -> None:
    """Compile and read some configs of a space, spread over it."""
    problem = space.operation.problem(space.shape, space.dtype)
    configs = list(ConfigSpace.from_user(space.space))
    sample = configs[:: max(len(configs) // count, 1)]
    arguments = Arguments(keyword=dict(problem.arguments))
    space.operation.kernel.check(list(space.space), arguments)
    ahead = TritonCompiler(space.operation.kernel, arguments, Target.named("sm_90"))
    with CompilePool(ahead) as pool:
        compilations = [pool.submit(config, anyway=True) for config in sample]
        readings = [pool.read(config) for config in sample]
        print(f"{space.name}: {len(configs)} configs, {problem.label}", flush=True)
        for config, compiled, work in zip(sample, compilations, readings, strict=True):
            resources, outcome = compiled.result(), work.result()
            sizes = [(launch.programs, launch.flops) for launch in outcome.launches]
            print(
                "   ",
                dict(config),
                resources.status,
                resources.reason[:200],
                resources.resources,
                f"{resources.compile_s} s",
            )
            print("       ", outcome.silent or sizes, flush=True)


def main() -> None:
    """Record what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = (plain_kernels.SPACES, fresh_spaces.SPACES, unseen_spaces.SPACES)
    plain, fresh, unseen = ([space.name for space in spaces] for spaces in sets)
    every = {space.name: space for spaces in sets for space in spaces}
    parser.add_argument("--out", type=Path, default=Path("recordings"), metavar="FOLDER")
    parser.add_argument("--archive", type=Path, metavar="FILE.tar", help="all recordings in one file")
    parser.add_argument("--only", nargs="+", choices=every, metavar="NAME")
    parser.add_argument("--fresh", action="store_true", help="the spaces that were recorded after the model was frozen")
    parser.add_argument("--unseen", action="store_true", help="those that were recorded after it was changed by these")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--dry", type=int, default=0, metavar="N")
    options = parser.parse_args()
    spaces = [every[name] for name in options.only or (fresh if options.fresh else unseen if options.unseen else plain)]
    if options.dry:
        for space in spaces:
            dry_run(space, options.dry)
    else:
        all_recorded(options, spaces)


if __name__ == "__main__":
    main()
