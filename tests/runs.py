"""Run logs for tests."""

from __future__ import annotations

from datetime import datetime, timezone

from triton_ops.records import Head, RunLog
from triton_ops.records.run_log import ConstraintFacts, Environment, SpaceFacts
from triton_ops.space import Config
from triton_ops.values import Key, Measurement, Status, Trial

ID = "20261122T101112000000-0123abcd"
KEY_ID = "c3554002fdf9807cb06aeb30fad1c2c0"


def head(**changes):
    """The first line of a run, with `changes`."""
    space = SpaceFacts(
        fingerprint="f" * 32,
        tunables={"n": [1, 2, 3], "shape": [(1, 2), "x", None, True]},
        constraints=(ConstraintFacts(name="few", reason="{n} is too many", names=("n",), source="0" * 32),),
        default=Config(n=1, shape=(1, 2)),
    )
    facts = {
        "id": ID,
        "key_id": KEY_ID,
        "key": Key(kernel="wait", problem={}, identity={}, device={"name": "CPU"}, cache_state="cold"),
        "shape": (64, 64),
        "dtype": "bfloat16",
        "started": datetime(2026, 11, 22, tzinfo=timezone.utc).isoformat(),
        "environment": Environment(versions={"python": "3.11"}, host={"cpus": 2}, device={"kind": "cpu"}),
        "space": space,
        "effort": {"name": "quick"},
        "searcher": "random",
        "seed": 0,
    }
    return Head(**{**facts, **changes})


def begun(folder, **changes):
    """A run log in `folder` with its first line."""
    first = head(**changes)
    log = RunLog(folder / f"{first.id}.jsonl")
    log.write(first, durable=True)
    return log


def a_trial(n: int, ms: float = 1.0) -> Trial:
    """A trial of config `n`."""
    return Trial(Config(n=n), Status.OK, Measurement((ms,), "host"))
