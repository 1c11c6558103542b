"""Where the model's costs come from: `python -m benchmarks.model.model_fit RECORDING… [--evaluations N] [--json FILE]`.

Fits `hardware.Costs` of an architecture to recorded spaces by coordinate steps in the logarithm: once on all spaces of
products, of products in a chain and of rows, and once without each in turn, and ranks the space that was left out. Work
is read from the kernel where its source is here, else it is the declared one. The loss of a space is the weighted
spread of log(expected / measured), in which a config counts by (best / its time)^1.5, plus 1 - Spearman's correlation,
plus a twentieth of the mean: levels may be off by a factor, orders may not.

Cost: about 30 ms per evaluation and space.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.document import save
from benchmarks.model.inferred_quality import inferred, readings_of
from benchmarks.model.model_quality import figures, read, recorded_model, resources_of, time_ms
from triton_ops.cost_model import Model, Readings
from triton_ops.values import Resources

FITTED = {
    "products": (
        "shared_share", "line_cycles", "load_ns", "stream_gbps", "step_cycles", "overlap", "spill_bytes_per_cycle",
    ),
    "chain": ("link_cycles", "tall_link", "exchange_cycles", "lone_warp", "unhidden"),
    "rows": ("chunk_ns", "near_ns", "row_ns", "plain_gbps", "reduce_ns", "turn_ns", "l1_bytes", "straggle"),
}  # fmt: skip
BOUNDS = {"shared_share": (0.7, 1.0), "step_cycles": (10.0, 80.0), "overlap": (2.0, 12.0), "turn_ns": (300.0, 4000.0)}
_FIRST_STEP, _GROW, _SHRINK, _SMALLEST = 0.15, 1.3, 0.6, 0.005
_WEIGHT = 1.5
_LEVEL = 0.05


@dataclass(frozen=True)
class Space:
    """One recording: its model, and what ran."""

    name: str
    kind: str
    model: Model
    configs: list[dict[str, Any]]
    resources: list[Resources]
    times_ms: list[float]

    def scores(self, costs: dict[str, float]) -> list[float]:
        """What the model expects with these costs."""
        assert self.model.machine is not None
        machine = replace(self.model.machine, costs=replace(self.model.machine.costs, **costs))
        model = replace(self.model, machine=machine)
        return [model.expected_ms(c, r) for c, r in zip(self.configs, self.resources, strict=True)]

    def loss(self, costs: dict[str, float]) -> float:
        """How far the order and the spread are off."""
        scores, best = self.scores(costs), min(self.times_ms)
        weights = [(best / time) ** _WEIGHT for time in self.times_ms]
        errors = [math.log(min(score, 1e4) / time) for score, time in zip(scores, self.times_ms, strict=True)]
        mean = sum(w * e for w, e in zip(weights, errors, strict=True)) / sum(weights)
        spread = math.sqrt(sum(w * (e - mean) ** 2 for w, e in zip(weights, errors, strict=True)) / sum(weights))
        return spread + 1 - Model.spearman(scores, self.times_ms) + abs(mean) * _LEVEL


def loaded(path: Path) -> Space | None:
    """The space of a recording; None where the model is silent."""
    recording = read(path)
    readings = readings_of(recording)
    model = inferred(recording, readings) or recorded_model(recording)
    if model is None:
        return None
    rows = [row for row in recording["rows"] if row["status"] == "ok"]
    resources = [resources_of(row, recording) for row in rows]
    return Space(path.name, kind_of(readings), model, [r["config"] for r in rows], resources, list(map(time_ms, rows)))


def kind_of(readings: Readings | None) -> str:
    """Which costs a space can tell; a space that only declares its work is one of products."""
    products = [p for work in readings.known_works for one in work.launches for p in one.products] if readings else None
    if products is None:
        return "products"
    return "rows" if not products else "chain" if any(product.computed for product in products) else "products"


def fitted(spaces: list[Space], names: tuple[str, ...], evaluations: int) -> dict[str, float]:
    """The costs called `names` that fit `spaces` best, from those in use."""
    assert spaces[0].model.machine is not None
    costs = {name: float(getattr(spaces[0].model.machine.costs, name)) for name in names}
    steps = dict.fromkeys(names, _FIRST_STEP)
    best, spent = _mean_loss(spaces, costs), 1
    while spent < evaluations and max(steps.values()) > _SMALLEST:
        for name in names:
            candidates = [
                {**costs, name: _bounded(name, costs[name] * math.exp(sign * steps[name]))} for sign in (1, -1)
            ]
            losses = [_mean_loss(spaces, each) for each in candidates]
            spent += 2
            better = min(losses) < best - 1e-6
            steps[name] *= _GROW if better else _SHRINK
            if better:
                best, costs = min(losses), candidates[losses.index(min(losses))]
    return costs


def _bounded(name: str, value: float) -> float:
    low, high = BOUNDS.get(name, (0.0, math.inf))
    return min(max(value, low), high)


def _mean_loss(spaces: list[Space], costs: dict[str, float]) -> float:
    return sum(space.loss(costs) for space in spaces) / len(spaces)


def main() -> None:
    """Fit and print; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--evaluations", type=int, default=120, help="per fit")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    options = parser.parse_args()
    spaces = [space for path in options.recordings if (space := loaded(path)) is not None]
    report: dict[str, Any] = {}
    for kind, names in FITTED.items():
        group = [space for space in spaces if space.kind == kind]
        for left_out in [None, *group] if len(group) > 1 else []:
            costs = fitted([s for s in group if s is not left_out], names, options.evaluations)
            fit: dict[str, Any] = {"costs": {name: round(value, 3) for name, value in costs.items()}}
            if left_out is not None:
                fit["ranked"] = figures(left_out.scores(costs), left_out.times_ms)
            label = f"{kind}, {'all' if left_out is None else 'without ' + left_out.name}"
            report[label] = fit
            print(label, *fit.values(), sep="\n  ", flush=True)
    if options.json:
        save(options.json, report)


if __name__ == "__main__":
    main()
