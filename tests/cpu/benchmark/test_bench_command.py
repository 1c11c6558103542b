"""`triton-ops bench`: what it compares, what it prints, and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from triton_ops.benchmark.command_bench import label
from triton_ops.device import probe
from triton_ops.exceptions import SpaceError
from triton_ops.space import Config
from triton_ops.typed.problem import parse_config

TARGETS = """
import time

def sleepy(*, delay_ms, word="x"):
    time.sleep(delay_ms * 1e-3)
    return "done"

def once(x, y):
    return x * y

def often(x, y):
    for _ in range(5):
        x * y
    return x * y

def zeros(x, y):
    return x * 0

def times(x, y):
    return y * x

def waits(x, *, ms):
    time.sleep(ms * 1e-3)

def fails(x, y):
    raise ValueError("no")
"""
OPERATION = """
import time
from triton_ops import ConfigSpace, Choice, TensorSpec, operation

@operation(
    space=ConfigSpace({"ms": Choice([2, 1, 4]), "word": Choice(["a", "b"])}),
    arguments=lambda n=8, *, dtype: {"x": TensorSpec((n,), dtype), "n": n},
    dtypes=("float32", "float64"),
    device="cpu",
    name="waiting",
)
def waiting(x, n, *, ms, word):
    assert x.shape == (n,)
    time.sleep(ms * 1e-3)

def library(x):
    time.sleep(1e-4)

def other(x, z):
    pass
"""


@pytest.fixture
def targets(tmp_path):
    (tmp_path / "targets.py").write_text(TARGETS)
    (tmp_path / "operations.py").write_text(OPERATION)
    return lambda name: (
        f"{tmp_path / ('operations' if name in ('waiting', 'library', 'other') else 'targets')}.py:{name}"
    )


def blurred(text, tmp_path):
    """`text` without what differs from run to run, and with single gaps: columns are as wide as the figures in them."""
    text = text.replace(probe("cpu").name, "CPU").replace(f"{tmp_path}/", "")
    text = re.sub(r"(?<=[ (])\d+\.?\d*(e-\d+)?(?=%?  |%  | %| to |\)| rounds)", "N", text)
    return re.sub(r" {2,}", "  ", text)


def typed(value):
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value[:1]]
    return type(value).__name__


def asked(cli, *words):
    """A comparison as JSON."""
    ran = cli("bench", *words, "--json")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_bench_says_that_other_programs_used_the_cpus(cli, targets, monkeypatch):
    words = ("bench", targets("sleepy"), "--config", "delay_ms=1", "--config-b", "delay_ms=2", "--seconds", "0.01")
    for more in ((), ("--json",)):
        stats = iter([(10.0, 100.0, 4.0), (30.0, 140.0, 9.0)])
        monkeypatch.setattr("triton_ops.device.probing._cpu_seconds", lambda stats=stats: next(stats))
        ran = cli(*words, *more)
        note = "other programs used 38% of the CPUs meanwhile"
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["notes"] == [note] if more else ran.out.splitlines()[-1] == f"Note: {note}"


def test_help(cli, golden):
    ran = cli("bench", "--help", columns=80)
    assert (ran.code, ran.err) == (0, "")
    golden("help-bench.txt", ran.out)


def test_two_configs_of_a_function(cli, golden, targets, tmp_path):
    given = "--config", "delay_ms=1,word=x", "--config-b", "delay_ms=3,word=y", "--device", "cpu"
    ran = cli("bench", targets("sleepy"), *given)
    assert (ran.code, ran.err) == (0, "")
    golden("bench.txt", blurred(ran.out, tmp_path))
    assert ran.out.splitlines()[-1].startswith("a is ")


def test_json(cli, golden, targets):
    given = "--config", '{"delay_ms": 1, "word": "a, b"}', "--config-b", "delay_ms=3", "--device", "cpu"
    result = asked(cli, targets("sleepy"), *given)
    golden("bench-schema.json", json.dumps(typed(result), indent=2) + "\n")
    assert (result["verdict"], result["mode"]) == ("faster", "host")
    assert (result["a"]["label"], result["a"]["config"]) == ("1/a, b", {"delay_ms": 1, "word": "a, b"})
    assert 1.0 < result["a"]["p20_ms"] <= result["a"]["median_ms"] <= result["a"]["p80_ms"]
    assert result["interval"][0] <= result["percent"] <= result["interval"][1]


def test_a_slower_side_is_no_failure(cli, targets):
    ran = cli("bench", targets("often"), targets("once"), "--shape", "64,64", "--device", "cpu")
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^a  -  .*targets\.py:often, no config$", ran.out, re.MULTILINE)
    assert " slower than b (" in ran.out


@pytest.mark.usefixtures("steady_clock")
def test_a_wrong_result_is_a_verdict_and_an_exit_code(cli, targets, tmp_path):
    words = ("bench", targets("once"), targets("zeros"), "--shape", "64,64", "--device", "cpu")
    ran = cli(*words)
    assert (ran.code, ran.err) == (5, "")
    assert re.search(r"^b  -  +-  +-  +-  +-  .*targets\.py:zeros, no config$", ran.out, re.MULTILINE)
    assert "\na and b differ, and without a reference nothing says which is wrong; b beside a: 100.00% of" in ran.out
    told = cli(*words, "--reference", targets("often"))
    assert (told.code, told.err) == (5, "")
    assert "\nb gives a wrong result: 100.00% of the elements are off" in told.out
    assert told.out.endswith("; compared with the reference in float64\n")
    told = cli(*words, "--json")
    result = json.loads(told.out)
    assert (told.code, result["verdict"], list(result["wrong"])) == (5, "wrong", ["a", "b"])
    assert (result["percent"], result["interval"], result["a"]["median_ms"], result["guard"]) == (
        None, [None, None], None, None,
    )  # fmt: skip
    assert cli(*words, "--reference", targets("zeros"), "--json").code == 5
    right = json.loads(cli(*words[:2], targets("times"), *words[3:], "--reference", targets("often"), "--json").out)
    assert (right["wrong"], right["verified"]) == ({}, "the reference in float64")


@pytest.mark.parametrize(("name", "value"), [("nothing", "None"), ("three", "3"), ("words", "'once'")])
def test_a_reference_that_cannot_be_called_is_refused(cli, targets, tmp_path, name, value):
    with (tmp_path / "targets.py").open("a") as file:
        file.write(f"\n{name} = {value}\n")
    tuned = ("tune", targets("once"), "--space", "b=1,2", "--check")
    for words in ("bench", targets("once"), targets("zeros"), "--reference"), tuned:
        ran = cli(*words, targets(name), "--shape", "64,64", "--device", "cpu")
        assert (ran.code, ran.out) == (2, "")
        assert f"which is {value} and cannot be called (hint: name a function" in ran.err.replace("\n", " ")


def test_without_a_check_it_is_said_in_the_output(cli, targets):
    words = ("bench", targets("once"), targets("zeros"), "--shape", "64,64", "--device", "cpu", "--no-check")
    ran = cli(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "Note: results were not compared: no check was asked for"
    assert json.loads(cli(*words, "--json").out)["verified"] == "nothing: no check was asked for"
    refused = cli(*words, "--reference", targets("once"))
    assert (refused.code, "results are not to be checked" in refused.err) == (2, True)


def test_lines_fit_into_the_window(cli, targets):
    ran = cli(
        "bench", targets("sleepy"), "--config", "delay_ms=1", "--config-b", "delay_ms=3", "--device", "cpu", columns=100
    )
    assert all(len(line) <= 100 or len(line.split()) < 10 for line in ran.out.splitlines())


def test_the_recorded_winner_stands_against_the_default(cli, targets):
    what = targets("waits")
    refused = cli("bench", what, "--shape", "8", "--config", "ms=3", "--device", "cpu")
    assert refused.code == 2
    assert "has no default config (hint: give --config-b)" in refused.err
    assert cli("tune", what, "--shape", "8", "--space", "ms=3,1,9", "--device", "cpu").code == 0
    result = asked(cli, what, "--shape", "8", "--device", "cpu")
    sides = [(result[side]["origin"], result[side]["config"]) for side in "ab"]
    assert sides == [("recorded winner", {"ms": 1}), ("default config", {"ms": 3})]
    assert result["verdict"] == "faster"
    given = asked(cli, what, "--shape", "8", "--device", "cpu", "--config", "ms=9")
    assert (given["a"]["origin"], given["b"]["origin"]) == ("as given", "default config")
    assert (given["a"]["config"], given["verdict"]) == ({"ms": 9}, "slower")


def test_a_winner_of_another_problem_is_none(cli, targets):
    what = targets("waits")
    assert cli("tune", what, "--shape", "8", "--space", "ms=3,1", "--device", "cpu").code == 0
    ran = cli("bench", what, "--shape", "9", "--device", "cpu")
    assert ran.code == 2


def test_an_operation(cli, targets):
    what = targets("waiting")
    refused = cli("bench", what)
    assert refused.code == 4
    assert "no winner of waiting 8 float32 is known to compare with the default config" in refused.err
    assert "tune it first, or give --config" in refused.err
    partly = asked(cli, what, "--config", "ms=1")
    assert partly["a"]["origin"] == "as given, the rest from the default"
    assert [partly[side]["config"] for side in "ab"] == [{"ms": 1, "word": "a"}, {"ms": 2, "word": "a"}]
    assert (partly["problem"], partly["verdict"]) == ("8 float32", "faster")
    assert cli("tune", what, "--shape", "16", "--dtype", "float64").code == 0
    result = asked(cli, what, "--shape", "16", "--dtype", "float64")
    assert (result["a"]["origin"], result["a"]["config"]["ms"], result["problem"]) == (
        "recorded winner",
        1,
        "16 float64",
    )
    near = asked(cli, what, "--shape", "17", "--dtype", "float64")
    assert (near["a"]["origin"], near["a"]["config"]["ms"], near["problem"]) == ("borrowed winner", 1, "17 float64")
    warm = cli("bench", what, "--shape", "16", "--dtype", "float64", "--cache-dir", "elsewhere")
    assert warm.code == 4
    strange = cli("bench", what, "--config", "size=1")
    assert strange.code == 2
    assert "takes no keyword 'size'" in strange.err


def test_a_function_beside_an_operation_takes_its_arguments(cli, targets):
    result = asked(cli, targets("waiting"), targets("library"), "--shape", "32")
    assert (result["a"]["origin"], result["b"]["origin"], result["verdict"]) == (
        "default config",
        "no config",
        "slower",
    )
    ran = cli("bench", targets("other"), targets("waiting"))
    assert ran.code == 2
    assert "operations:other needs z, which is no argument of waiting: x, n" in ran.err
    ran = cli("bench", targets("waiting"), "torch:mm")
    assert (ran.code, "does not tell its parameters" in ran.err) == (2, True)


def test_the_same_twice_is_said_so(cli, targets):
    given = "--config", "delay_ms=1", "--config-b", "delay_ms=1", "--device", "cpu", "--seconds", "0.01"
    ran = cli("bench", targets("sleepy"), *given)
    assert ran.code == 0
    assert re.fullmatch(r"a and b are the same: .*targets\.py:sleepy with \(delay_ms=1\)\n", ran.err)


def test_what_a_target_prints_is_no_data(cli, tmp_path):
    (tmp_path / "loud.py").write_text("print('import')\ndef loud():\n    print('call')\n")
    what = f"{tmp_path / 'loud.py'}:loud"
    ran = cli("bench", what, what, "--device", "cpu", "--seconds", "0.01", "--json")
    assert json.loads(ran.out)["a"]["target"] == what


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["once", "--shape", "4,4", "--seconds", "0"], 2, "seconds is 0.0"),
        (["once", "--shape", "4,4", "--config", "x"], 2, "--config 'x' is not NAME=value,NAME=value"),
        (["once", "--shape", "4,4", "--config-b", "x="], 2, "--config-b 'x=' is not NAME=value,NAME=value"),
        (["once", "--shape", "4,4", "--device", "tpu"], 3, "device 'tpu' is not known"),
        (["once", "once", "--shape", "4"], 2, "needs 2 arguments (x, y); --shape gives 1"),
        (["once", "once", "--shape", "4,4", "--dtype", "int3"], 2, "dtype 'int3' is not known"),
        (["once", "fails", "--shape", "4,4", "--device", "cpu"], 2, "b raised ValueError: no"),
        (["once", "nothing", "--shape", "4,4"], 2, "has no 'nothing'"),
    ],
)
def test_bad_input_is_one_line_and_a_code(cli, targets, words, code, said):
    ran = cli("bench", *(targets(word) if word in ("once", "fails", "nothing") else word for word in words))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_configs_are_read_as_they_are_written():
    assert parse_config([], "--config") is None
    assert parse_config(["BM=64,layout=nt", "flag=true,scale=0.5"], "--config") == {
        "BM": 64, "layout": "nt", "flag": True, "scale": 0.5,
    }  # fmt: skip
    assert parse_config(['{"a": [1, 2]}'], "--config") == {"a": (1, 2)}
    for wrong in ("", "a", "a=1,b", "a=1,a=2", "{", '{"a"}', "x.json", "a=1,,b=2"):
        with pytest.raises(SpaceError, match="is not NAME=value"):
            parse_config([wrong], "--config")


def test_labels_are_the_values():
    assert label(Config(BLOCK=128, num_warps=4)) == "128/4"
    assert label(Config()) == "-"


@pytest.mark.parametrize("words", [["softmax"], ["--shape", "4x4"], ["--dtype", "bf16"], ["--config", "BM=16"]])
def test_all_kernels_take_no_option_of_a_single_one(cli, words):
    ran = cli("bench", "kernels", *words)
    assert ran.code == 2
    assert "cannot be given with `bench kernels`" in ran.err
