"""How long does `lock verify --repair` take on this GPU, and does it find planted inversions and leave the rest alone?

    python -m benchmarks.tuning.repair_gpu --entries 40 --seconds 55 --out OUT/repair.json --confirmed OUT/lock.json
    TRITON_PTXAS_PATH=OTHER python -m benchmarks.tuning.repair_gpu --lock OUT/lock.json --out OUT/other.json

Entries of the lockfile that the package brings for this GPU race three times. `as_shipped` says what has become of them
under the versions that are here. `again` repairs what the first pass has left, so that a repair in it is a false one.
For `planted` each entry pins a config that was 5 to 100 % slower in the second pass, and should be repaired. Prints the
counts and the seconds for each entry. No pass begins a race after so many seconds. The entries that the second pass has
confirmed can be written to a lockfile, and raced under another assembler: `as_shipped` then says what became of them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops.device import probe
from triton_ops.records import LockEntry, Lockfile
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import Verdict, repair, trial_of
from triton_ops.tuner import Silent
from triton_ops.values import Key

SLOWER = (1.05, 2.0)  # a planted config's time over the entry's


def shipped(count: int, seed: int) -> Lockfile:
    """So many entries of the package's lockfile for this GPU."""
    facts = Key.facts_of(probe("cuda"))
    for file in files("triton_ops.kernels.winners").iterdir():
        if not file.name.endswith(".json"):
            continue
        lock = Lockfile.read(str(file))
        if any(device.why_not(facts) is None for device in lock.devices):
            return replace(lock, entries=tuple(random.Random(seed).sample(lock.entries, min(count, len(lock.entries)))))
    raise SystemExit("the package has no winners for this GPU")


def passed(name: str, lock: Lockfile, seconds: float, document: dict[str, Any]) -> list[Verdict]:
    """The verdicts of one pass, which are noted in the document."""
    start_s, ends_s = time.monotonic(), list[float]()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder:
        for verdict in repair(lock, Targets(), Path(folder), "cuda", seconds=seconds, listener=Silent()):
            verdicts.append(verdict)
            ends_s.append(round(time.monotonic() - start_s, 3))
    raced = sum("limit of seconds" not in verdict.reason for verdict in verdicts)
    outcomes = dict(Counter(verdict.outcome for verdict in verdicts))
    end_s = max(ends_s, default=0.0)
    document[name] = {
        "outcomes": outcomes, "raced": raced, "seconds": end_s, "s_per_entry": round(end_s / max(raced, 1), 3),
        "entries": [
            {"entry": f"{verdict.entry.kernel} {verdict.entry.label}", "config": str(verdict.entry.config),
             "outcome": verdict.outcome, "reason": verdict.reason, "at_s": at_s}
            for verdict, at_s in zip(verdicts, ends_s, strict=True)
        ],
    }  # fmt: skip
    print(name, outcomes, f"{raced} raced, {document[name]['s_per_entry']} s for each")
    return verdicts


def planted(lock: Lockfile, verdicts: Iterable[Verdict], seed: int) -> Lockfile:
    """The entries that were confirmed, each with a config that was slower in its race."""
    rng, entries = random.Random(seed), []
    for verdict in verdicts:
        if verdict.outcome != "ok" or verdict.result is None:
            continue
        own = trial_of(verdict.result, verdict.entry.config)
        slower = [one.config for one in verdict.result.trials if SLOWER[0] <= (one.over(own) or 0.0) <= SLOWER[1]]
        if slower:
            entries.append(replace(verdict.entry, config=rng.choice(slower)))
    return replace(lock, entries=tuple(entries))


def _raced(verdicts: Iterable[Verdict]) -> tuple[LockEntry, ...]:
    return tuple(verdict.becomes for verdict in verdicts if verdict.becomes is not None)


def main() -> int:
    """The three passes, or with a lockfile the first one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=55.0, help="of each pass")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lock", type=Path, help="a lockfile whose entries race, once, in place of the package's")
    parser.add_argument("--confirmed", type=Path, help="where the entries go that the second pass has confirmed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    lock = shipped(options.entries, options.seed) if options.lock is None else Lockfile.read(options.lock)
    document: dict[str, Any] = {}
    first = passed("as_shipped", lock, options.seconds, document)
    if options.lock is None:
        again = passed("again", replace(lock, entries=_raced(first)), options.seconds, document)
        if options.confirmed is not None:
            replace(lock, entries=_raced(again)).write(options.confirmed)
        passed("planted", planted(lock, again, options.seed), options.seconds, document)
    if options.out is not None:
        command = f"python -m benchmarks.tuning.repair_gpu --entries {options.entries} --seconds {options.seconds:g}"
        save(options.out, headed(f"{command} --out {options.out}", options.commit, gpu=probe("cuda").name, **document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
