"""What a referee is asked: planted cheats, honest candidates, and references against themselves.

    python -m benchmarks.referee --list               the counts by family
    python -m benchmarks.referee --show --out FILE    what a naive check says of each cheat, and whether it was shown
    python -m benchmarks.referee --ask cheats honest even --jobs 2 --out FILE    what `triton_ops.check` says

With `--device cuda` the bank is that for a GPU, on which cases take turns unless `--together` is given.
A referee may answer a case only by one of its `answers`. `cases.py` and `planted.py` have them.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.correctness.verdict_kernels import ATTENTION_FAULTS, MATMUL_FAULTS
from benchmarks.document import commit_here, headed, parser_of, save
from benchmarks.referee import asked, shown
from benchmarks.referee.cases import even_cases, honest_cases
from benchmarks.referee.planted import Cheat, cheats


def listing(device: str) -> Iterator[str]:
    """The counts by family of cheats, and by task."""
    families = Counter(Path(cheat.candidate).parts[-1].partition(".")[0] for cheat in cheats(device))
    yield from _part("planted cheats", families)
    yield from _part("honest cases", Counter(case.task.name for case in honest_cases(device)))
    yield from _part("references against themselves", Counter(case.task.name for case in even_cases(device)))
    yield f"{len(ATTENTION_FAULTS) + len(MATMUL_FAULTS)} faults of kernels, in benchmarks.correctness.verdict_kernels"


def _part(title: str, counts: Counter[str]) -> Iterator[str]:
    yield f"{sum(counts.values())} {title}"
    yield from (f"  {count:3} {name}" for name, count in counts.items())


def row_of(cheat: Cheat) -> dict[str, Any]:
    """What a naive check and a careful look say of a cheat, each in a process of its own."""
    return {
        "cheat": cheat.candidate,
        "task": cheat.task.name,
        "what": cheat.what,
        "answers": cheat.answers,
        "naive_speedup": shown.in_child(shown.naive_check, cheat),  # a text is what it raised; None is a wrong result
        "shown_by": cheat.shown_by,
        "shown": shown.in_child(getattr(shown, cheat.shown_by), cheat),
        "fools": cheat.fools or "a naive check",
    }


def ask(options: Namespace) -> int:
    """Ask the referee, and save its answers as they come; 1 if one is not right."""
    known = options.resume and options.out and options.out.exists()
    rows: list[dict[str, Any]] = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if known else []
    words = f"--ask {' '.join(options.ask)} --every {options.every} --jobs {options.jobs} --seconds {options.seconds:g}"
    words += f" --device {options.device}" + (" --together" if options.together else "")
    words += f" --only {options.only}" if options.only else ""
    places = [one for bank in options.ask for one in asked.places_of(bank, options.every, options.device, options.only)]
    before = {(row["bank"], row["place"]) for row in rows}
    todo = [one for one in places if one not in before]
    for row in asked.rows(todo, options.jobs, options.seconds, options.device, turns=not options.together):
        rows.append({**row, "commit": options.commit or commit_here()})
        print(f"{row['candidate']} {row['size']} {row['dtype']}: {row['text']}", flush=True)
        if options.out:
            command, summary = f"python -m benchmarks.referee {words}", asked.summary(rows)
            save(options.out, headed(command, options.commit, **summary, rows=rows))
    return 0 if all(row["right"] for row in rows) else 1


def main() -> int:
    """Print what is asked for; 1 if a cheat was not shown to be one."""
    parser = parser_of(__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--list", action="store_true", help="counts of what there is")
    wanted.add_argument("--show", action="store_true", help="try each cheat")
    wanted.add_argument("--ask", nargs="+", choices=asked.BANKS, help="banks of cases to ask the referee")
    parser.add_argument("--jobs", type=int, default=1, help="cases that are asked at once")
    parser.add_argument("--every", type=int, default=1, help="ask one of so many cases")
    parser.add_argument("--only", default="", help="ask the cases whose candidate has this in its name")
    parser.add_argument("--resume", action="store_true", help="keep the answers that the file has")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the inputs")
    parser.add_argument("--together", action="store_true", help="measure on a GPU at the same time; times are rough")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    options = parser.parse_args()
    if options.ask:
        return ask(options)
    if options.list:
        print("\n".join(listing(options.device)))
        return 0
    torch.set_num_threads(1)  # threads of this process would be missing in its forks
    rows = []
    for cheat in cheats(options.device):
        rows.append(row_of(cheat))
        print(f"{cheat.name:22}{rows[-1]['naive_speedup']!s:.6} {cheat.shown_by} {rows[-1]['shown']}", flush=True)
    if options.out:
        command = f"python -m benchmarks.referee --show --device {options.device}"
        save(options.out, headed(command, options.commit, rows=rows))
    return 0 if all(row["shown"] is True for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
