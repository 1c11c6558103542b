"""What `tune` prints of a result, what it refuses before it loads anything, and what `why` answers."""

import json
from types import SimpleNamespace

import pytest

from triton_ops.cli.app import main
from triton_ops.records import Record
from triton_ops.space import Config
from triton_ops.values import KernelMetrics, Measurement, Resources, Status, Trial, TuningResult

WORD = "a_rather_long_value"  # the same in all configs


def trial(n, ms, raced_ms=None, **more):
    final = None if raced_ms is None else Measurement((raced_ms,), "host", 1)
    return Trial(Config(n=n, word=WORD), Status.OK, Measurement((ms, ms, 1.5 * ms), "host"), final=final, **more)


@pytest.fixture
def target(tmp_path):
    (tmp_path / "work.py").write_text("def work(*, n, word):\n    pass\n", encoding="utf-8")
    return f"{tmp_path / 'work.py'}:work"


@pytest.fixture
def shown(cli, target, monkeypatch, capsys):
    """What the command prints and tells, doubts too, of a result that differs so from one without trials."""

    def shown(*words, columns=None, **changes):
        facts = {"metrics": KernelMetrics(4.0), "totals": {"ok": 2}, "stopped": "complete", "device": "CPU"}
        result = TuningResult({"n": 1, "word": WORD}, **{**facts, **changes})
        monkeypatch.setattr("triton_ops.cli.tune._tuned", lambda *_: result)
        monkeypatch.setenv("COLUMNS", str(columns or 200))
        code = main(["tune", target, "--space", "n=1,2", "--space", f"word={WORD}", *words])
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())

    return shown


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "4 ms, measured now"),
        ({"from_cache": True}, "4 ms, from the cache, not measured again"),
        ({"metrics": KernelMetrics(4.0, 0.999)}, "4 ms, 0.999 TFLOP/s, measured now"),
        ({"metrics": KernelMetrics(4.0, 1.0)}, "4 ms, 1.0 TFLOP/s, measured now"),
        ({"metrics": KernelMetrics(4.0, 0.0, 99.6)}, "4 ms, 100 GB/s, measured now"),
        ({"metrics": KernelMetrics(4.0, 0.0, 99.6, 49.7)}, "4 ms, 100 GB/s (50 % of peak), measured now"),
        ({"ties": (Config(n=1), Config(n=2))}, "4 ms, 1 more within noise, measured now"),
        ({"ties": (Config(n=1),)}, "4 ms, measured now"),
        ({"unproven": "why"}, "4 ms, unproven, measured now"),
        ({"raced_gain": 1.5, "gain_interval": (1.4, 1.6)}, "4 ms, 1.50x (1.40 to 1.60) as fast as the default, measu"),
        ({"default": trial(2, 6.0)}, "4 ms, 1.50x as fast as the default, measured now"),
        ({"default": trial(1, 4.0), "winner": trial(1, 4.0)}, "4 ms, the default itself, measured now"),
    ],
)
def test_the_last_line_says_how_fast_the_winner_is(shown, changes, text):
    assert shown(**changes).out.splitlines()[-1].strip().startswith(text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"place": "inline", "waited_s": 0.099}, "run inline"),
        ({"place": "inline", "waited_s": 0.1}, "run inline; 0.1 s waited for the compiler"),
        ({"verified": "NumPy", "ordered_by": ("a", "b")}, "results compared with NumPy; configs ordered by a and b"),
        ({"notes": ("one", "two")}, "one; two"),
    ],
)
def test_the_manner_of_a_tune_is_one_line(shown, changes, text):
    assert text in shown(**changes).out.splitlines()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"confidence": "hot", "noise": 0.01}, "warning: low confidence: hot\n"),
        ({"confidence": "hot", "noise": 0.0}, ""),  # one config is compared with none
        ({"confidence": "ok", "noise": 0.01}, ""),
        (
            {"unproven": "why", "confidence": "hot", "noise": 0.01},
            "warning: unproven: why; a larger budget, or --force",
        ),
        ({"unproven": "why", "noise": 0.01, "stopped": "settled"}, "warning: unproven: why; a larger budget"),
        ({"unproven": "why", "noise": 0.01, "stopped": "seconds"}, "warning: unproven: why; the same command goes on"),
        (
            {"unproven": Record.INTERPRETED},
            f"warning: unproven: {Record.INTERPRETED}; tune it on a GPU, without TRITON",
        ),
        ({"unproven": "why", "noise": 0.0}, "warning: unproven: why; the same command goes on with it\n"),
        (
            {"unproven": "why", "from_cache": True},
            "warning: unproven: why; a larger budget, or --force, searches again",
        ),
    ],
)
def test_what_a_result_is_not_sure_of_is_a_warning_with_the_next_step(shown, changes, text):
    told = shown(**changes)
    assert (told.code, bool(told.err)) == (0, bool(text))
    assert told.err.startswith(text)


def test_a_config_that_ran_alone_is_a_failure_with_the_reasons_of_the_others_as_the_next_step(shown):
    told = shown(unproven="the others failed", totals={"ok": 1, "runtime": 1})
    assert told.code == 1
    assert told.err == "warning: unproven: the others failed; -v says why the others failed\n"
    assert "\nalone   n=1" in told.out


def test_a_tune_that_ctrl_c_ended_shows_the_best_so_far(shown):
    told = shown(unproven="nothing was compared", stopped="interrupted")
    assert told.code == 130
    assert told.err == "interrupted: this is the best so far; the same command goes on where it stopped\n"
    assert "\nwinner  n=1" in told.out


RANKED = {"trials": (trial(1, 9.5, 9.5), trial(2, 10.25, 10.25)), "winner": trial(1, 9.5, 9.5)}


def test_a_narrow_terminal_has_what_all_configs_share_once_above_the_table(shown):
    lines = shown(**RANKED, columns=60).out.splitlines()
    assert lines[1] == f"in all: word={WORD}"
    header, *rows = lines[2:5]
    assert [row.split()[-1] for row in rows] == ["n=1", "n=2"]
    end = header.index("median ms") + len("median ms")
    assert [row[:end].endswith(ms) for row, ms in zip(rows, ("9.5", "10.25"), strict=True)] == [True, True]
    wide = shown(**RANKED).out
    assert "in all" not in wide
    assert wide.count(f"word={WORD}") == 3


def test_a_single_config_is_not_shortened_by_what_it_shares_with_itself(shown):
    assert "in all" not in shown(trials=(trial(1, 9.5),), columns=60).out


def test_trials_as_json_say_what_raced_and_what_has_no_time(shown):
    failed = Trial(Config(n=3), Status.RUNTIME, error="it fails")
    compiled = trial(2, 10.0, compile_s=0.5, resources=Resources(40, 0, 1024))
    raced, screened, other = json.loads(shown("--json", trials=(trial(1, 8.0, 9.0), compiled, failed)).out)["trials"]
    assert (raced["final"], raced["median_ms"], raced["spread"]) == (True, 9.0, 0.0)
    assert (screened["final"], screened["median_ms"]) == (False, 10.0)
    assert screened["spread"] > 0
    assert (screened["compile_s"], screened["resources"]["registers"]) == (0.5, 40)
    assert (other["status"], other["error"], other["median_ms"], other["spread"]) == ("runtime", "it fails", None, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dtype", "float17"), "dtype 'float17' is not known"),
        (("--device", "abacus"), "abacus"),
        (("--cache-dir", __file__), "test_answers.py"),
    ],
)
def test_a_value_that_is_none_is_refused_before_the_target_is_loaded(cli, tmp_path, words, said):
    target = tmp_path / "loud.py"
    target.write_text("raise ValueError('it was loaded')\n", encoding="utf-8")
    refused = cli("tune", f"{target}:work", "--space", "n=1", *words)
    assert refused.code != 0
    assert (refused.out, "it was loaded" in refused.err) == ("", False)
    assert said in refused.err


OPERATION = """
from triton_ops import operation

@operation(space={"n": [1, 2]}, arguments=lambda rows=4: {"rows": rows}, device="cpu")
def work(rows, n):
    return rows
"""


def test_why_answers_with_the_rung_the_config_and_what_did_not_answer(cli, tmp_path):
    (tmp_path / "why_work.py").write_text(OPERATION, encoding="utf-8")
    words = "why", f"{tmp_path / 'why_work.py'}:work", "--shape", "8", "--device", "cpu"
    answer = json.loads(cli(*words, "--json").out)
    assert (answer["kernel"].rpartition(":")[2], answer["problem"]) == ("work", "8")
    assert (answer["rung"], answer["config"], answer["record"]) == ("default", {"n": 1}, "")
    assert any(passed.startswith("record: ") for passed in answer["passed"])
    text = cli(*words).out
    assert "n=1" in text
    assert "not from record" in text
