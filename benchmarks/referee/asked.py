"""The referee's answers to a bank of cases: counts by family, and every answer that is not right."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.referee.cases import Case, even_cases, honest_cases
from benchmarks.referee.planted import cheats
from triton_ops import check

BANKS = {"cheats": cheats, "honest": honest_cases, "even": even_cases}


def places_of(bank: str, every: int) -> list[int]:
    """The places of cases in a bank; of several sizes in turn where not every one is asked."""
    return [place for place, _ in enumerate(BANKS[bank]()) if place % every == place // every % every]


def row_of(bank: str, place: int, seconds: float) -> dict[str, Any]:
    """The answer to the case at a place, with what it took."""
    case: Case = list(BANKS[bank]())[place]
    begin = time.monotonic()
    found = check(case.candidate, case.task.target, args=list(case.inputs().values()), seconds=seconds)
    return {
        "bank": bank,
        "place": place,
        "family": Path(case.candidate).stem if bank == "cheats" else case.task.name,
        "candidate": case.candidate,
        "size": case.size,
        "dtype": case.dtype,
        "verdict": found.verdict,
        "right": found.verdict in case.answers,
        "text": str(found),
        "tried": found.tried,
        "seconds": round(time.monotonic() - begin, 1),
    }


def key_of(row: Mapping[str, Any]) -> str:
    """What tells a row from the others."""
    return f"{row['bank']} {row['place']}"


def rows(
    banks: Sequence[str], every: int, jobs: int, seconds: float, before: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The answers in the order in which they come, of so many processes at once; those of `before` are not asked again.

    Each process has CPUs of its own where there are enough.
    """
    context, known = get_context("spawn"), set(map(key_of, before))
    cpus = sorted(os.sched_getaffinity(0))
    share, shares = len(cpus) // jobs, context.SimpleQueue()
    for job in range(jobs):
        shares.put(cpus[job * share : (job + 1) * share] or cpus)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(shares,)) as pool:
        places = [(bank, place) for bank in banks for place in places_of(bank, every)]
        todo = [(bank, place) for bank, place in places if key_of({"bank": bank, "place": place}) not in known]
        for each in as_completed([pool.submit(row_of, *one, seconds) for one in todo]):
            yield each.result()


def _begin(shares: Any) -> None:
    os.sched_setaffinity(0, shares.get())


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The verdicts by bank and family, and how many answers are not right."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in found:
        counts[row["bank"]][row["family"]][row["verdict"]] += 1
    wrong = Counter(row["bank"] for row in found if not row["right"])
    return {"verdicts": counts, "cases": Counter(row["bank"] for row in found), "not right": wrong}
