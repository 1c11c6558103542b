"""Verification: right passes, wrong does not, and what was not written cannot hide; the rule has its own tests."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch

from triton_ops import FunctionKernel, KernelTypeError
from triton_ops.backend import Arguments, ArgumentSet, Protection, fill_with_poison
from triton_ops.evaluation import Subject
from triton_ops.evaluation.cases import Case
from triton_ops.evaluation.expected import Standard
from triton_ops.evaluation.judges import Precision
from triton_ops.evaluation.questions import StationStep
from triton_ops.evaluation.verify import Verifier
from triton_ops.space import Config
from triton_ops.values import Tolerance


def verifier(function, outputs=(), reference=None, more=None, **tensors):
    kernel = FunctionKernel(function, outputs=tuple(outputs))
    subject = Subject(ArgumentSet(Arguments(keyword=tensors), kernel.outputs))
    others = [Case(subject.first, 1)]
    return Verifier(kernel=kernel, subject=subject, others=others, reference=reference, **(more or {}))


def compiled(found, **config):
    return found.kernel.compile(Config(**config), found.subject.arguments)


def checked(found, **config):
    """How a config is wrong, in words; None if it is right."""
    wrong = found.wrong(compiled(found, **config))
    return None if wrong is None else wrong.text


def after_timing(found, **config):
    """How what timed launches of a config left behind is wrong, in words; None if it is right."""
    wrong = found.wrong_after_timing(compiled(found, **config))
    return None if wrong is None else wrong.text


def test_an_output_that_is_not_written_is_wrong():
    def half(x, out, *, share):
        out[: int(8 * share)] = x[: int(8 * share)]

    for dtype in (torch.float32, torch.int64, torch.int8, torch.bool, torch.float8_e4m3fn):
        x = torch.ones(8).to(dtype)
        result = verifier(half, ["out"], lambda x, out: x, x=x, out=torch.ones(8).to(dtype))
        assert checked(result, share=1.0) is None, dtype
        assert "50.00%" in checked(result, share=0.5), dtype


def test_an_array_that_is_not_written_is_wrong_too():
    np = pytest.importorskip("numpy")

    def half(x, out, *, share):
        out[: int(8 * share)] = x[: int(8 * share)]

    for dtype in ("f8", "f4", "i4", "u1", "?"):
        x = np.ones(8, dtype=dtype)
        for reference in (lambda x, out: x, None):
            result = verifier(half, ["out"], reference, x=x, out=x.copy())
            assert checked(result, share=1.0) is None, dtype
            assert "50.00%" in checked(result, share=0.5), dtype


def test_a_value_that_equals_one_poison_does_not_equal_the_other():
    for dtype in (torch.int32, torch.bool, torch.float32):
        first, second = torch.zeros(1).to(dtype), torch.zeros(1).to(dtype)
        fill_with_poison(first, 0)
        fill_with_poison(second, 1)
        assert not torch.equal(first, second)


def test_without_a_reference_the_first_config_is_right():
    result = verifier(lambda x, *, add: x + add, x=torch.ones(4))
    assert checked(result, add=1) is None
    assert result.against == "config (add=1), since there is no reference"
    assert "100.00%" in checked(result, add=2)
    assert checked(result, add=1) is None
    result._first = replace(result._first, narrow_sums=True)
    assert result.against == "config (add=1), since there is no reference, allowing for its sums in 16 bits"


def difference_of(x, w, *, narrow):
    """Neighbours weighted by numbers that nearly cancel out; the products are rounded to 16 bits if `narrow`."""
    parts = [part * each if narrow else part.float() * each.float() for part, each in ((x[1:], w), (x[:-1], -w))]
    return (parts[0].float() + parts[1].float()).half()


def test_what_code_rounds_to_16_bits_on_its_way_is_allowed_for():
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(4097, generator=generator).cumsum(0) / 20).half()
    inputs = {"x": x, "w": torch.rand(4096, generator=generator).half()}
    more = {"standard": Standard(precision=Precision(inputs=("float16",) * 2))}
    for steps in (False, True):
        result = verifier(difference_of, (), partial(difference_of, narrow=False), more, **inputs)
        for narrow, right in ((False, True), (True, steps)):
            executable = replace(compiled(result, narrow=narrow), narrow_steps=steps)
            assert (result.wrong(executable) is None) == right
        assert result.against == "the reference in float64" + ", allowing for its steps in 16 bits" * steps


def test_what_another_config_has_left_behind_last_need_not_have_the_same_bits():
    def nearly(x, out, *, ulps):
        out.copy_(x + x * ulps * 2.0**-24)

    x = torch.rand(64) + 1
    strict = {"standard": Standard(tolerance=Tolerance(bitwise=True))}
    result = verifier(nearly, ["out"], lambda x, out: x, strict, x=x, out=torch.empty(64))
    one, other = compiled(result, ulps=0), compiled(result, ulps=2)
    assert result.wrong(one) is None
    other.launch(result.subject.arguments)
    assert result.wrong_after_timing(one) is None
    other.launch(result.subject.arguments)
    assert "other bits" in result.wrong_after_timing(one, last=True).text


def test_a_config_that_gives_other_bits_when_it_is_launched_once_more_is_wrong():
    counter = itertools.count()

    def drifts(x, out, *, n):
        out.copy_(x + next(counter) * 2.0**-23)

    strict = {"standard": Standard(tolerance=Tolerance(bitwise=True))}
    result = verifier(drifts, ["out"], lambda x, out: x, strict, x=torch.rand(64) + 1, out=torch.empty(64))
    drifting = compiled(result, n=1)
    assert result.wrong(drifting) is None
    assert result.wrong_after_timing(drifting, again=False) is None
    assert "other bits" in result.wrong_after_timing(drifting).text


@pytest.mark.parametrize("made", [lambda x: x.numpy(), lambda x: float(x.sum()), lambda x: {"sum": int(x.sum())}])
def test_a_later_launch_that_is_wrong_is_found_in_results_that_are_no_tensors(made):
    turns = itertools.count()
    result = verifier(lambda x, *, n: made(x + (next(turns) >= 3)), (), lambda x: made(x), x=torch.ones(4))
    config = compiled(result, n=1)
    assert result.wrong(config) is None
    assert result.wrong(config) is not None


def test_results_that_differ_from_run_to_run_are_not_compared_and_this_is_said():
    counter = itertools.count()
    result = verifier(lambda x, *, n: x + next(counter), x=torch.ones(4))
    assert checked(result, n=1) is None
    assert checked(result, n=2) is None
    assert "differ from run to run" in result.against


def test_an_undeclared_in_place_kernel_is_noticed_compared_and_restored():
    x = torch.arange(4.0)
    result = verifier(lambda x, *, add: (x.add_(add), None)[1], x=x)
    before = x.clone()
    assert checked(result, add=1) is None
    assert result.subject.restores
    assert torch.equal(x, before)
    assert "in x, 100.00%" in checked(result, add=2)
    assert torch.equal(x, before)
    assert checked(result, add=1) is None


def test_an_undeclared_output_is_compared_with_the_reference():
    def doubled(x, y, *, times):
        y.copy_(x * times)

    result = verifier(doubled, (), lambda x, y: x * 2, x=torch.ones(4), y=torch.zeros(4))
    assert checked(result, times=2) is None
    assert "100.00%" in checked(result, times=3)


def test_an_input_that_only_one_config_changes_makes_it_wrong():
    def sloppy(x, out, *, neat):
        out.copy_(x)
        if not neat:
            x[0] = 9

    x = torch.zeros(4)
    result = verifier(sloppy, ["out"], lambda x, out: x, x=x, out=torch.zeros(4))
    assert checked(result, neat=True) is None
    assert "changes x" in checked(result, neat=False)
    assert float(x[0]) == 0, "and it is restored"


def test_a_write_beside_an_output_is_wrong():
    def far(x, out, *, past):
        out.copy_(x)
        out.as_strided((1,), (1,), out.storage_offset() + past).fill_(3)

    result = verifier(
        far, ["out"], lambda x, out: x.index_fill(0, torch.tensor(0), 3), x=torch.zeros(4), out=torch.zeros(4)
    )
    assert checked(result, past=0) is None
    assert checked(result, past=4) == "writes 4 bytes outside out"
    assert "outside out" in checked(result, past=-1)
    assert checked(result, past=0) is None, "the pattern is restored"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_a_write_into_the_gaps_of_an_output_is_wrong(dtype):
    def rows(x, out, *, past):
        out.copy_(x)
        if past is not None:
            out.as_strided((1,), (1,), out.storage_offset() + past).fill_(3)

    room = torch.zeros(5, 16, dtype=dtype)
    result = verifier(rows, ["out"], lambda x, out: x, x=torch.zeros(4, 6, dtype=dtype), out=room[1:, 2:8])
    assert checked(result, past=None) is None
    for past in (6, 15, -1, -18):
        assert re.fullmatch(r"writes \d bytes outside out", checked(result, past=past))
    assert checked(result, past=None) is None, "the pattern is restored"
    assert not room.any(), "the caller's memory is its own"


def test_gaps_that_are_too_wide_are_left_alone_and_broadcast_rows_are_no_gap():
    def of_gaps(out):
        return Protection.with_canaries(Arguments(keyword={"out": out}), ("out",))[1].zones[2:]

    assert not of_gaps(torch.zeros(1000)[:3])
    ((_, _, outside),) = of_gaps(torch.zeros(4, 16)[:1].expand(3, 16))
    assert int(outside.sum()) == 48


def test_an_output_that_is_read_is_explained():
    def adds(x, out, *, n):
        out.add_(x)

    result = verifier(adds, ["out"], lambda x, out: x + out, x=torch.ones(4), out=torch.ones(4))
    assert checked(result, n=1).endswith(
        "; what the first config leaves in out depends on what was there: a part is read, or not written"
    )
    assert "depends" not in checked(result, n=2), "said once"


def test_where_no_memory_is_watched_torch_is_not_imported(monkeypatch):
    """Its import would be most of the time of a tune of a plain function, and it may not be installed."""
    monkeypatch.setitem(sys.modules, "torch", None)
    _, canaries = Protection.with_canaries(Arguments(keyword={"n": 3}), ("out",))
    assert canaries.stray_writes() is None


def test_canaries_keep_strides_offsets_and_sharing():
    room = torch.arange(64.0)
    view = room[3:35].view(8, 4).t()
    given = ArgumentSet(Arguments(keyword={"out": view, "x": room.clone()}), ("out",))
    out = given.arguments.keyword["out"]
    assert torch.equal(out, view)
    assert (out.stride(), out.data_ptr() % 16) == (view.stride(), view.data_ptr() % 16)
    shared = ArgumentSet(Arguments(keyword={"out": view, "x": room}), ("out",))
    assert shared.arguments.keyword["out"].data_ptr() == view.data_ptr()


def odd_case(holds=lambda config: True):
    return Case(ArgumentSet(Arguments(keyword={"x": torch.ones(5)}), ()), 0, "at 5, ", holds=holds)


def only_even(x, *, n):
    if n > 1 and len(x) % n:
        return x[:-1].sum()
    return x.sum()


def test_odd_extents_find_what_the_tuned_ones_hide():
    result = verifier(only_even, (), lambda x: x.sum(), x=torch.ones(4))
    odd = odd_case()
    result = replace(result, ragged=odd)
    assert checked(result, n=1) is None
    assert checked(result, n=2).startswith("at 5, ")
    assert checked(result, n=1) is None


def test_odd_extents_are_left_out_where_the_first_config_or_the_space_does_not_take_them():
    told = []

    def refuses(x, *, n):
        assert len(x) % 2 == 0
        return x.sum()

    result = verifier(refuses, x=torch.ones(4))
    result = replace(result, ragged=odd_case(), tell=told.append)
    assert checked(result, n=1) is None
    assert checked(result, n=2) is None
    assert len(result.cases) == 2
    assert told[-1] == StationStep.LAUNCH
    assert StationStep.ODD in told
    result = verifier(only_even, (), lambda x: x.sum(), x=torch.ones(4))
    result = replace(result, ragged=odd_case(lambda config: config["n"] == 1))
    assert checked(result, n=1) is None
    assert checked(result, n=2) is None


class CompilesForAnExtent(FunctionKernel):
    """A kernel whose code is the same for all extents, and is compiled once for even and once for odd ones."""

    def compile(self, config, arguments):
        made = super().compile(config, arguments)
        return replace(made, compilation=f"even {len(arguments.keyword['x']) % 2 == 0}")


@pytest.mark.parametrize(("kernel", "cases"), [(CompilesForAnExtent, 2), (FunctionKernel, 3)])
def test_odd_extents_that_would_be_compiled_for_each_config_are_left_out(kernel, cases):
    made = verifier(only_even, (), lambda x: x.sum(), x=torch.ones(4))
    result = replace(made, kernel=kernel(only_even), ragged=odd_case())
    assert checked(result, n=1) is None
    assert len(result.cases) == cases


def test_a_reference_with_another_number_of_results_is_refused():
    with pytest.raises(KernelTypeError, match="the reference returns 2 results, the kernel writes 1"):
        verifier(lambda out, *, n: None, ["out"], lambda out: (1, 2), out=torch.ones(1))


def test_a_reference_that_writes_its_arguments_does_no_harm():
    x = torch.ones(4)
    result = verifier(lambda x, *, n: torch.full((4,), 2.0), (), lambda x: x.add_(1), x=x)
    assert torch.equal(x, torch.ones(4))
    assert checked(result, n=1) is None


def test_the_results_of_timed_launches_are_checked():
    out = torch.zeros(4)
    result = verifier(lambda x, out, *, n: out.copy_(x), ["out"], lambda x, out: x, x=torch.ones(4), out=out)
    assert checked(result, n=1) is None
    assert after_timing(result, n=1) is None
    result.subject.arguments.keyword["out"][2] = 5
    assert "after timing, 25.00%" in after_timing(result, n=1)
    result.subject.arguments.keyword["out"][2] = 1
    result.subject.arguments.keyword["x"][0] = 7
    assert "x is changed" in after_timing(result, n=1)
    assert after_timing(result, n=1) is None
