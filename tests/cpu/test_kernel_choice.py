"""Which config a shipped kernel runs with: the caller's, a record's, or the default; and tunes that are asked for."""

import logging
import os

import pytest
import torch

from tests.near import drawn
from triton_ops.exceptions import SettingsError
from triton_ops.kernels import choice
from triton_ops.kernels.call import checked_config
from triton_ops.kernels.choice import config_for, forget, tuning
from triton_ops.kernels.softmax import operation, softmax
from triton_ops.kernels.softmax.space import default_config
from triton_ops.runner import session

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
    with tuning(search="random", trials=3, budget_s=20.0):
        right = torch.softmax(x, -1)
        torch.testing.assert_close(softmax(x), right)
        inside = chosen(x)
    forget()
    return before == default_config(100), inside == chosen(x), [known.recorded for known in choice._known.values()]


def test_a_tune_that_is_asked_for_makes_a_record_which_later_calls_find(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_and_recalled) == (True, True, [True])
    assert len(list(tmp_path.glob("*.record.json"))) == 1


def tuned_by_an_argument():
    softmax(drawn(3, 90), tune=True)
    return [known.recorded for known in choice._known.values()]


def test_an_argument_asks_for_a_tune_too(interpreted, tmp_path):
    assert interpreted(with_folder, str(tmp_path), tuned_by_an_argument) == [True]


def test_nothing_is_tuned_unless_asked_for(monkeypatch):
    monkeypatch.setattr(choice, "run_tune", lambda *args, **kwargs: pytest.fail("tuned"))
    monkeypatch.setattr(session, "Tuning", lambda *args, **kwargs: pytest.fail("tuned"))
    forget()
    assert chosen(drawn(4, 80)) == default_config(80)


def test_a_record_is_looked_up_once_for_a_problem(monkeypatch):
    asked = []
    real = choice.decided
    monkeypatch.setattr(choice, "decided", lambda *args, **kwargs: (asked.append(kwargs), real(*args, **kwargs))[1])
    forget()
    for x in (drawn(4, 80), drawn(4, 80), drawn(4, 80, dtype=torch.float16), drawn(4, 160)[:, ::2], drawn(8, 80)):
        chosen(x)
    assert len(asked) == 4


def test_a_folder_that_cannot_be_used_does_not_stop_a_kernel(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "file"))
    forget()
    with caplog.at_level(logging.INFO, "triton_ops"):
        assert chosen(drawn(4, 80)) == default_config(80)
    assert "softmax runs with (BLOCK_SIZE=128 ROWS=8 num_warps=2), default" in caplog.text


def test_an_own_config_is_taken_as_it_is():
    own = {"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 1}
    assert dict(chosen(drawn(4, 80), config=own)) == own
    assert dict(checked_config({"A": 1, "C": 3}, ("A",), ("B", "C"), "kernel")) == {"A": 1, "C": 3}


def test_options_that_tune_does_not_have_are_refused():
    with pytest.raises(SettingsError, match="tuning takes no option shape, trails"), tuning(trails=3, shape=(1, 2)):
        pytest.fail("entered")
