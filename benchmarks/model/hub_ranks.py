"""How well the model ranks two kernels of a public hub on its devices: `python -m benchmarks.model.hub_ranks CLONE`.

CLONE is a clone of AutoTuningAssociation/benchmark_hub, whose caches have times of CUDA kernels. `hub_kernels` has the
same work in Triton. Several configs of the hub are one Triton config, which stands for the fastest of them: tunables
that Triton has not are at their best. For every device: Spearman's correlation of the model's times, before anything is
compiled, with the hub's, and the share of the optimum that its first 1, 5, 10 and 25 picks reach; `of_all` is the best
mapped config's share of the whole space's optimum. `sure` is for how many configs as the default the model expects so
much more of its first pick that the effort `expected` would run that, and `wrong` for how many of these it is more than
2 % slower. No figure of the model was fitted to the hub.

Needs Triton and no GPU.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.model.hub_kernels import KERNELS, HubKernel
from benchmarks.model.model_quality import figures, read
from triton_ops.backend import Arguments
from triton_ops.backend.offline import kernel_work
from triton_ops.cost_model import Model, Readings
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.exceptions import DeviceError
from triton_ops.request import Effort
from triton_ops.space import Config

_LAUNCHED = ("num_warps", "num_stages")
_CACHE = ".json.gz"
_LOSS = 0.02  # of speed, below which a default was left wrongly


def grouped(kernel: HubKernel, rows: Iterable[Mapping[str, Any]]) -> dict[Config, float]:
    """The hub's least time of each Triton config, in milliseconds."""
    times: dict[Config, float] = {}
    for row in rows:
        if (config := kernel.config(row)) is not None:
            times[config] = min(row["time"], times.get(config, row["time"]))
    return times


def model_on(kernel: HubKernel, configs: Iterable[Config], gpu: str) -> Model:
    """The model of a kernel that was read; `DeviceError` with the reason where a device has none."""
    spec = DeviceSpec.called(gpu)
    if spec is None:
        raise DeviceError(f"{gpu} is not in the table of datasheets")
    machine, target = Machine.known(spec), Target.of(spec)
    configs = list(configs)
    readings = Readings(tuple(name for name in configs[0] if name not in _LAUNCHED))
    specs = Arguments(kernel.arguments).described()
    for config in readings.representatives(configs):
        readings.works[readings.key(config)] = kernel_work(kernel.kernel, config, specs, target)
    return readings.model(machine)


def ranked(kernel: HubKernel, gpu: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one device's rows, or why there are none."""
    times = grouped(kernel, rows)
    counts = {
        "hub_configs": len(rows), "mapped": sum(kernel.config(row) is not None for row in rows), "configs": len(times)
    }  # fmt: skip
    try:
        model = model_on(kernel, times, gpu)
    except DeviceError as error:
        return {"silent": error.message, **counts}
    scores = model.score(list(times))
    if silent := next((model.why_silent(config) for config in times), ""):
        return {"silent": silent, **counts}
    hub_ms = list(times.values())
    best_of_all = min(row["time"] for row in rows) / min(hub_ms)
    return {**figures(scores, hub_ms), "of_all": round(best_of_all, 4), **judged(scores, hub_ms), **counts}


def judged(scores: Sequence[float], hub_ms: Sequence[float]) -> dict[str, int]:
    """For how many defaults the first pick would run in their place, and for how many of these it is slower."""
    pick = min(range(len(scores)), key=scores.__getitem__)
    least = (1 + Effort.named("expected").expected_gain) * scores[pick]
    sure = [ms for score, ms in zip(scores, hub_ms, strict=True) if score >= least]
    return {"sure": len(sure), "wrong": sum(ms < (1 - _LOSS) * hub_ms[pick] for ms in sure)}


def spaces_of(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """The figures of a cache: of all configs, and where that is a tunable of those without shared memory alone."""
    cache = read(path)
    kernel = next((one for one in KERNELS.values() if one.hub_name == cache.get("kernel_name")), None)
    if kernel is None:
        print(f"{path} is of {cache.get('kernel_name')}, for which there is no kernel here")
        return
    gpu = cache["device_name"] or path.name.removesuffix(_CACHE)
    rows = [row for row in cache["cache"].values() if isinstance(row["time"], (int, float))]
    if not rows:
        print(f"{path} has no times")
        return
    yield "all", ranked(kernel, gpu, rows)
    if len({row.get("use_shmem") for row in rows}) > 1:
        yield "without shared memory", ranked(kernel, gpu, [row for row in rows if not row["use_shmem"]])


def main() -> None:
    """Print a line for each space, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--hub-commit", default="unknown", help="the commit of the clone")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--commit", help="this code's commit, where it is no clone")
    options = parser.parse_args()
    spaces: dict[str, Any] = {}
    for path in sorted(options.clone.rglob(f"*{_CACHE}")):
        if re.search("_(T4|original)", path.name) is None:
            for part, space in spaces_of(path):
                name = f"{path.relative_to(options.clone).as_posix().removesuffix(_CACHE)}, {part}"
                spaces[name] = space
                print(name, space)
    if options.json:
        dropped = {name: dict(kernel.dropped) for name, kernel in KERNELS.items()}
        document = headed(
            "python -m benchmarks.model.hub_ranks CLONE --json FILE", options.commit, hub_commit=options.hub_commit,
            dropped=dropped, spaces=spaces,
        )  # fmt: skip
        save(options.json, document)


if __name__ == "__main__":
    main()
