"""What `TRITON_PRINT_AUTOTUNING=1` prints, in the forms of old and new versions."""

from __future__ import annotations

import html
import textwrap
from itertools import chain, combinations

import pytest

pytest.importorskip("triton")

from tests.cpu.torch.test_logs import PREFIXES
from triton_ops.dispatch.printed import Printed
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.space import Config
from triton_ops.values import KernelMetrics, Measurement, Status, Trial, TuningResult
from triton_ops_torch import PrintedTune, parse_printed

pytestmark = pytest.mark.triton

OLD = """Autotuning kernel vecadd_kernel with config BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None
something else
Autotuning kernel vecadd_kernel with config BLOCK_SIZE: 256, num_warps: 8, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None
Triton autotuning for function vecadd_kernel finished after 0.44s; best config selected: BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None;
"""  # noqa: E501 - as it was printed


def test_the_old_form_with_its_further_fields():
    (result,) = parse_printed(OLD)
    assert (result.kernel, result.seconds, result.key) == ("vecadd_kernel", 0.44, None)
    assert [config["BLOCK_SIZE"] for config in result.tried] == [128, 256]
    assert result.best["num_consumer_groups"] == 0
    assert result.best["maxnreg"] is None


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
    (result,) = parse_printed(printed)
    assert result.key == "(1024, 'torch.float32')"
    assert (result.seconds, result.best["BLOCK"], len(result.tried)) == (1.23, 128, 2)


@pytest.mark.parametrize("value", [(1, 2), [1, 2], (), {"a": 1, "b": 2}, "one, two"])
def test_a_comma_inside_of_a_value_ends_none(value):
    (result,) = parse_printed(f"Autotuning kernel add with config T: {value}, BLOCK: 3, num_warps: 4")
    assert result.tried == ({"T": value, "BLOCK": 3, "num_warps": 4},)


def test_what_is_no_text_is_refused():
    with pytest.raises(SettingsError, match="text is 3; it must be what was printed"):
        parse_printed(3)


def test_a_text_that_ends_before_the_winner_and_one_without_tunes():
    first = OLD.splitlines()[0]
    (result,) = parse_printed(first)
    assert result == PrintedTune(kernel="vecadd_kernel", tried=result.tried)
    assert len(result.tried) == 1
    assert parse_printed("nothing") == []


ONE = OLD.splitlines()[-1]
FOUR = [
    "Triton autotuning for function {},", "with key as ({}, 'torch.float16'),", "finished after 1.25s,",
    "best config selected: BLOCK: {}, num_warps: 4, maxnreg: None;",
]  # fmt: skip


def four(kernel="norm", extent=64, block=128):
    return [FOUR[0].format(kernel), FOUR[1].format(extent), FOUR[2], FOUR[3].format(block)]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_stands_before_a_line_does_no_harm(prefix):
    numbered = [prefix.replace("{}", str(number)) for number in range(4)]
    (result,) = parse_printed(f"{numbered[0]}{ONE}")
    assert (result.kernel, result.seconds, result.best["BLOCK_SIZE"]) == ("vecadd_kernel", 0.44, 128)
    (result,) = parse_printed("\r\n".join(map("".join, zip(numbered, four(), strict=True))))
    assert (result.kernel, result.key, result.seconds) == ("norm", "(64, 'torch.float16')", 1.25)
    assert (result.best, result.mixed) == ({"BLOCK": 128, "num_warps": 4, "maxnreg": None}, False)


def test_ranks_that_print_at_once_are_told_apart_by_their_prefix():
    both = zip(four(extent=1), four(extent=2, block=256), strict=True)
    first, second = parse_printed("\n".join(f"[rank{rank}]:{line}" for pair in both for rank, line in enumerate(pair)))
    assert (first.key[:2], first.best["BLOCK"], first.writer) == ("(1", 128, "rank0")
    assert (second.key[:2], second.best["BLOCK"], second.writer) == ("(2", 256, "rank1")


@pytest.mark.parametrize("kernels", [("norm", "norm"), ("norm", "rope")])
def test_of_mixed_tunes_no_key_and_no_winner_is_made_up(kernels, caplog):
    """Two processes print the four lines of a tune without prefix, in every order in which they can be mixed."""
    for places in combinations(range(8), 4):
        order = [0 if place in places else 1 for place in range(8)]
        parts = [iter(four(kernels[0], 1, 128)), iter(four(kernels[1], 2, 256))]
        caplog.clear()
        result = parse_printed("\n".join(next(parts[rank]) for rank in order))
        assert [tune.kernel for tune in result] == [kernels[order[0]], kernels[1 - order[0]]]
        assert {tune.mixed for tune in result} == {order not in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)}
        assert all(tune.key is None for tune in result if tune.mixed)
        if kernels[0] == kernels[1]:
            assert {tune.best["BLOCK"] for tune in result} == {128, 256}
        elif result[0].mixed:
            assert [tune.best for tune in result] == [None, None]
            assert "2 lines that look like Triton's print of a tune were not read, such as 'best" in caplog.text


def test_configs_that_were_tried_tell_whose_winner_it_is():
    begin = "Autotuning kernel {} with config BLOCK: {}, num_warps: 4, maxnreg: None"
    tried = [begin.format("norm", 128), begin.format("rope", 256)]
    mixed = chain.from_iterable(zip(four("norm", 1, 128), four("rope", 2, 256), strict=True))
    first, second = parse_printed("\n".join([*tried, *mixed]))
    assert (first.best["BLOCK"], second.best["BLOCK"], first.key, first.mixed) == (128, 256, None, True)


def test_other_wordings_are_read():
    end = "finished after 4.15s; best config selected: B: 512, num_warps: 8;"
    (result,) = parse_printed(f"Autotuner for function JITFunction(__main__:add) {end}")
    assert (result.kernel, result.best) == ("add", {"B": 512, "num_warps": 8})
    (result,) = parse_printed("Autotuning kernel add with config [1/5] B: 64, num_warps: 2 (median = 0.014 ms)")
    assert result.tried == ({"B": 64, "num_warps": 2},)
    (result,) = parse_printed(" ".join(four()))
    assert (result.key, result.best["BLOCK"]) == ("(64, 'torch.float16')", 128)
    (result,) = parse_printed(f"{ONE} [repeated 3x across cluster] (Ray deduplicates logs by default.)")
    assert result.best["maxnreg"] is None
    timed = f"{ONE[:-1]} with benchmark time [0.0213, 0.0210];  evaluated 36 configurations;"
    assert parse_printed(f"[2024-11-05 10:00:01] {timed}")[0].best == parse_printed(ONE)[0].best
    (result,) = parse_printed(ONE.replace("; best", "; key info: (64, 'fp16'), best"))
    assert (result.key, result.best["maxnreg"]) == ("(64, 'fp16')", None)
    (result,) = parse_printed(ONE.replace("; best", "; config key: (64, 'fp16'), benchmark key: (64,), best"))
    assert (result.key, result.best["maxnreg"]) == ("(64, 'fp16')", None)
    (result,) = parse_printed(ONE.replace("Triton autotuning", "triton_dist autotuning"))
    assert result.best == parse_printed(ONE)[0].best
    head, best = ONE.split(" best config")
    (result,) = parse_printed(f"{head}\nbest config{best}".replace(", num_warps: ", ", num_warps:"))
    assert (result.best, result.mixed) == (parse_printed(ONE)[0].best, False)


def wrapped(lines, width):
    """Lines as a terminal of a width leaves them."""
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))


def filled(lines, width):
    """Lines as an editor leaves them."""
    return "\n".join(textwrap.fill(line, width) for line in lines)


@pytest.mark.parametrize("wrap", [wrapped, filled])
@pytest.mark.parametrize("width", range(30, 250, 3))
def test_a_config_that_was_wrapped_is_counted_and_never_cut(wrap, width, caplog):
    """As read from a terminal: what is left of a line is no config, however much of one it looks like."""
    lines = [OLD.splitlines()[0], ONE]
    ((right,), best) = (parse_printed("\n".join(lines))[0].tried, parse_printed(ONE)[0].best)
    assert (right["num_warps"], best["BLOCK_SIZE"]) == (4, 128)
    try:
        tunes = parse_printed(wrap(lines, width))
    except TargetError:  # nothing is left
        tunes = []
    assert all(config == right for tune in tunes for config in tune.tried)
    assert all(tune.best in (None, best) for tune in tunes)
    assert not tunes or "not read" in caplog.text or (tunes[0].tried, tunes[0].best) == ((right,), best)


def test_lines_of_a_program_end_no_config():
    tried = "Autotuning kernel add with config B: 64, num_warps: 2"
    (result,) = parse_printed(f"{tried}\nstep: 3, loss: 0.5\n{tried}\nnothing\nnum_warps: 2")
    assert len(result.tried) == 2


def test_a_page_of_entities_is_read():
    (result,) = parse_printed("\n".join(map(html.escape, four())))
    assert (result.key, result.best["BLOCK"]) == ("(64, 'torch.float16')", 128)


@pytest.mark.parametrize(
    "line",
    [
        "Triton autotuning for function add finished after 1.00s; best config selected: BLOCK: 128, num_wa",
        "Triton autotuning benchmark results for function add:",
        "Autotuning kernel add with config BLOCK: 128,",
        "Autotuning kernel add with config BLOCK: 128, num_warps: 1, num_",
        "Autotuning kernel add with config",
        "Autotuning kernel add with config <triton.Config object at 0x7f0012>",
        "with key as (1024, 1024,",
        "best config selected: BLOCK: 128, num_warps: 4;",
        "Autotune config: BLOCK: 128, num_warps: 4, num_stages: 3",
    ],
)
def test_lines_of_triton_that_are_not_read_are_counted(line, caplog):
    with pytest.raises(TargetError, match="1 line that look like Triton's print"):
        parse_printed(f"something\n{line}\n")
    assert len(parse_printed(f"{line}\n{ONE}")) == 1
    assert "1 line that look like Triton's print of a tune were not read" in caplog.text
