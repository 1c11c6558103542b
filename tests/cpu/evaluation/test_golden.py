"""The golden result, references that misbehave, and the caller's own check: an error or a note, never silence."""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from triton_ops import (
    Config,
    DeviceError,
    FunctionKernel,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    TargetError,
    TensorSpec,
    Tolerance,
    UnsupportedDtypeError,
    operation,
    recall,
    tune,
)
from triton_ops.backend import Arguments, ArgumentSet, Protection
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import same_bits
from triton_ops.evaluation.golden import Referee
from triton_ops.evaluation.judges import Precision

pytestmark = pytest.mark.usefixtures("steady_clock")

HALF = Precision(inputs=("bfloat16",))


def answers(reference, *, outputs=(), precision=HALF, **arguments):
    referee = Referee(reference, outputs)
    return referee, referee.answers(ArgumentSet(Arguments(keyword=arguments), outputs), precision)


def statuses(result):
    """How the trials ended, in the order of their configs, and not of the search."""
    return [str(trial.status) for trial in by_value(result)]


def by_value(result):
    return sorted(result.trials, key=lambda trial: str(trial.config))


def bfloat16(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def test_the_golden_result_answers_the_same_rounded_inputs_in_float64():
    x = bfloat16(8, 16)
    referee, result = answers(lambda x, out: x.softmax(-1), outputs=("out",), x=x, out=torch.empty_like(x))
    assert (referee.used, referee.why_own) == ("float64", "")
    assert torch.equal(result.golden[0], x.double().softmax(-1))
    assert torch.equal(result.low[0], x.softmax(-1))
    assert result.precision.blur == 1.0


def test_a_reference_sees_its_own_dtypes_and_no_tf32_on_the_way_to_the_golden_result():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    asked = []

    def picky(x):
        assert x.dtype is torch.bfloat16, "no"
        asked.append(torch.backends.cuda.matmul.allow_tf32)
        return x @ x.mT

    try:
        referee, result = answers(picky, x=bfloat16(4, 4))
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert referee.used == "float64"
    assert asked == [True, False]
    x = bfloat16(4, 4).double()
    assert torch.equal(result.golden[0], x @ x.mT)


def test_where_float64_takes_too_much_memory_float32_is_taken(monkeypatch):
    x = bfloat16(4, 4)
    monkeypatch.setattr(TorchDevice, "free_bytes", 1000)
    referee, result = answers(lambda x: x @ x.mT, x=x)
    assert (referee.used, result.golden[0].dtype) == ("float32", torch.float32)
    assert torch.equal(result.golden[0], x.float() @ x.float().mT)


def test_a_reference_bound_to_its_precision_is_its_own_judge_and_says_why():
    def dropping(x):
        """Two sums in float32 drop all but the whole part; in float64 they drop nothing."""
        return (x * 0.3 + 3 * 2.0**22) - 3 * 2.0**22

    referee, result = answers(dropping, x=torch.rand(64) * 4, precision=Precision(inputs=("float32",)))
    assert (referee.used, result.golden, result.precision.blur) == ("", [None], 2.0)
    assert "it gives another result" in referee.why_own
    referee, result = answers(lambda x: x[: len(str((x / 3).sum().item()))], x=torch.ones(16).bfloat16())
    assert "another shape" in referee.why_own
    assert result.golden == [None]


def test_a_cast_of_the_result_does_not_blur_the_golden_result():
    x = bfloat16(4, 4)
    _, result = answers(lambda x: x.float().exp().bfloat16(), x=x)
    assert result.precision.blur == 1.0
    assert torch.equal(result.golden[0], x.double().exp())


def test_inputs_without_a_higher_precision_need_no_golden_result():
    for x in (torch.arange(5), torch.ones(3, dtype=torch.float64)):
        referee, result = answers(lambda x: x + 1, x=x)
        assert (referee.used, referee.why_own, result.golden) == ("", "", [None])


def test_arrays_are_raised_too():
    np = pytest.importorskip("numpy")
    x = np.linspace(0, 1, 7, dtype=np.float32)
    referee, result = answers(lambda x: np.exp(x), x=x, precision=Precision(inputs=("float32",)))
    assert referee.used == "float64"
    assert result.golden[0].dtype == np.float64


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (lambda out: (out, out), KernelTypeError),
        (lambda out: 1.0, KernelTypeError),
        (lambda out: out[:2], ShapeMismatchError),
        (lambda out: out.int(), UnsupportedDtypeError),
        (lambda out: out.to("meta"), DeviceError),
    ],
)
def test_results_that_do_not_fit_the_output_are_refused_before_any_launch(result, error):
    def never(x, out, *, n):
        raise AssertionError

    with pytest.raises(error, match="the reference returns"):
        tune(FunctionKernel(never, outputs=("out",)), (), {"x": torch.ones(4), "out": torch.ones(4)},
             space={"n": [1]}, reference=lambda x, out: result(out))  # fmt: skip


def test_a_wider_float_is_rounded_to_the_output(tmp_path):
    kernel = FunctionKernel(lambda x, out, *, n: out.copy_(x * n), outputs=("out",))
    x = bfloat16(64)
    result = tune(kernel, (), {"x": x, "out": torch.empty_like(x)}, space={"n": [1, 3]}, cache_dir=tmp_path,
                  reference=lambda x, out: x.float() * 3)  # fmt: skip
    assert statuses(result) == ["wrong", "ok"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda x: x * random.random(), "another result each time"),
        (lambda x: x + torch.rand(4), "another result each time"),
        (lambda x: torch.randint(0, 1 << 40, x.shape), "another result each time"),
        (lambda x: {"a": [x + torch.rand(4)]}, "another result each time"),
        (lambda x: [][0], "raised IndexError"),
        (lambda x: sys.exit(3), "raised SystemExit: 3"),
        (lambda x: (each for each in [x]), "returns a generator, which has computed nothing yet"),
        (lambda x: x.to("meta"), "on the device meta, which has no values"),
        (lambda x: torch.nested.nested_tensor([x, x[:2]]), "the reference's results cannot be compared"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_references_that_raise_or_are_random_or_give_nothing_are_refused(reference, said, tmp_path):
    with pytest.raises((TargetError, DeviceError), match=said):
        tune(lambda x, *, n: x, [torch.ones(4)], space={"n": [1]}, reference=reference, cache_dir=tmp_path)


def test_a_golden_result_that_would_take_the_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(TorchDevice, "free_bytes", 100)
    referee, result = answers(lambda x: x + 1, x=bfloat16(64))
    assert "MiB" in referee.why_own
    assert result.golden == [None]


def test_a_golden_result_larger_than_its_inputs_counts_too(monkeypatch):
    monkeypatch.setattr(TorchDevice, "free_bytes", 1 << 20)
    assert answers(lambda x: x[:, None] * x, x=bfloat16(64))[0].used == "float64"
    assert "MiB" in answers(lambda x: x[:, None] * x, x=bfloat16(256))[0].why_own


def test_what_a_reference_writes_is_its_result_where_it_returns_none(tmp_path):
    def doubled(x, *, off=0):
        x.mul_(2 + off)

    result = tune(doubled, [torch.ones(8)], space={"off": [0, 1]}, reference=doubled, cache_dir=tmp_path)
    assert statuses(result) == ["ok", "wrong"]


def test_a_reference_is_asked_once_for_each_set_of_arguments(tmp_path):
    asked = []

    def reference(x):
        asked.append(x.dtype)
        return x * 2

    tune(lambda x, *, n: x * 2, [torch.ones(4)], space={"n": [1]}, reference=reference, cache_dir=tmp_path)
    assert asked == [torch.float32, torch.float32]


def test_what_cannot_be_compared_is_said(tmp_path):
    class Plain:
        pass

    some = tune(lambda x, *, n: (x, Plain()), [torch.ones(4)], space={"n": [1]}, cache_dir=tmp_path / "a",
                reference=lambda x: (x * 1, Plain()))  # fmt: skip
    assert any("values of type Plain are not compared" in note for note in some.notes)
    nothing = tune(lambda x, *, n: None, [torch.ones(4)], space={"n": [1]}, cache_dir=tmp_path / "b")
    assert nothing.verified == "nothing: the results hold nothing that can be compared"


@pytest.mark.parametrize(("start", "stop"), [(0, 16), (0, 15), (1, 16), (3, 3), (8, 16)])
def test_bytes_are_compared_to_the_last_one(start, stop):
    a, b = (torch.arange(16, dtype=torch.uint8)[start:stop] for _ in range(2))
    assert Protection.same_bytes(a, b)
    if len(a):
        b[-1] += 1
        assert not Protection.same_bytes(a, b)


def test_bits_of_results_are_compared_nan_and_zeros_included():
    a = torch.tensor([float("nan"), 0.0])
    assert same_bits((a, "x"), (a.clone(), "x"))
    assert not same_bits(a, torch.tensor([float("nan"), -0.0]))


@dataclass
class Kept:
    sums: object


@pytest.mark.parametrize(
    ("result", "another"),
    [
        (np.array([1.0, np.nan]), np.array([2.0, np.nan])), (np.array(["a"]), np.array(["b"])), (1.5, 1.25), ("x", "y"),
        (float("nan"), 1.0), (Kept(torch.ones(2)), Kept(torch.zeros(2))), ({"a": 1}, {"b": 1}), ([1], [1, 2]),
        (torch.ones(2), 1.0), (None, 0),
    ],
)  # fmt: skip
def test_results_that_are_no_tensors_are_the_same_only_if_they_are_equal(result, another):
    assert same_bits([result], [copy.deepcopy(result)])
    assert not same_bits([result], [another])
    assert not same_bits([another], [result])


def accepts(result, expected):
    """Whether two results are within a tenth."""
    return bool(((result - expected).abs() < 0.1).all())


def refuses(result, expected):
    return False


def raises(result, expected):
    raise KeyError("no")


def says(result, expected):
    return "yes"


def scaled(x, *, n):
    """The argument, n percent larger."""
    return x * (1 + n / 100)


def test_the_caller_s_own_check_decides_and_is_part_of_the_key(tmp_path):
    x, space = torch.ones(64), {"n": [0, 5, 50]}
    given = {"space": space, "reference": lambda x: x, "cache_dir": tmp_path}
    result = tune(scaled, [x], check=accepts, **given)
    assert statuses(result) == ["ok", "ok", "wrong"]
    assert by_value(result)[2].error == "the check refuses the result"
    assert result.verified == "the reference, by the check `accepts`"
    assert tune(scaled, [x], check=accepts, **given).from_cache
    strict = tune(scaled, [x], **given)
    assert statuses(strict) == ["ok", "wrong", "wrong"]
    assert recall(scaled, [x], reference=given["reference"], cache_dir=tmp_path, check=accepts) is not None
    assert recall(scaled, [x], reference=given["reference"], cache_dir=tmp_path, tolerance=0.5) is None


def test_without_a_reference_a_check_is_given_the_default_s_result(tmp_path):
    result = tune(scaled, [torch.ones(8)], space={"n": [0, 5, 50]}, check=accepts, cache_dir=tmp_path)
    assert statuses(result) == ["ok", "ok", "wrong"]


@pytest.mark.parametrize(
    ("check", "said"), [(refuses, "refuses"), (raises, "raised KeyError"), (says, "returned a str, not a bool")]
)
def test_a_check_that_cannot_be_right_is_refused_before_anything_runs(check, said, tmp_path):
    ran = []
    with pytest.raises(TargetError, match=said):
        tune(lambda x, *, n: ran.append(n) or x, [torch.ones(4)], space={"n": [1]}, reference=lambda x: x,
             check=check, cache_dir=tmp_path)  # fmt: skip
    assert not ran


def test_a_check_may_write_what_it_is_given_and_needs_no_golden_result(tmp_path):
    def close(result, expected):
        same = torch.equal(result, expected)
        result.zero_()
        expected.zero_()
        return same

    asked = []

    def reference(x):
        asked.append(x.dtype)
        return x * 2

    result = tune(lambda x, *, n: x * n, [torch.ones(4)], space={"n": [2, 3]}, reference=reference, check=close,
                  cache_dir=tmp_path)  # fmt: skip
    assert statuses(result) == ["ok", "wrong"]
    assert asked == [torch.float32, torch.float32]


def test_a_check_that_fails_for_one_result_ends_one_trial(tmp_path):
    def check(result, expected):
        if result[0] > 1.2:
            raise ValueError("too large")
        return True if result[0] == 1 else "perhaps"

    result = tune(
        scaled, [torch.ones(4)], space={"n": [0, 5, 50]}, reference=lambda x: x, check=check, cache_dir=tmp_path
    )
    assert statuses(result) == ["ok", "wrong", "wrong"]
    assert "returned a str, not a bool" in by_value(result)[1].error
    assert "raised ValueError: too large" in by_value(result)[2].error


@pytest.mark.parametrize("given", [{"tolerance": -1}, {"tolerance": "a lot"}, {"tolerance": True}])
def test_a_tolerance_that_is_none_is_refused(given):
    with pytest.raises(SettingsError, match="tolerance"):
        tune(scaled, [torch.ones(4)], space={"n": [1]}, **given)


def test_a_check_that_is_not_callable_is_refused():
    with pytest.raises(KernelTypeError, match="check is 'yes'"):
        tune(scaled, [torch.ones(4)], space={"n": [1]}, check="yes")


def test_an_operation_holds_its_tolerance_and_a_call_may_replace_it(tmp_path):
    @operation(space={"n": [0, 5]}, arguments=lambda size=64: {"x": TensorSpec((size,), "float32")},
               reference=lambda x: x, tolerance=0.1)  # fmt: skip
    def grown(x, *, n):
        return x * (1 + n / 100)

    assert grown.tolerance == Tolerance(relative=0.1)
    assert statuses(tune(grown, device="cpu", cache_dir=tmp_path)) == ["ok", "ok"]
    narrow = tune(grown, device="cpu", cache_dir=tmp_path, tolerance=0.01)
    assert statuses(narrow) == ["ok", "wrong"]
    assert "within tolerance: relative 0.01" in narrow.verified


def test_a_default_that_is_wrong_by_little_is_said_at_once_and_in_the_result(tmp_path, caplog):
    """The configs are wrong by a few times what float32 rounds."""
    space = {"n": [1, 2, 3, 0]}

    def grown(x, *, n):
        return x * (1 + n * 1e-5)

    result = tune(grown, [torch.rand(512) + 1], space=space, reference=lambda x: x.clone(), cache_dir=tmp_path)
    assert statuses(result) == ["ok", "wrong", "wrong", "wrong"]
    assert 1 < result.default.excess < 10
    message = [record.message for record in caplog.records]
    assert any("the default config is wrong by little" in line and "Tolerance(times=" in line for line in message)
    assert sum("configs are wrong by little" in line for line in message) == 1
    assert any("3 of 4 configs are wrong by little" in note for note in result.notes)


def test_most_configs_against_the_default_are_said(tmp_path):
    result = tune(lambda x, *, n: x + (n == 0), [torch.ones(8)], space={"n": [0, 1, 2, 3]}, cache_dir=tmp_path)
    assert statuses(result) == ["ok", "wrong", "wrong", "wrong"]
    assert any("3 of 4 configs agree with one another and differ from (n=0)" in note for note in result.notes)


def test_the_default_is_the_judge_also_where_another_config_runs_first():
    from triton_ops.evaluation import Subject
    from triton_ops.evaluation.verify import Verifier

    kernel = FunctionKernel(lambda x, *, n: x + (n == 2))
    subject = Subject(ArgumentSet(Arguments(keyword={"x": torch.ones(8)})))
    result = Verifier(kernel=kernel, subject=subject, trusted=Config(n=1))
    assert result.wrong(kernel.compile(Config(n=2), subject.arguments)) is not None
    assert result.wrong(kernel.compile(Config(n=3), subject.arguments)) is None
    assert result.against == "config (n=1), since there is no reference"


def test_results_of_another_dtype_or_text_are_wrong(tmp_path):
    def typed(x, *, kind):
        return {"same": x, "double": x.double(), "text": "x"}[kind]

    given = {"reference": lambda x: x.clone(), "cache_dir": tmp_path}
    result = tune(typed, [torch.ones(4)], space={"kind": ["same", "double", "text"]}, **given)
    assert [trial.error for trial in by_value(result)] == [
        "dtype float64 instead of float32", "", "a str instead of a tensor",
    ]  # fmt: skip
    words = tune(lambda *, w: w.lower(), space={"w": ["A", "a", "B"]}, reference=lambda: "a", cache_dir=tmp_path)
    assert statuses(words) == ["ok", "wrong", "ok"]
    assert by_value(words)[1].error == "'b' instead of 'a'"


def test_equal_launches_with_other_bits_are_wrong_where_it_is_asked_for(tmp_path):
    def noisy(x, *, n):
        return x * (1 + n * random.choice([1e-7, 2e-7, 3e-7, 4e-7]))

    given = {"space": {"n": [0, 1]}, "reference": lambda x: x, "cache_dir": tmp_path}
    loose = tune(noisy, [torch.rand(512) + 1], **given)
    assert statuses(loose) == ["ok", "ok"]
    assert any("give different bits" in note for note in loose.notes)
    strict = tune(noisy, [torch.rand(512) + 1], tolerance=Tolerance(bitwise=True), **given)
    assert statuses(strict) == ["ok", "wrong"]
    assert "other bits" in by_value(strict)[1].error
