"""`triton-ops portfolio`: at most k configs for all problems of a kernel that were tuned."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from triton_ops.base import counted
from triton_ops.cli.console import CacheDir, Json, Verbose, bold, only_data_on_stdout, say, say_json, table, tell, width
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_object
from triton_ops.exceptions import SettingsError
from triton_ops.ship import Portfolio, as_target, choose_portfolio

_UNSERVED = 5
_CONFIGS = ("", "serves", "config")
_PROBLEMS = ("problem", "config", "regret", "vs default", "best there")
_NUMBERS = ("regret", "vs default", "serves")


def portfolio_command(
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="A kernel's name in records, or a TARGET.", show_default=False)
    ],
    most: Annotated[int, typer.Option("--most", "-k", metavar="K", help="The most configs; default 4.")] = 4,
    objective: Annotated[
        str, typer.Option("--objective", metavar="WORD", help="worst or mean: which regret is to be small.")
    ] = "worst",
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="A device's name; default that of the records.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option("--weight", metavar="LABEL=W", help="What a problem counts in the mean.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int:
    """Choose at most K configs for all problems of KERNEL that were tuned, from what was measured.

    Nothing is run. The exit code is 5 if a problem is not served.
    """
    weights = dict(_weighed(text) for text in weight or [])
    with only_data_on_stdout():
        name = as_target(load_object(kernel)).name if kernel.rpartition(":")[0].endswith(".py") else kernel
    found = choose_portfolio(
        name, most, objective=objective, device=device, weights=weights, cache_dir=folder_of(cache_dir)
    )
    if as_json:
        say_json(_as_json(found))
    else:
        _show(found)
    _tell(found)
    return _UNSERVED if found.unserved else 0


def _weighed(text: str) -> tuple[str, float]:
    label, equals, number = text.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not equals or not label or math.isnan(weight):
        raise SettingsError(
            f"--weight {text!r} is not LABEL=NUMBER", hint="for example --weight '4096x4096 bfloat16=8'"
        )
    return label, weight


def _show(found: Portfolio) -> None:
    numbers = {config: number for number, config in enumerate(found.configs, 1)}
    rows = [
        [str(number), str(sum(each.config == config for each in found.served)), str(config)]
        for config, number in numbers.items()
    ]
    header, *lines = table(_CONFIGS, rows, width(), _NUMBERS)
    say(bold(header), *lines, "")
    rows = [
        [
            each.label,
            "-" if each.config is None else str(numbers[each.config]),
            "-" if each.config is None else f"{each.regret:.1%}",
            "-" if each.gain is None else f"{each.gain:.2f}x",
            str(each.best),
        ]
        for each in found.served
    ]
    header, *lines = table(_PROBLEMS, rows, width(), _NUMBERS)
    say(bold(header), *lines)


def _tell(found: Portfolio) -> None:
    """How good the portfolio is, and what is not known of it."""
    sure = "none is better" if found.exact else f"none has less than {found.bound:.1%}"
    regrets = f"worst regret {found.worst:.1%}, mean {found.mean:.1%}" if not found.unserved else "not all are served"
    configs, problems = counted(len(found.configs), "config"), counted(len(found.served), "problem")
    what = f"{configs} for {problems} of {found.kernel} on {found.device}"
    tell(
        f"{what}: {regrets}; of the {found.objective}, {sure} among {found.measured} of {found.cells} pairs that were "
        f"measured; configs within {found.noise:.1%} count as equal"
    )
    for each in found.unserved:
        tell(
            f"{each.label}: none of these configs is known to run there; its best is ({each.best})", "warning", "yellow"
        )
    for config, labels in found.unmeasured.items():
        tell(f"({config}) was never tried on {len(labels)} problems, such as {labels[0]}")
    for why, count in found.left_out.items():
        tell(f"{count} records do not count: {why}")


def _as_json(found: Portfolio) -> dict[str, Any]:
    return {
        "kernel": found.kernel,
        "device": found.device,
        "configs": [dict(config) for config in found.configs],
        "problems": [
            {
                "label": each.label,
                "id": each.key,
                "config": None if each.config is None else dict(each.config),
                "regret": each.regret,
                "gain": each.gain,
                "best": dict(each.best),
                "weight": each.weight,
            }
            for each in found.served
        ],
        "objective": found.objective,
        "worst": found.worst,
        "mean": found.mean,
        "bound": found.bound,
        "exact": found.exact,
        "noise": found.noise,
        "measured": found.measured,
        "cells": found.cells,
        "unmeasured": [{"config": dict(config), "problems": list(at)} for config, at in found.unmeasured.items()],
        "left_out": dict(found.left_out),
    }
