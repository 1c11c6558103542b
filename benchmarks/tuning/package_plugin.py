"""What pytest loads in `benchmarks.tuning.package_tests`: it installs the tuner, keeps a shard, notes each test's end.

That script copies this file into a folder of its own, and gives pytest that folder alone: a package's tests may import
modules called `tests` and `benchmarks`, which must not be those of this project.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

OURS = os.environ.get("PACKAGE_TESTS_TUNER") == "ours"
SHARD, SHARDS = map(int, os.environ.get("PACKAGE_TESTS_SHARD", "0/1").split("/"))

if OURS:
    import triton_ops

    triton_ops.install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep this shard's stretch of each test function's cases: neighbours mostly compile the same kernels."""
    functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    shard = {case: place * SHARDS // len(cases) for cases in functions.values() for place, case in enumerate(cases)}
    config.hook.pytest_deselected(items=[item for item in items if shard[item] != SHARD])
    items[:] = [item for item in items if shard[item] == SHARD]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a phase of a test ended, how long it took, and what the tuner printed in it."""
    printed = report.capstdout if report.when == "call" and "utotuning" in report.capstdout else ""
    failed = report.outcome == "failed"
    _note(test=report.nodeid, phase=report.when, outcome=report.outcome, seconds=report.duration, printed=printed,
          why=_last_line(report) if failed else "")  # fmt: skip


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file whose tests cannot be read."""
    if report.failed:
        _note(test=report.nodeid, phase="collect", outcome="failed", seconds=0.0, printed="", why=_last_line(report))


def pytest_unconfigure() -> None:
    """Note where the configs of all launches came from."""
    rows = triton_ops.launches() if OURS else []
    _note(rungs=Counter(row.rung for row in rows), launches=sum(row.launches for row in rows))


def _last_line(report: Any) -> str:
    """What an error says of itself."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).strip()[:300]


def _note(**content: Any) -> None:
    with Path(os.environ["PACKAGE_TESTS_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
