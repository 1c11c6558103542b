"""Which config a shipped kernel runs with: the caller's, a record's, or the default; and tunes that are asked for."""

import os
import subprocess
import sys

import pytest
import torch
import triton

import triton_ops_kernels as kernels
from tests.clocks import steady_times
from tests.garbage import ENDS_UNSEARCHED
from tests.near import drawn
from triton_ops import Choice, Flag, IntRange, PowerOfTwo, launches, matmul, on_miss, tune
from triton_ops.benchmark import GATED_MLP_CONFIGS
from triton_ops.dispatch import operations, tuning
from triton_ops.dispatch.decision import forget_decisions
from triton_ops.dispatch.operations import config_for
from triton_ops.exceptions import ConfigValueError, SettingsError, UnknownTunableError, UntunedError
from triton_ops.records.misses import flush_misses
from triton_ops.tuner import RequestedTune
from triton_ops_kernels import fused_gated_mlp, rows
from triton_ops_kernels.call import Own, OwnConfigs, one_of, whole_from
from triton_ops_kernels.gated_mlp import operation as gated_mlp
from triton_ops_kernels.rows import default_config
from triton_ops_kernels.softmax import operation, softmax

pytestmark = pytest.mark.triton


def with_folder(cache_dir, function, *args):
    """In the interpreter's process; its own environment names another folder."""
    os.environ["TRITON_OPS_CACHE_DIR"] = cache_dir
    forget_decisions()
    return function(*args)


def chosen(x, **more):
    values = {"x": x, "out": torch.empty_like(x), "rows": len(x), "COLUMNS": x.shape[-1]}
    return config_for(operation, values, rows.OWN.checked, **more)


def tuned_and_recalled():
    """The config before, inside and after `tuning`, and whether a later process would find it."""
    x = drawn(4, 100)
    before = chosen(x)
    with steady_times(), tuning(search="random", trials=2, budget_s=60.0):
        right = torch.softmax(x, -1)
        torch.testing.assert_close(softmax(x), right)
        inside = chosen(x)
    forget_decisions()
    return (
        before == default_config(100),
        inside == chosen(x),
        [not known.missed for known in operations._calls.shipped.values()],
    )


@pytest.mark.processes
def test_a_tune_that_is_asked_for_makes_a_record_which_later_calls_find(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_and_recalled) == (True, True, [True])
    assert len(list(tmp_path.glob("*.record.json"))) == 1


def tuned_by_an_argument():
    """The options of `tuning` around it keep the tune of the argument as short."""
    with steady_times(), tuning(trials=1, budget_s=60.0):
        chosen(drawn(3, 90), tune=True, config=None)
    return [not known.missed for known in operations._calls.shipped.values()]


def test_an_argument_asks_for_a_tune_too(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_by_an_argument) == [True]


def test_nothing_is_tuned_unless_asked_for(monkeypatch):
    monkeypatch.setattr(operations, "tune", lambda *args, **kwargs: pytest.fail("tuned"))
    monkeypatch.setattr(RequestedTune, "result", lambda *args, **kwargs: pytest.fail("tuned"))
    forget_decisions()
    assert chosen(drawn(4, 80)) == default_config(80)
    flush_misses()  # its warning is no other test's


def test_the_ladder_is_asked_once_for_a_problem(monkeypatch):
    asked, decided = [], operations.decided

    def counted(*args, **kwargs):
        asked.append(args)
        return decided(*args, **kwargs)

    monkeypatch.setattr(operations, "decided", counted)
    forget_decisions()
    for x in (drawn(4, 80), drawn(4, 80), drawn(4, 80, dtype=torch.float16), drawn(4, 160)[:, ::2], drawn(8, 80)):
        chosen(x)
    assert len(asked) == 4


def test_launches_say_which_config_ran_and_why():
    forget_decisions()
    chosen(drawn(4, 112))
    chosen(drawn(4, 112))
    (row,) = [row for row in launches() if row.kernel == "softmax" and "x112 " in row.problem]
    assert row.launches == 2
    assert row.rung == "default"


def test_a_miss_may_be_an_error():
    forget_decisions()
    with pytest.raises(UntunedError, match="no winner is known for softmax"), on_miss("error"):
        chosen(drawn(4, 82))


def test_a_folder_that_cannot_be_used_does_not_stop_a_kernel(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "file"))
    forget_decisions()
    assert chosen(drawn(4, 80)) == default_config(80)


def of_documented_space():
    """The winner of a tune in the documented space, which has fewer tunables than the operation's own."""
    x, weight = drawn(1, 4, 32), drawn(48, 32)
    space = {name: values[:1] for name, values in GATED_MLP_CONFIGS.items()}
    tune(gated_mlp, kwargs=gated_values(x, weight), space=space, isolate=False, budget_s=60.0)
    forget_decisions()
    fused_gated_mlp(x, weight, weight)
    (decision,) = [each for each in operations._calls.shipped.values() if each.kernel == "gated_mlp"]
    return decision.found.rung, dict(decision.found.config)


def gated_values(x, weight):
    problem = gated_mlp.problem((4, 48, 32), "float32")
    tensors = {"x": x[0], "gate_weight": weight, "up_weight": weight, "out": torch.empty(4, 48)}
    return {**dict(problem.arguments), **tensors}


def test_a_winner_of_the_documented_space_runs_too(interpreted, tmp_path):
    rung, config = interpreted(with_folder, str(tmp_path), of_documented_space)
    assert rung == "record"
    assert config == {name: values[0] for name, values in GATED_MLP_CONFIGS.items()}


def test_an_own_config_is_taken_as_it_is():
    own = {"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 1}
    assert dict(chosen(drawn(4, 80), config=own)) == own
    assert dict(OWN.checked({"BLOCK": 512, "COUNT": 3}, "kernel")) == {"BLOCK": 512, "COUNT": 3}


OWN = OwnConfigs({
    "BLOCK": PowerOfTwo(64, 128),
    "COUNT": Own(Choice([0, 8]), optional=True),
    "PARTS": Own(PowerOfTwo(1, 4), whole_from(1), optional=True),
    "SUMS": Own(Choice([1, 2]), one_of((1, 2)), optional=True),
    "STAGES": Own(IntRange(2, 5), optional=True),
    "FLAG": Own(Flag(), optional=True),
    "LOADS": Own(Choice(["host", "device"]), optional=True),
})  # fmt: skip


@pytest.mark.parametrize(
    "value", [{"BLOCK": 32}, {"COUNT": 0}, {"PARTS": 3}, {"SUMS": 2}, {"STAGES": 1}, {"FLAG": True}, {"LOADS": "host"}]
)
def test_values_beyond_those_that_are_tried_are_taken(value):
    config = {"BLOCK": 64, **value}
    assert dict(OWN.checked(config, "kernel")) == config


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"BLOCK": 48}, "kernel: BLOCK is 48; it must be a power of two, such as 64"),
        ({"BLOCK": 64.0}, "BLOCK is 64.0"),
        ({"COUNT": -1}, "COUNT is -1; it must be a whole number from 0"),
        ({"COUNT": True}, "COUNT is True"),
        ({"PARTS": 0}, "PARTS is 0; it must be a whole number from 1"),
        ({"SUMS": 3}, "SUMS is 3; it must be one of 1, 2"),
        ({"SUMS": True}, "SUMS is True"),
        ({"STAGES": 0}, "STAGES is 0; it must be a whole number from 1"),
        ({"FLAG": 1}, "FLAG is 1; it must be true or false"),
        ({"LOADS": "banana"}, "LOADS is 'banana'; it must be one of host, device"),
    ],
)
def test_values_that_a_kernel_does_not_take_are_refused(value, why):
    with pytest.raises(ConfigValueError, match=why):
        OWN.checked({"BLOCK": 64, **value}, "kernel")


@pytest.mark.parametrize("name", kernels.names())
def test_every_kernel_takes_its_default_and_no_unknown_tunable(name):
    operation = kernels.load(name)
    own = own_configs_of(name)
    default = operation.space_for(operation.problem(*next(iter(operation.problems.values())))).default_config
    assert own.checked(default, name) == default
    with pytest.raises(UnknownTunableError, match="has no tunable 'FANCY'"):
        own.checked({"BLOCK": 64, "FANCY": "banana"}, name)


def own_configs_of(name):
    """What the space of a kernel, or that of its folder, declares; kernels over rows share theirs."""
    folder = kernels.load(name).space.__module__
    declared = vars(sys.modules[folder])
    return declared.get("GRADIENT_OWN" if name.endswith("backward") else "OWN", rows.OWN)


def test_options_that_tune_does_not_have_are_refused():
    with pytest.raises(SettingsError, match="tuning takes no option shape, trails"), tuning(trails=3, shape=(1, 2)):
        pytest.fail("entered")


def products_by_triton_configs():
    """Whether `matmul` takes each of three configs as Triton has them, in an interpreted process."""
    a, b = torch.randn(130, 70, dtype=torch.float16), torch.randn(70, 260, dtype=torch.float16)
    listed = [
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 256, "BK": 32}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),
    ]
    given = [config for one in listed for config in (one, one.all_kwargs())]
    return [torch.allclose(matmul(a, b, config=config), a @ b, atol=0.1) for config in given]


def test_a_config_of_triton_is_an_own_config(interpreted):
    assert interpreted(products_by_triton_configs) == [True] * 6


UNTUNED = """
import sys, torch, triton_ops
a = torch.randn(16, 16, dtype=torch.float16)
triton_ops.matmul(a, a)
triton_ops.fused_rmsnorm_rope(torch.randn(1, 2, 32), torch.ones(32), torch.ones(2, 8), torch.zeros(2, 8))
tuners = ("triton_ops.tuner", "triton_ops.autotuner", "triton_ops.timing", "triton_ops.search")
print([name for name in sys.modules if name.startswith(tuners)])
"""


@pytest.mark.processes
def test_shipped_kernels_run_without_the_modules_that_tune():
    done = subprocess.run(
        [sys.executable, "-c", ENDS_UNSEARCHED + UNTUNED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
