"""What `TRITON_PRINT_AUTOTUNING=1` prints, in the forms of old and new versions."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from triton_ops.dispatch import PrintedTune, parse_printed
from triton_ops.dispatch.triton_autotuner import Printed
from triton_ops.exceptions import SettingsError
from triton_ops.space import Config
from triton_ops.values import KernelMetrics, Measurement, Status, Trial, TuningResult

pytestmark = pytest.mark.triton

OLD = """Autotuning kernel vecadd_kernel with config BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None
something else
Autotuning kernel vecadd_kernel with config BLOCK_SIZE: 256, num_warps: 8, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None
Triton autotuning for function vecadd_kernel finished after 0.44s; best config selected: BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None;
"""  # noqa: E501 - as it was printed


def test_the_old_form_with_its_further_fields():
    (found,) = parse_printed(OLD)
    assert (found.kernel, found.seconds, found.key) == ("vecadd_kernel", 0.44, None)
    assert [config["BLOCK_SIZE"] for config in found.tried] == [128, 256]
    assert found.best["num_consumer_groups"] == 0
    assert found.best["maxnreg"] is None


def test_what_is_printed_here_is_the_new_form(capsys):
    listener = Printed("add", (1024, "torch.float32"))
    small = Config(BLOCK=128, num_warps=4, num_stages=3)
    listener.tried(Trial(small, Status.OK, Measurement((1.0,), "host")), None)
    listener.tried(Trial(Config(small, BLOCK=512), Status.RESOURCES, error="too large"), None)
    listener.ended(TuningResult(dict(small), KernelMetrics(1.0), elapsed_s=1.234))
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if "BLOCK: 128" in line)  # Triton 3.9 adds a field at the end
    start = "Autotuning kernel add with config BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    assert line.startswith(start)
    assert "Autotuning failed with too large\n" in printed
    (found,) = parse_printed(printed)
    assert found.key == "(1024, 'torch.float32')"
    assert (found.seconds, found.best["BLOCK"], len(found.tried)) == (1.23, 128, 2)


@pytest.mark.parametrize("value", [(1, 2), [1, 2], (), {"a": 1, "b": 2}, "one, two"])
def test_a_comma_inside_of_a_value_ends_none(value):
    (found,) = parse_printed(f"Autotuning kernel add with config T: {value}, BLOCK: 3, num_warps: 4")
    assert found.tried == ({"T": value, "BLOCK": 3, "num_warps": 4},)


def test_what_is_no_text_is_refused():
    with pytest.raises(SettingsError, match="text is 3; it must be what was printed"):
        parse_printed(3)


def test_a_text_that_ends_before_the_winner_and_one_without_tunes():
    first = OLD.splitlines()[0]
    (found,) = parse_printed(first)
    assert found == PrintedTune(kernel="vecadd_kernel", tried=found.tried)
    assert len(found.tried) == 1
    assert parse_printed("nothing") == []
