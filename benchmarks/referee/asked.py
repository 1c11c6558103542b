"""The referee's answers to a bank of cases: counts by family, and every answer that is not right."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.referee.cases import Case, even_cases, honest_cases
from benchmarks.referee.planted import cheats
from triton_ops import check

BANKS = {"cheats": cheats, "honest": honest_cases, "even": even_cases}


Asked: TypeAlias = tuple[str, int]
"""A bank, and a place in it."""


def places_of(bank: str, every: int, device: str, only: str = "") -> list[Asked]:
    """The places of the cases of a bank whose candidate's name has `only` in it.

    Where not every one is asked, those of several sizes come in turn.
    """
    places = ((place, case) for place, case in enumerate(BANKS[bank](device)) if only in case.candidate)
    return [(bank, place) for place, _ in places if place % every == place // every % every]


def row_of(bank: str, place: int, seconds: float, device: str) -> dict[str, Any]:
    """The answer to the case at a place, with what it took; a referee that raises has given none."""
    case: Case = list(BANKS[bank](device))[place]
    begin, tried = time.monotonic(), ()
    try:
        found = check(case.candidate, case.task.target, args=list(case.inputs().values()), seconds=seconds)
        verdict, text, tried = found.verdict, str(found), found.tried
    except Exception as error:  # noqa: BLE001 - the other cases are asked all the same
        verdict, text = "none", f"{type(error).__name__}: {error}"
    return {
        "bank": bank,
        "place": place,
        "family": Path(case.candidate).stem if bank == "cheats" else case.task.name,
        "candidate": case.candidate,
        "size": case.size,
        "dtype": case.dtype,
        "verdict": verdict,
        "right": verdict in case.answers,
        "text": text,
        "tried": tried,
        "seconds": round(time.monotonic() - begin, 1),
    }


def rows(todo: Sequence[Asked], jobs: int, seconds: float, device: str, *, turns: bool) -> Iterator[dict[str, Any]]:
    """The answers in the order in which they come, of so many processes at once.

    Each process has CPUs of its own where there are enough. Without `turns` all measure on a GPU at the same time: that
    is for verdicts on results.
    """
    context = get_context("spawn")
    cpus = sorted(os.sched_getaffinity(0))
    share, shares = len(cpus) // jobs, context.SimpleQueue()
    for job in range(jobs):
        shares.put(cpus[job * share : (job + 1) * share] or cpus)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(shares, turns)) as pool:
        for each in as_completed([pool.submit(row_of, *one, seconds, device) for one in todo]):
            yield each.result()


def _begin(shares: Any, turns: bool) -> None:
    os.sched_setaffinity(0, shares.get())
    if not turns:
        own_turns()


def own_turns() -> None:
    """Let this process measure whenever it can, whoever else does."""
    os.environ["TRITON_OPS_LOCK_DIR"] = tempfile.mkdtemp(prefix="locks")


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The verdicts by bank and family, and how many answers are not right."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in found:
        counts[row["bank"]][row["family"]][row["verdict"]] += 1
    wrong = Counter(row["bank"] for row in found if not row["right"])
    return {"verdicts": counts, "cases": Counter(row["bank"] for row in found), "not right": wrong}
