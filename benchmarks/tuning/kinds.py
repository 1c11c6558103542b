"""One kernel of each kind, tuned as users do and tried whole: how far the tune's winner is from the best config.

    python -m benchmarks.tuning.kinds

For each of `benchmarks/kernels`: a default tune and an exhaustive one, each with a record folder and a compile cache of
its own, compiled ahead and isolated; then a race of both winners and the exhaustive tune's leaders in one process. The
regret is how much slower than the fastest of them the default tune's winner is. Kinds that the file holds of other runs
stay in it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.kernels import KINDS
from benchmarks.tuning.live_tune import judged_on
from triton_ops import Operation, TuningResult, tune
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.tuner import Silent

WITHIN = 0.01
_LEADERS = 4  # of the exhaustive tune that are judged beside its ties
_DEVICE_FOLDERS = Path("benchmarks/results")


def one(operation: Operation, **search: Any) -> tuple[TuningResult, float]:
    """A tune from empty caches, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        start = time.monotonic()
        result = tune(operation, cache_dir=f"{folder}/records", listener=Silent(), **search)
        return result, time.monotonic() - start


def described(result: TuningResult, seconds: float) -> dict[str, Any]:
    """What the document says of a tune."""
    return {
        "winner": dict(result.best_config),
        "ties": [dict(config) for config in result.ties],
        "gain": result.gain,
        "confidence": result.confidence,
        "decided_s": round(seconds, 2),
        "waited_s": result.waited_s,
        "place": result.place,
        "verified": result.verified,
        "notes": list(result.notes),
        "mode": result.mode,
        "totals": result.totals,
        "failures": [f"({trial.config}) {trial.status}: {trial.error}" for trial in result.failures],
        "stopped": result.stopped,
    }


def case(operation: Operation) -> dict[str, Any]:
    """Both tunes of one kind, and the race of their winners."""
    quick, quick_s = one(operation)
    whole, whole_s = one(operation, search="exhaustive", trials=10_000, budget_s=600)
    ranked = sorted((t for t in whole.trials if t.ok), key=lambda t: (t.final is None, t.median_ms))
    leaders = [*whole.ties, *(trial.config for trial in ranked[:_LEADERS])]
    configs = dict.fromkeys([Config(quick.best_config), Config(whole.best_config), *leaders])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        race = judged_on(operation, None, None, [dict(config) for config in configs])
    slower = race["slower"][Config(quick.best_config).text]
    return {
        "problem": operation.problem().label,
        "configs": operation.space_for(operation.problem()).size.valid,
        "regret": slower[1],
        "regret_interval": [slower[0], slower[2]],
        "within_1_percent": slower[1] <= WITHIN,
        "default_tune": described(quick, quick_s),
        "exhaustive": described(whole, whole_s),
        "race": race,
    }


def main() -> None:
    """All kinds, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, help="default: kinds.json in the results' folder of this device")
    parser.add_argument("--commit")
    options = parser.parse_args()
    device = probe("cuda")
    out = options.out or _DEVICE_FOLDERS / device.name.lower().replace(" ", "-") / "kinds.json"
    for name in options.kinds:
        row = case(KINDS[name])
        print(
            f"{name}: regret {100 * row['regret']:.2f} %, default tune {row['default_tune']['decided_s']} s, "
            f"exhaustive {row['exhaustive']['decided_s']} s over {row['configs']} configs, "
            f"{row['exhaustive']['totals']}",
            flush=True,
        )
        head = headed("python -m benchmarks.tuning.kinds", options.commit, device=device.name)
        before = json.loads(out.read_text())["kinds"] if out.exists() else {}  # each kind is on disk when it is done
        save(out, {"kinds": {**before, name: {**head, **row}}})


if __name__ == "__main__":
    main()
