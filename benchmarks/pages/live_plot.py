"""Best so far against time, of the live tunes in `live_tune.json`: one panel for each problem, one line for each run.

    python -m benchmarks.pages.live_plot

Beside the default tunes stand an exhaustive one and `triton.autotune` over the same configs. Seconds count from the
start of each process. The height is the speed of the best so far over that of the best of all, as the judge measured
it; those of `triton.autotune` are by its own clock, which reads some percent more at the power limit. It tries configs
in the order of the space, and a cross says that it was cut off. matplotlib: benchmarks/search/requirements.txt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path("benchmarks/results/nvidia-h200")
_TICKS = (2, 5, 10, 20, 50, 100, 300)
_INK = "#767676"  # reads on white and on black
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
_COLOURS = {"default tune": "tab:blue", "exhaustive": "tab:green", "triton.autotune": "tab:red"}


def steps(run: dict[str, Any], best_ms: float) -> tuple[list[float], list[float]]:
    """Seconds and heights of one run's improvements, up to its decision."""
    times, values = zip(*((at, value) for at, value, _ in run["curve"]), strict=True)
    relative = "configs" not in run  # over the default's time, where the last is the winner
    best = values[-1] / (1 + run["slower"][1]) if relative else best_ms
    return [*times, run["decided_s"]], [best / value for value in (*values, values[-1])]


def draw(cases: dict[str, Any], name: str, **size: Any) -> None:
    """Write a picture beside the results: a panel for each of the cases, on a ground that shows through."""
    from matplotlib import pyplot as plt

    plt.rcParams.update(dict.fromkeys(_INKED, _INK))
    figure, axes = plt.subplots(1, len(cases), squeeze=False, sharex=True, sharey=True, **size)
    for axis, (case, row) in zip(axes[0], cases.items(), strict=True):
        runs = [("triton.autotune", row["triton.autotune"]), ("exhaustive", row["exhaustive"])]
        for kind, history in [*runs, *(("default tune", run) for run in row["tunes"])]:
            if history is not None:
                times, heights = steps(history, min(row["judge"]["ms"].values()))
                axis.step(times, heights, where="post", color=_COLOURS[kind], alpha=0.7, linewidth=1.2)
                axis.plot(times[-1], heights[-1], "o" if history["winner"] else "x", color=_COLOURS[kind], markersize=5)
        axis.set(
            xscale="log",
            title=case,
            xlabel="seconds since the process began",
            xlim=(_TICKS[0], _TICKS[-1]),
            ylim=(0, 1.05),
        )
        axis.set_xticks(_TICKS, map(str, _TICKS))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("speed of the best so far")
    lines = [plt.Line2D([], [], color=colour, label=kind) for kind, colour in _COLOURS.items()]
    figure.legend(handles=lines, loc="lower center", ncols=len(lines), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(RESULTS / name, dpi=110, transparent=True)


def main() -> None:
    """Draw all problems, and the first one alone, which a phone can show."""
    cases = json.loads((RESULTS / "live_tune.json").read_text())["cases"]
    draw(cases, "live_tune.png", figsize=(5 * len(cases), 4))
    draw(dict([next(iter(cases.items()))]), "live_tune_matmul.png", figsize=(6.4, 3.6))


if __name__ == "__main__":
    main()
