"""What the benchmark of third-party kernels makes of two tuners' processes, of their prints, and of several runs."""

import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning.third_party import Contender, merged, side_by_side, summary, tuned_seconds

PROCESS = """
import pickle, sys, time
from pathlib import Path
print("begun")
for number, line in enumerate(sys.stdin):
    word, name = line.split()
    if name == "dies":
        sys.exit(7)
    if name == "hangs":
        time.sleep(600)
    answer = {"error": "refused"} if name == "fails" else {"ms": 1.5}
    answer.update(rows=[{"kernel": name}], tuned=[name])
    whole = Path(sys.argv[-1]) / f"{number}.pickle"
    whole.with_suffix(".part").write_bytes(pickle.dumps(answer))
    whole.with_suffix(".part").rename(whole)
"""


def printed(kernel, seconds, configs):
    tried = "".join(f"Autotuning kernel {kernel} with config BLOCK: {block}, num_warps: 4\n" for block in configs)
    return f"{tried}Triton autotuning for function {kernel},\nwith key as (1,),\nfinished after {seconds:.2f}s,\n" \
           f"best config selected: BLOCK: {configs[0]}, num_warps: 4;\n"  # fmt: skip


def test_the_seconds_of_a_kernel_are_those_of_all_its_tunes():
    theirs = tuned_seconds(printed("add", 1.5, [1, 2, 3]) + "triton l2norm: 3.1\n" + printed("add", 0.5, [1, 2, 3]))
    ours = tuned_seconds(printed("add", 0.75, [1, 3, 2]) + printed("only_here", 1, [1]))
    assert theirs == {"add": {"seconds": 2.0, "tunes": 2, "configs": 6}}
    row = {"triton_s": 2.0, "ours_s": 0.75, "tunes": {"triton": 2, "ours": 1}, "configs": 3.0, "faster": True}
    assert side_by_side(theirs, ours) == {"add": row}


@pytest.mark.processes
def test_a_process_that_fails_dies_or_hangs_costs_one_case(tmp_path):
    contender = Contender([sys.executable, "-c", PROCESS], tmp_path)
    told = [contender.ask("time", name, 60) for name in ("one", "fails", "two", "dies", "three")]
    assert [each.get("ms") for each in told] == [1.5, None, 1.5, None, 1.5]
    assert (told[1]["error"], told[3]["error"]) == ("refused", "its process ended with 7")
    assert contender.ask("time", "hangs", 0.2) == {"error": "no answer within 0 s"}
    assert contender.process is None
    assert contender.starts == 3
    assert [row["kernel"] for rows in contender.rows for row in rows] == ["fails", "two", "three"]
    assert contender.told().split() == ["begun"] * 3


def test_runs_that_are_merged_say_what_one_would():
    def part(name, seconds, **row):
        tunes = {"triton": {"add": {"seconds": 2.0, "tunes": 1, "configs": 3}},
                 "ours": {"add": {"seconds": seconds, "tunes": 1, "configs": 3}}}  # fmt: skip
        return {"cases": {name: row}, "tunes": tunes, "tuned_by_triton": [name], "rows": [{"kernel": name}],
                "wall_s": {"triton": 3.0, "ours": 1.0}, "processes": {"triton": 1, "ours": 1}}  # fmt: skip

    facts = merged([part("a", 0.5, equal=True, ratio=1.0, no_slower=True), part("b", 2.0, errors={"ours": "no"})])
    assert facts["wall_s"] == {"triton": 6.0, "ours": 2.0}
    assert facts["tuned_by_triton"] == ["a", "b"]
    message = summary(facts)
    assert (message["cases"], message["failed"], message["slower"], message["tuned_faster"]) == (2, ["b"], [], 1)
    assert message["tuned_s"] == {"triton": 4.0, "ours": 2.5}
