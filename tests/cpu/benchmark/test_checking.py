"""A check: faults of blocks of calls, the order of the answers, and candidates in processes of their own."""

from __future__ import annotations

import json
import math
import shutil
import time

import numpy as np
import pytest
import torch

from triton_ops import Check, check
from triton_ops.backend import Arguments
from triton_ops.benchmark import check_results
from triton_ops.benchmark.check_inputs import Form, Inputs
from triton_ops.benchmark.check_results import Fault, as_spread, fault_of
from triton_ops.benchmark.check_rounds import Race
from triton_ops.benchmark.checking import over_all, suspicions, what_decides
from triton_ops.benchmark.trial import BlockResult
from triton_ops.cli.app import main
from triton_ops.evaluation import Difference, Place
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.timing import DuelOutcome, Interval

REFERENCE = """
import numpy as np

def softmax(x):
    parts = np.exp(x - x.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)

def slow(x):
    for _ in range(100):  # so that it is slower by far on a busy machine, too
        softmax(x)
    return softmax(x)

def picky(x):
    assert len(x) > 7
    return x * 2

def torch_softmax(x):
    return x.softmax(-1)

def scaled_(x, by):
    return x.mul_(by)
"""
CANDIDATES = """
import os
import time

import numpy as np

def right(x):
    parts = np.exp(x - x.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)

def whole_tiles(x):
    tiles = x.shape[1] // 64 * 64 if x.shape[1] > 64 else x.shape[1]
    return np.concatenate([right(x[:, :tiles]), 0 * x[:, tiles:]], -1)

kept = {}

def keeps(x):
    return kept.setdefault(x.shape, right(x))

def loses_nan(x):
    return right(np.nan_to_num(x))

def exits(x):
    os._exit(0)

def raises(x):
    raise ValueError("no")

def refuses_odd(x):
    if x.shape[1] % 16:
        raise ValueError("only whole tiles")
    return right(x)

def talks(x):
    print("x" * (1 << 22))
    return right(x)

def changes(x):
    result = right(x)
    x[...] = 0
    return result

def doubled(x):
    return x + x

def long(x):
    time.sleep(1)
    return right(x)

def longer(x):
    time.sleep(3)
    return right(x)

def long_and_wrong(x):
    time.sleep(1)
    return 0 * x

def hangs_on_others(x):
    time.sleep(0 if x.shape == (40, 96) else 600)
    return right(x)

calls = 0

def hangs_between(x):
    global calls
    calls += 1
    time.sleep(0 if calls < 100 or x.shape == (40, 96) else 600)
    return right(x)
"""
OF_TORCH = """
import torch

calls = 0

def strides_when_alone(x):
    global calls
    calls += 1
    usual = calls <= 28 or x.stride() == (64, 1)
    return x.softmax(-1) if usual else torch.zeros(x.shape)

def whole_tiles(x):
    tiles = x.shape[1] // 64 * 64 if x.shape[1] > 64 else x.shape[1]
    return torch.cat([x[:, :tiles].softmax(-1), 0 * x[:, tiles:]], -1)

def scaled_(x, by):
    x *= by
    return x

def scaled(x, by):
    return x * by
"""


KERNELS = """
import torch
import triton
import triton.language as tl

import triton_ops


@triton.jit
def plain(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


ours = triton_ops.autotune([triton.Config({"BLOCK": 64})], key=["n"])(plain)
listed = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(plain)


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(x.shape)
        plain[(triton.cdiv(x.numel(), 64),)](x.contiguous(), out, x.numel(), BLOCK=64)
        return out


def by_ours(x):
    out = x.new_empty(x.shape)
    ours[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.contiguous(), out, x.numel())
    return out


def by_listed(x):
    out = x.new_empty(x.shape)
    listed[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.contiguous(), out, x.numel())
    return out
"""


COMPILED = """
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy

folder = Path(tempfile.mkdtemp())
(folder / "source.cpp").write_text('''
extern "C" void whole(const float *x, float *out, long n) { for (long i = 0; i < n; i++) out[i] = 2 * x[i]; }
extern "C" void by_eights(const float *x, float *out, long n) {
    for (long i = 0; i + 8 <= n; i += 8) for (long j = i; j < i + 8; j++) out[j] = 2 * x[j];
}
''')
subprocess.run(["c++", "-shared", "-fPIC", "-o", folder / "built.so", folder / "source.cpp"], check=True)
library = ctypes.CDLL(str(folder / "built.so"))


def called(function, x):
    x = numpy.ascontiguousarray(x)
    out = numpy.zeros_like(x)
    function(*(ctypes.c_void_p(each.ctypes.data) for each in (x, out)), ctypes.c_long(x.size))
    return out


def whole(x):
    return called(library.whole, x)


def by_eights(x):
    return called(library.by_eights, x)
"""


def block(*results, changed=(), aliases=((),), **more):
    count = len(results)
    return BlockResult(results=results, changed=(changed,) * count, aliases=(aliases,) * count, **more)


def right(expected):
    def difference(call, results):
        wrong = [n for n, (a, b) in enumerate(zip(results, expected[call], strict=True)) if a != b]
        return Difference("off", place=Place((wrong[0],), 1.0, 2.0, 0.0)) if wrong else None

    return difference


def test_the_first_call_that_is_wrong_is_the_fault():
    own, judge = block(1, 2), right([[1], [2]])
    assert fault_of(block(1, 2), own, judge) is None
    assert fault_of(block(1, 3), own, judge) == ("result", "off", Place((0,), 1.0, 2.0, 0.0))
    assert fault_of(BlockResult(refused="it left", kind="ended"), own, judge) == ("ended", "it left", None)


def test_changed_inputs_and_shared_memory_are_faults_unless_the_references_are_alike():
    own, judge = block(1), right([[1]])
    kind, text, _ = fault_of(block(1, changed=("x",)), own, judge)
    assert (kind, text) == ("changes", "it changes argument x, which the reference does not do")
    kind, text, _ = fault_of(block(1, aliases=(("x",),)), own, judge)
    assert (kind, text) == ("aliases", "result 0 lies in the memory of x, as the reference's does not")
    assert fault_of(block(1, aliases=(("x",),)), block(1, aliases=(("x",),)), judge) is None
    assert fault_of(block(1), block(1, aliases=(("x",),)), judge) is None


@pytest.mark.parametrize("library", [torch.tensor, np.array])
def test_a_nan_may_spread_and_may_not_be_lost(library):
    inf, nan = math.inf, math.nan
    own = library([1.0, nan, inf, 4.0, -inf])
    (spread,) = as_spread([library([nan, nan, -inf, 4.0, nan])], [own], [own * 2], "a NaN")
    assert np.array_equal(np.asarray(spread), np.asarray(own), equal_nan=True)
    (lost,) = as_spread([library([1.0, 2.0, 3.0, inf, -inf])], [own], [own * 2], "a NaN")
    assert np.asarray(lost).tolist() == [1.0, 2.0, 3.0, inf, -inf]
    (free,) = as_spread([library([1.0, 2.0, 3.0, inf, -inf])], [own], [own * 2], "infinities")
    assert np.array_equal(np.asarray(free), [1.0, nan, 3.0, inf, -inf], equal_nan=True)
    assert as_spread([library([1.0, 2.0, 3.0, inf, -inf])], [own], [own], "a NaN") == [own]


def race(
    low, high, *, needed=0.02, outside=0.0, in_calls=None, reference_ms=1.0, candidate_ms=1.0, moved_bytes=0,
    calls_alone=False, rounds=12,
):  # fmt: skip
    """A race whose gain of the candidate has this interval, and that in its calls one of no width, else the same."""
    centre = (low + high) / 2
    verdict = "slower" if low > needed else "faster" if high < -needed else "not distinguishable"
    outcome = DuelOutcome(verdict, Interval(-centre, -high, -low), Interval(0, -0.005, 0.005), needed)
    out = Interval(outside, outside, outside)
    calls_gain = Interval(centre, low, high) if in_calls is None else Interval(in_calls, in_calls, in_calls)
    return Race(outcome, reference_ms, candidate_ms, out, calls_gain, 8, rounds, moved_bytes, calls_alone)


def test_a_race_answers_for_the_candidate():
    assert race(0.1, 0.2).verdict == "faster"
    assert race(-0.2, -0.1).verdict == "slower"
    assert race(-0.01, 0.01).verdict == "same"
    assert race(-0.01, 0.3).verdict == "undecided"
    assert race(0.1, 0.2).gain == Interval(pytest.approx(0.15), 0.1, 0.2)


def test_two_races_must_agree():
    both = race(0.1, 0.2).joined(race(0.3, 0.5))
    assert (both.verdict, both.gain.low, both.gain.high) == ("faster", 0.1, 0.5)
    assert race(0.1, 0.2).joined(race(-0.01, 0.01)).verdict == "undecided"
    assert race(0.1, 0.2).joined(race(-0.2, -0.1)).verdict == "undecided"


@pytest.mark.parametrize(
    ("races", "verdict"),
    [
        ([race(0.1, 0.2)], "faster"),
        ([race(-0.01, 0.01)], "same"),
        ([race(0.1, 0.2), race(0.3, 0.4)], "faster"),
        ([race(0.1, 0.2), race(-0.01, 0.01)], "faster"),
        ([race(0.1, 0.2), race(-0.3, -0.1)], "undecided"),
        ([race(-0.3, -0.1), race(-0.01, 0.01)], "slower"),
        ([race(0.1, 0.2), race(-0.3, 0.3)], "undecided"),
    ],
)
def test_the_answer_over_all_shapes(races, verdict):
    found, whole = over_all(races)
    assert found == verdict
    assert whole.low <= whole.centre <= whole.high


def test_the_interval_over_all_shapes_is_that_of_the_mean():
    _, whole = over_all([race(0.1, 0.3), race(0.3, 0.5)])
    assert (whole.low, whole.centre, whole.high) == pytest.approx((0.3 - 0.02**0.5 / 2, 0.3, 0.3 + 0.02**0.5 / 2))


def test_what_would_decide_is_said():
    assert "at some shapes and slower at others" in what_decides([race(0.1, 0.2), race(-0.2, -0.1)], 20)
    assert what_decides([race(-0.05, 0.25)], 20).startswith("about 45 s would decide")
    assert "two processes of one program" in what_decides([race(-0.03, 0.03)], 20)


def test_a_gain_of_calls_alone_is_larger_than_what_may_pass_outside_of_them():
    alone = race(0.1, 0.2, outside=0.05, calls_alone=True)
    assert alone.verdict == "faster"
    hidden = race(0.1, 0.2, outside=0.3, calls_alone=True)
    assert hidden.verdict == "undecided"
    assert "outside of its calls, 35.0% of their time" in what_decides([hidden], 20)
    assert race(0.1, 0.2, outside=0.3).verdict == "faster", "on a CPU all of the time counts"


def test_what_a_candidate_gains_by_copies_that_it_spares_is_no_gain():
    spared = race(0.3, 0.5, in_calls=-0.01)
    assert spared.verdict == "undecided"
    assert what_decides([spared], 20).startswith("its calls alone are not told to be faster")
    assert race(0.3, 0.5).joined(spared).verdict == "undecided"


def test_time_outside_of_calls_and_times_that_no_device_has_are_suspect():
    form = Form.of_arguments(Arguments((torch.rand(8),)))
    assert list(suspicions(form, race(0.1, 0.2), "cpu")) == []
    (outside,) = suspicions(form, race(0.1, 0.2, outside=math.log(1.5)), "cpu")
    assert outside == "as much as 50% of the time of its calls passes outside of them, beyond the reference's"
    fast = race(20.0, 21.0, reference_ms=1e3, candidate_ms=1e-6, moved_bytes=1 << 22)
    (moved,) = suspicions(form, fast, "cpu")
    assert "to move its inputs and results once" in moved
    unsure = race(-5.0, 21.0, reference_ms=1e3, candidate_ms=1e-6, moved_bytes=1 << 22)
    assert list(suspicions(form, unsure, "cpu")) == []


def test_a_fault_comes_before_times():
    place = Place((1, 2), 0.5, 0.25, 1e-6)
    fault = Fault(kind="result", text="5 elements are off", shape="3x5", values="outliers", place=place)
    text = str(Check(verdict="wrong", names=("a", "b"), fault=fault, verified="the reference in float64"))
    assert text == (
        "a is wrong: 5 elements are off (at 3x5, outliers); first at (1, 2): 0.5 instead of 0.25, allowed 1e-06; "
        "compared with the reference in float64"
    )


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidates.py").write_text(CANDIDATES)
    (tmp_path / "of_torch.py").write_text(OF_TORCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def random(*shape):
    return np.random.default_rng(0).random(shape, "float32")


def asked(name, reference="softmax", *args, seconds=0.5):
    """A check of arrays, whose processes import no torch, which takes two CPU seconds in each."""
    return check(f"candidates.py:{name}", f"reference.py:{reference}", args=args or (random(40, 96),), seconds=seconds)


def asked_of_torch(name, reference, *args, seconds):
    return check(f"of_torch.py:{name}", f"reference.py:{reference}", args=args, seconds=seconds)


@pytest.mark.processes
def test_a_tile_that_is_left_out_is_found_at_the_smallest_shape(files):
    found = asked("whole_tiles", seconds=20)
    assert (found.verdict, found.fault.kind, found.fault.shape, found.fault.timed) == ("wrong", "result", "1x65", False)
    assert found.fault.place.index == (0, 0)
    assert found.shapes == ()
    assert found.verified == "the reference in float64"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("keeps", "result", "elements are off"),
        ("exits", "ended", ""),
        ("raises", "raised", "ValueError: no"),
        ("changes", "changes", "it changes argument 0"),
        ("loses_nan", "result", ""),
    ],
)
def test_a_wrong_candidate_has_a_verdict_with_the_reason(files, name, kind, text):
    found = asked(name, seconds=20)
    assert (found.verdict, found.fault.kind) == ("wrong", kind)
    assert text in found.fault.text


@pytest.mark.processes
def test_what_is_right_alone_and_among_calls_that_are_timed_only_on_usual_strides_is_found(files):
    found = asked_of_torch("strides_when_alone", "torch_softmax", torch.rand(64, 64), seconds=20)  # before: 27 calls
    assert (found.fault.kind, found.fault.shape, found.fault.timed) == ("result", "63x63", True)
    assert found.tried[-1] == "between timed calls: 1"


@pytest.mark.processes
def test_a_right_candidate_that_is_faster_is_seen_and_one_that_refuses_shapes_is_told(files):
    found = asked("refuses_odd", "slow", random(64, 256), seconds=2)
    assert found.fault is None
    assert found.verdict in ("faster", "undecided")  # a busy machine may leave it open
    assert found.speedup.centre > 2
    assert any("only whole tiles" in text for text in found.refused)


@pytest.mark.parametrize(("kind", "extents", "refuses"), [
    ("ended", (0, 64), True), ("ended", (1, 64), False), ("hung", (0, 64), False), ("raised", (1, 64), True),
])  # fmt: skip
def test_a_crash_is_a_refusal_on_empty_inputs_and_an_error_on_any_that_nobody_asked_for(kind, extents, refuses):
    examination = check_results.Examination(None, None)
    inputs = Inputs(Form.of_arguments(Arguments((random(8, 64),))), extents, 0)
    assert examination._may_be_refused(Fault(kind=kind, text="it left", shape=inputs.shape), inputs) is refuses
    assert len(examination.refused) == refuses


@pytest.mark.processes
def test_a_candidate_of_long_calls_is_slower_after_few_rounds(files):
    found = asked("long", seconds=2)
    assert (found.verdict, found.shapes[0].rounds, found.shapes[0].calls) == ("slower", 2, 1)
    assert "no time for the same again, in one block" in found.tried


@pytest.mark.processes
def test_what_no_time_is_left_for_is_said_and_what_would_decide(files):
    found = asked("longer", seconds=1)
    assert (found.verdict, found.shapes, found.speedup) == ("undecided", (), None)
    assert found.needed.startswith("a call with its judgement takes 3.")
    assert found.needed.endswith(" s would decide")
    assert found.needed in str(found)
    assert {"no time for shapes", "no time for sorts of values", "no time for layouts"} <= {*found.tried}


@pytest.mark.processes
def test_the_search_for_a_small_shape_ends_with_the_time(files, monkeypatch):
    monkeypatch.setattr(check_results, "_LEAST_S", 0.1)
    began_s = time.monotonic()
    found = asked("long_and_wrong", seconds=0.1)
    assert (found.verdict, found.fault.kind) == ("wrong", "result")
    assert time.monotonic() - began_s < 60


@pytest.mark.processes
def test_a_call_that_hangs_on_other_inputs_has_its_verdict_by_the_time_of_the_check(files, monkeypatch):
    monkeypatch.setattr(check_results, "_HANGS", 0.01)
    found = asked("hangs_on_others", seconds=1)
    assert (found.verdict, found.fault.kind, found.fault.shape) == ("wrong", "hung", "1x1")


@pytest.mark.processes
def test_calls_between_timed_ones_that_do_not_end_leave_it_undecided(files):
    found = asked("hangs_between", seconds=0.05)
    assert (found.verdict, found.fault) == ("undecided", None)
    assert "calls between timed calls, at " in found.needed


def test_few_rounds_tell_a_candidate_that_is_slower_by_far_and_no_other():
    assert race(-2.0, -1.0, needed=3.0, candidate_ms=500.0, rounds=2).verdict == "slower", "whatever its short twins do"
    assert race(-2.0, -1.0, candidate_ms=300.0, rounds=2).verdict == "undecided"
    for low, high in ((-0.6, -0.5), (0.0, 0.0), (1.0, 2.0)):
        assert race(low, high, candidate_ms=500.0, rounds=2).verdict == "undecided"
    assert what_decides([race(-0.6, -0.5, rounds=2)], 20) == "2 rounds are too few: more seconds would tell"


def kernels_checked(folder):
    """What is found of kernels that Triton interprets: each doubles, and one is compared with a kernel in turn."""
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "others.py").write_text(KERNELS.replace("2 *", "3 *"))
    (folder / "tripling.py").write_text("def triple(x):\n    return 3 * x\n")
    pairs = ("kernels.py:plain", "tripling.py:triple"), ("kernels.py:ours", "others.py:listed@by_listed")
    return [check(f"{folder}/{one}", f"{folder}/{two}", args=(torch.ones(8, 65),)) for one, two in pairs]


@pytest.mark.processes
@pytest.mark.triton
def test_a_kernel_is_checked_by_the_function_that_launches_it(interpreted, tmp_path):
    for found in interpreted(kernels_checked, tmp_path):
        assert (found.fault.kind, found.fault.shape) == ("result", "1x1")
        assert (found.fault.place.value, found.fault.place.right) == (2, 3)


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_a_candidate_of_cpp_is_compiled_and_checked(files):
    (files / "compiled.py").write_text(COMPILED)
    (files / "reference.py").write_text("def double(x):\n    return 2 * x\n")
    x = random(16, 64)
    wrong, right = (
        check(f"compiled.py:{name}", "reference.py:double", args=(x,), seconds=seconds)
        for name, seconds in (("by_eights", 20), ("whole", 0.5))
    )
    assert (wrong.fault.kind, wrong.fault.shape) == ("result", "1x1")
    assert right.fault is None


@pytest.mark.processes
def test_what_is_written_in_place_is_a_result(files):
    x = torch.rand(40, 96)
    assert asked_of_torch("scaled_", "scaled_", x, 3.0, seconds=0.5).fault is None
    assert asked_of_torch("scaled", "scaled_", x, 3.0, seconds=20).fault.kind == "result"
    assert torch.equal(x, x.clamp(0, 1))


@pytest.mark.processes
def test_shapes_that_the_reference_refuses_are_no_question(files):
    found = asked("doubled", "picky", seconds=2)
    assert found.fault is None
    assert any(text.startswith("refused by the reference: ") for text in found.tried)


@pytest.mark.processes
def test_what_a_candidate_prints_is_not_kept(files, capfd):
    assert asked("talks").fault is None
    assert len(capfd.readouterr().out) < 1 << 16


@pytest.mark.parametrize("against", ["reference.py:softmax", "kernels.py:plain@reference.py:softmax"])
def test_a_reference_in_the_candidates_file_is_refused(files, against):
    with pytest.raises(TargetError, match="candidate and reference are both in"):
        check("reference.py:slow", against, args=(torch.rand(4, 4),))


@pytest.mark.parametrize("candidate", ["linked.py:slow", "reference:slow", "./linked.py:slow"])
def test_a_reference_in_the_candidates_file_is_refused_by_whatever_name(files, monkeypatch, candidate):
    (files / "linked.py").symlink_to("reference.py")
    monkeypatch.syspath_prepend(files)
    with pytest.raises(TargetError, match="candidate and reference are both in"):
        check(candidate, "reference.py:softmax", args=(torch.rand(4, 4),))


def test_a_reference_that_raises_is_the_callers_error(files):
    with pytest.raises(TargetError, match="the reference raised AssertionError"):
        asked("doubled", "picky", random(3, 8))


def test_options_are_checked(files):
    with pytest.raises(SettingsError, match="seconds"):
        asked("right", seconds=-1)


@pytest.mark.processes
def test_the_command_prints_one_document_and_has_an_exit_code(files, capsys):
    typed = ["check", "of_torch.py:whole_tiles", "--against", "reference.py:torch_softmax", "--shape", "16x200"]
    assert main([*typed, "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["verdict"], found["fault"]["shape"]) == ("triton-ops check", "wrong", "1x65")


@pytest.mark.processes
def test_the_command_reads_shapes_from_a_file_and_writes_markdown(files, capsys):
    (files / "shapes.txt").write_text("16x64  # small\n\n32x64\n")
    typed = ["check", "candidates.py:right", "--against", "reference.py:softmax", "--shapes", "shapes.txt"]
    assert main([*typed, "--numpy", "--seconds", "1", "--markdown"]) in (0, 8)
    out = capsys.readouterr().out
    assert "| 16x64 |" in out
    assert "| 32x64 |" in out


def test_the_command_refuses_what_excludes_another(files, capsys):
    typed = ["check", "candidates.py:right", "--against", "reference.py:softmax", "--shape", "4x4", "--shapes", "none"]
    assert main(typed) == 2
    (files / "none").write_text("# nothing\n")
    assert main(typed) == 2
    assert "has no shape" in capsys.readouterr().err
    assert main([*typed[:-2], "--json", "--markdown"]) == 2


def test_help(cli, golden):
    ran = cli("check", "--help", columns=80)
    assert (ran.code, ran.err) == (0, "")
    golden("help-check.txt", ran.out)
