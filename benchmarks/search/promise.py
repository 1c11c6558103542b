"""Whether tunes that promise a config within 1 % of the best keep the promise: `python -m benchmarks.search.promise`.

Simulated tunes on all recordings, with a model that is declared, one that is read, and none, are cut off after several
numbers of trials. Tunes are put into bins by the chance that they told, which is compared with the share of them that
kept it. `shipped` has the bins of the weights in `src/triton_ops/search/promise.py`, fitted to tunes of six seeds, and
`by_kernel` those of weights that were fitted to these tunes without one of the same kernel. `weights` are those of all
these tunes. Fifteen minutes on two cores.
"""

from __future__ import annotations

import itertools
import math
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.document import headed, parser_of, save
from triton_ops.request import Effort
from triton_ops.search import chance_within_1pct, make_searcher
from triton_ops.values import Trial
from triton_ops_lab.recording import read_recording
from triton_ops_lab.replayed_search import LiveConditions, priors_for, regret_of, simulated

HERE = Path(__file__).parents[1]
MODES = ("declared", "read", "none")
CUTS = (24, 32, 48, 64, 96, 128, 192)
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
FEWEST = 50  # tunes of a bin
FOLDS = 10
RIDGE = 1.0


def tunes_of(path: Path, seeds: int) -> list[dict[str, Any]]:
    """The tunes on one recording: what each promised, whether it kept that, and the terms of the promise."""
    recording, effort = read_recording(path), Effort.named("full")
    found = []
    for mode in MODES:
        priors = [] if mode == "none" else priors_for(recording, undeclared=mode == "read")
        if not priors and mode != "none":
            continue
        for seed in range(seeds):
            searcher = make_searcher("auto", recording.space, seed, priors)
            loop = simulated(recording, searcher, effort, LiveConditions(), seed=seed)
            trials = list(loop.trials.values())
            for count in sorted({*(cut for cut in CUTS if cut < len(trials)), len(trials)}):
                tried = trials[:count]
                promised = chance_within_1pct(tried, len(recording.trials), modelled=bool(priors))
                if promised is None:
                    continue
                left = len(recording.trials) / count
                found.append({
                    "kernel": recording.kernel, "mode": mode, "end": count == len(trials), "promised": promised,
                    "kept": regret_of(tried, recording, effort, loop.default) <= 0.01, "whole": left <= 1.0,
                    "terms": terms(tried, left, modelled=bool(priors)),
                })  # fmt: skip
    return found


def terms(trials: Sequence[Trial], left: float, *, modelled: bool) -> list[float]:
    """The terms of the odds: two constants and two weights of the trials, then of the near, the lead and the left."""
    own = (1.0, math.log(len(trials)))
    times = sorted(trial.median_ms for trial in trials if trial.ok)
    near, lead = sum(ms <= 1.1 * times[0] for ms in times), math.log(times[min(1, len(times) - 1)] / times[0])
    of_both = (0.0, 0.0, *own) if modelled else (*own, 0.0, 0.0)
    return [*of_both, math.log(near), 10 * min(lead, 0.3), (not modelled) * math.log(left)]


def fitted(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The weights of a logistic regression, by Newton's steps; a weak prior keeps them finite."""
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (kept - chance) - RIDGE * weights
        curvature = rows.T @ (rows * (chance * (1 - chance))[:, None]) + RIDGE * np.eye(len(weights))
        weights += np.linalg.solve(curvature, slope)
    return weights


def bins(promised: np.ndarray, kept: np.ndarray) -> list[dict[str, Any]]:
    """The bins of at least 50 tunes; a promise holds within 3 points, or inside the 95 % interval of the share."""
    rows = []
    for low, high in itertools.pairwise(EDGES):
        inside = (promised >= low) & ((promised < high) | (high == EDGES[-1]))
        if (count := int(inside.sum())) < FEWEST:
            continue
        share, mean = float(kept[inside].mean()), float(promised[inside].mean())
        centre, width = share + 1.92 / count, 1.96 * math.sqrt(share * (1 - share) / count + 0.96 / count**2)
        interval = [round((centre + sign * width) / (1 + 3.84 / count), 3) for sign in (-1, 1)]
        holds = abs(share - mean) <= 0.03 or interval[0] <= mean <= interval[1]
        rows.append({
            "from": low, "to": high, "tunes": count, "promised": round(mean, 3), "kept": round(share, 3),
            "interval": interval, "holds": holds,
        })  # fmt: skip
    return rows


def left_out(tunes: list[dict[str, Any]], rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The chance of each tune by weights that no tune of its kernel had a part in."""
    fold = np.array([zlib.crc32(tune["kernel"].encode()) % FOLDS for tune in tunes])
    chances = np.zeros(len(tunes))
    for at in range(FOLDS):
        chances[fold == at] = 1 / (1 + np.exp(-rows[fold == at] @ fitted(rows[fold != at], kept[fold != at])))
    return chances


def main() -> None:
    """Simulate the tunes, and write the bins and the weights."""
    parser = parser_of(__doc__, HERE / "results/simulated/promise.json")
    parser.add_argument("--recordings", type=Path, default=HERE / "recordings")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    files = sorted(asked.recordings.rglob("*.json.gz"))
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        tunes = [tune for several in pool.map(partial(tunes_of, seeds=asked.seeds), files) for tune in several]
    cut = [tune for tune in tunes if not tune["whole"]]
    rows, kept = np.array([tune["terms"] for tune in cut]), np.array([tune["kept"] for tune in cut], float)
    promised = np.array([tune["promised"] for tune in cut])
    ends = np.array([tune["end"] for tune in cut])
    whole = [tune["kept"] for tune in tunes if tune["whole"]]
    command = f"python -m benchmarks.search.promise --seeds {asked.seeds}"
    save(asked.out, headed(
        command, asked.commit, recordings=len(files), tunes=len(tunes),
        whole={"tunes": len(whole), "kept": round(float(np.mean(whole)), 4)},
        shipped=bins(promised, kept), at_their_end=bins(promised[ends], kept[ends]),
        by_kernel=bins(left_out(cut, rows, kept), kept), weights=fitted(rows, kept).round(2).tolist(),
    ))  # fmt: skip
    print(asked.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
