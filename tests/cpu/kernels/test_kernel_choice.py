"""Which config a shipped kernel runs with: the caller's, a record's, or the default; and tunes that are asked for."""

import os
import subprocess
import sys

import pytest
import torch
import triton

from tests.near import drawn
from triton_ops import launches, matmul, on_miss, tune
from triton_ops.autotuner import GATED_MLP_CONFIGS
from triton_ops.dispatch import operations
from triton_ops.exceptions import SettingsError, UntunedError
from triton_ops.kernels import choice, fused_gated_mlp, tuning
from triton_ops.kernels.call import checked_config
from triton_ops.kernels.choice import config_for, forget
from triton_ops.kernels.gated_mlp import operation as gated_mlp
from triton_ops.kernels.softmax import operation, softmax
from triton_ops.kernels.softmax.space import default_config
from triton_ops.records.misses import flush_misses
from triton_ops.tuner import session

pytestmark = pytest.mark.triton

NAMES = (("BLOCK_SIZE", "ROWS", "num_warps"), ())


def with_folder(cache_dir, function, *args):
    """In the interpreter's process; its own environment names another folder."""
    os.environ["TRITON_OPS_CACHE_DIR"] = cache_dir
    forget()
    return function(*args)


def chosen(x, **more):
    values = {"x": x, "out": torch.empty_like(x), "rows": len(x), "COLUMNS": x.shape[-1]}
    return config_for(operation, values, lambda: default_config(x.shape[-1]), tunables=NAMES, **more)


def tuned_and_recalled():
    """The config before, inside and after `tuning`, and whether a later process would find it."""
    x = drawn(4, 100)
    before = chosen(x)
    with tuning(search="random", trials=2, budget_s=1.0):
        right = torch.softmax(x, -1)
        torch.testing.assert_close(softmax(x), right)
        inside = chosen(x)
    forget()
    return before == default_config(100), inside == chosen(x), [not known.missed for known in choice._choices.decisions]


def test_a_tune_that_is_asked_for_makes_a_record_which_later_calls_find(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_and_recalled) == (True, True, [True])
    assert len(list(tmp_path.glob("*.record.json"))) == 1


def tuned_by_an_argument():
    """The options of `tuning` around it keep the tune of the argument as short."""
    with tuning(trials=1, budget_s=2.0):
        chosen(drawn(3, 90), tune=True, config=None)
    return [not known.missed for known in choice._choices.decisions]


def test_an_argument_asks_for_a_tune_too(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_by_an_argument) == [True]


def test_nothing_is_tuned_unless_asked_for(monkeypatch):
    monkeypatch.setattr(operations, "tune", lambda *args, **kwargs: pytest.fail("tuned"))
    monkeypatch.setattr(session, "Tuning", lambda *args, **kwargs: pytest.fail("tuned"))
    forget()
    assert chosen(drawn(4, 80)) == default_config(80)
    flush_misses()  # its warning is no other test's


def test_the_ladder_is_asked_once_for_a_problem(monkeypatch):
    asked = []

    def counted(*args, **kwargs):
        asked.append(args)
        return operations.decided(*args, **kwargs)

    monkeypatch.setattr(choice, "decided", counted)
    forget()
    for x in (drawn(4, 80), drawn(4, 80), drawn(4, 80, dtype=torch.float16), drawn(4, 160)[:, ::2], drawn(8, 80)):
        chosen(x)
    assert len(asked) == 4


def test_launches_say_which_config_ran_and_why():
    forget()
    chosen(drawn(4, 81))
    chosen(drawn(4, 81))
    (row,) = [row for row in launches() if row.kernel == "softmax" and "81" in row.problem]
    assert row.launches == 2
    assert row.rung == "default"


def test_a_miss_may_be_an_error():
    forget()
    with pytest.raises(UntunedError, match="no winner is known for softmax"), on_miss("error"):
        chosen(drawn(4, 82))


def test_a_folder_that_cannot_be_used_does_not_stop_a_kernel(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "file"))
    forget()
    assert chosen(drawn(4, 80)) == default_config(80)


def of_documented_space():
    """The winner of a tune in the documented space, which has fewer tunables than the operation's own."""
    x, weight = drawn(1, 4, 32), drawn(48, 32)
    space = {name: values[:1] for name, values in GATED_MLP_CONFIGS.items()}
    tune(gated_mlp, kwargs=gated_values(x, weight), space=space, isolate=False, budget_s=2.0)
    forget()
    fused_gated_mlp(x, weight, weight)
    (decision,) = [each for each in choice._choices.decisions if each.kernel == "gated_mlp"]
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
    assert dict(checked_config({"A": 1, "C": 3}, ("A",), ("B", "C"), "kernel")) == {"A": 1, "C": 3}


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


def test_shipped_kernels_run_without_the_modules_that_tune():
    done = subprocess.run(
        [sys.executable, "-c", UNTUNED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
