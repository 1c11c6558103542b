"""`triton-ops lock portfolio`: at most k configs for all problems of a kernel that were tuned."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from triton_ops.base import counted, gain_text
from triton_ops.exceptions import SettingsError
from triton_ops.request import named_object
from triton_ops.ship.portfolio import Portfolio, choose_portfolio
from triton_ops.ship.targets import as_target
from triton_ops.terminal import CacheDir, ExitCode, Facts, folder_of, only_data_on_stdout, option

_CONFIGS = ("", "serves", "config")
_PROBLEMS = ("problem", "config", "regret", "vs default", "best there")
_NUMBERS = ("regret", "vs default", "serves")


def portfolio_command(
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="A kernel's name in records, or a TARGET.", show_default=False)
    ],
    most: Annotated[int, typer.Option("--most", "-k", metavar="K", help="The most configs; default 4.")] = 4,
    objective: Annotated[str, option("--objective", "worst or mean: which regret is to be small.", "WORD")] = "worst",
    gpu: Annotated[str | None, option("--gpu", "A GPU, or a CPU's name; default that of the records.", "NAME")] = None,
    weight: Annotated[list[str] | None, option("--weight", "What a problem counts in the mean.", "LABEL=W")] = None,
    cache_dir: CacheDir = None,
    device: Annotated[str | None, option("--device", "As --gpu.", "NAME", hidden=True)] = None,
) -> Facts:
    """Choose at most K configs for all problems of KERNEL that were tuned, from what was measured.

    Nothing is run. The exit code is 5 if a problem is not served.
    """
    weights = dict(_weight(text) for text in weight or [])
    with only_data_on_stdout():
        name = as_target(named_object(kernel)).name if kernel.rpartition(":")[0].endswith(".py") else kernel
    portfolio = choose_portfolio(
        name, most, objective=objective, device=gpu or device, weights=weights, cache_dir=folder_of(cache_dir)
    )
    facts = Facts("portfolio", _as_json(portfolio))
    facts.code = ExitCode.CHECK_FAILED if portfolio.unserved else ExitCode.DONE
    _add_tables(facts, portfolio)
    _tell(facts, portfolio)
    return facts


def _weight(text: str) -> tuple[str, float]:
    label, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not equals or not label or math.isnan(value):
        raise SettingsError(
            f"--weight {text!r} is not LABEL=NUMBER", hint="for example --weight '4096x4096 bfloat16=8'"
        )
    return label, value


def _add_tables(facts: Facts, portfolio: Portfolio) -> None:
    numbers = {config: str(number) for number, config in enumerate(portfolio.configs, 1)}
    rows = [
        [number, str(sum(each.config == config for each in portfolio.served)), str(config)]
        for config, number in numbers.items()
    ]
    facts.table(_CONFIGS, rows, _NUMBERS).lines("")
    rows = [
        [
            each.label,
            *(["-", "-"] if each.config is None else [numbers[each.config], f"{each.regret:.1%}"]),
            gain_text(each.gain),
            str(each.best),
        ]
        for each in portfolio.served
    ]
    facts.table(_PROBLEMS, rows, _NUMBERS)


def _tell(facts: Facts, portfolio: Portfolio) -> None:
    proof = "none is better" if portfolio.exact else f"none has less than {portfolio.bound:.1%}"
    regrets = (
        "not all are served" if portfolio.unserved else f"worst regret {portfolio.worst:.1%}, mean {portfolio.mean:.1%}"
    )
    configs, problems = counted(len(portfolio.configs), "config"), counted(len(portfolio.served), "problem")
    facts.tell(
        f"{configs} for {problems} of {portfolio.kernel} on {portfolio.device}: "
        f"{regrets}; of the {portfolio.objective}, {proof} among "
        f"{portfolio.measured} of {portfolio.cells} pairs that were measured; configs within {portfolio.noise:.1%} "
        "count as equal"
    )
    for each in portfolio.unserved:
        facts.tell(
            f"{each.label}: none of these configs is known to run there; its best is ({each.best})", "warning", "yellow"
        )
    for config, labels in portfolio.unmeasured.items():
        facts.tell(f"({config}) was never tried on {len(labels)} problems, such as {labels[0]}")
    for why, count in portfolio.left_out.items():
        facts.tell(f"{count} records do not count: {why}")


def _as_json(portfolio: Portfolio) -> dict[str, Any]:
    problems = [
        {
            "label": each.label, "id": each.key, "config": None if each.config is None else dict(each.config),
            "regret": each.regret, "gain": each.gain, "best": dict(each.best), "weight": each.weight,
        }
        for each in portfolio.served
    ]  # fmt: skip
    return {
        "kernel": portfolio.kernel, "device": portfolio.device,
        "configs": [dict(config) for config in portfolio.configs], "problems": problems,
        "objective": portfolio.objective, "worst": portfolio.worst, "mean": portfolio.mean, "bound": portfolio.bound,
        "exact": portfolio.exact, "noise": portfolio.noise, "measured": portfolio.measured, "cells": portfolio.cells,
        "unmeasured": [{"config": dict(config), "problems": list(at)} for config, at in portfolio.unmeasured.items()],
        "left_out": dict(portfolio.left_out),
    }  # fmt: skip
