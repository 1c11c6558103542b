"""The measured tables of which implementation and which compile mode is fastest, and what figures are from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODES = ROOT / "benchmarks/results/cpu/compile_modes.json"
MODES_GPU = ROOT / "benchmarks/results/nvidia-h200/compile_modes.json"
CHOICES = ROOT / "benchmarks/results/nvidia-h200/choices.json"


def command_now(document: Mapping[str, Any]) -> str:
    """The recorded command, by the path that its script has today."""
    recorded: str = document["command"]
    module = next((word for word in recorded.split() if word.startswith("benchmarks.")), None)
    if module is None:
        return recorded
    script = next(ROOT.joinpath("benchmarks").rglob(f"{module.rpartition('.')[2]}.py"))
    return recorded.replace(module, ".".join(script.relative_to(ROOT).with_suffix("").parts))


def source(document: Mapping[str, Any]) -> str:
    """Where and with what the figures of a document were measured."""
    versions, device = document["versions"], document.get("device")
    named = device if isinstance(device, str) and device.startswith("NVIDIA") else "NVIDIA H200"
    return (
        f"{named}, Triton {versions['triton']}, torch {versions['torch']}, {document['date'][:10]}; "
        f"`{command_now(document)}`."
    )


def choices_table() -> str:
    """What was chosen for products of matrices, beside cuBLAS alone and beside the best single implementation."""
    document = json.loads(CHOICES.read_text())
    rows = ["| N x K | " + " | ".join(f"M = {M}" for M in _rows_of(document)) + " |"]
    rows.append("|---" * (len(_rows_of(document)) + 1) + "|")
    rows_by_shape = {tuple(row["shape"]): row for row in document["rows"] if "chosen" in row}
    for columns, inner in dict.fromkeys((N, K) for _, N, K in rows_by_shape):
        cells = [_choice_cell(rows_by_shape.get((M, columns, inner))) for M in _rows_of(document)]
        rows.append(f"| {columns} x {inner} | {' | '.join(cells)} |")
    summary = document["summary"]
    return "\n".join([
        *rows, "",
        f"{summary['shapes']} of {summary['of']} shapes, {summary['over_cublas']:.3f} times cuBLAS's speed "
        f"(geometric mean), at most {summary['worst_percent']:.2f} % slower than the best single implementation.",
        "", source(document),
    ])  # fmt: skip


def _rows_of(document: Mapping[str, Any]) -> list[int]:
    return sorted({row["shape"][0] for row in document["rows"]})


def _choice_cell(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else f"{row['chosen']['implementation']} {row['over_cublas']:.2f}"


def modes_table() -> str:
    """Ways to compile models on a CPU, and what a further comparison says of the recommended one."""
    document = json.loads(MODES.read_text())
    rows = [
        "| model | eager | fastest compiled way | its first call | recommended | once more, in other processes |",
        "|---|---|---|---|---|---|",
    ]
    for name, it in document["models"].items():
        times = {mode["name"]: mode for mode in it["modes"] if mode["steady_ms"] is not None}
        best = min((mode for mode in times.values() if mode["name"] != "eager"), key=lambda mode: mode["steady_ms"])
        again = it.get("again", {}).get("confirmed", "")
        rows.append(
            f"| {name} | {times['eager']['steady_ms']:.3g} ms | {best['name']}, {best['steady_ms']:.3g} ms | "
            f"{best['first_call_s']:.0f} s | {it['recommended']} | {again} |"
        )
    versions, device = document["versions"], next(iter(document["models"].values()))["device"]
    rows += [
        "",
        f"{device}, one thread, torch {versions['torch']}, {document['date'][:10]}; `{command_now(document)}`.",
    ]
    return "\n".join(rows)


def modes_gpu_table() -> str:
    """Ways to compile models on a GPU: milliseconds of a call in steady state, and seconds of the first one."""
    document = json.loads(MODES_GPU.read_text())
    models = document["models"]
    names = [mode["name"] for mode in next(iter(models.values()))["modes"]]
    rows = [f"| model | {' | '.join(names)} | recommended |", "|---" * (len(names) + 2) + "|"]
    for name, it in models.items():
        cells = [_mode_cell(mode) for mode in it["modes"]]
        rows.append(f"| {name} | {' | '.join(cells)} | {it['recommended']} |")
    trapped = document["trap_ms"]["max-autotune"]
    rows += [
        "",
        f"A mean of 50 calls of `max-autotune` (mlp-fp32) says {trapped['after 1 warm-up calls']:.3f} ms after one "
        f"warm-up call, and {trapped['after 3 warm-up calls']:.3f} ms after three: the second call records the graphs. "
        f"Max-autotune's products: {document['gate']}.",
        "",
        source(document),
    ]
    return "\n".join(rows)


def _mode_cell(mode: Mapping[str, Any]) -> str:
    if mode["steady_ms"] is None:
        return str(mode["status"])
    first = f", {mode['first_call_s']:.0f} s" if mode["first_call_s"] >= 1 else ""
    return f"{mode['steady_ms']:.3f} ms{first}"
