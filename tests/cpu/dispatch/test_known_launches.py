"""A known launch of a decorated kernel notices what others change in it; tests/contracts has what all ways notice."""

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from unittest import mock  # noqa: E402

import triton.language as tl  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402

import triton_ops  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from triton_ops.dispatch import fast_launch  # noqa: E402


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def rounded(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=(i < n) & EVEN)


@pytest.fixture
def tensors():
    with launches_that_do_nothing():
        yield torch.zeros(4096), torch.zeros(4096)


def by_blocks(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def decorated():
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256, 512)]
    return triton_ops.autotune(configs, ["n"], on_miss="default")(copy)


def launched(kernel, tensors, launch=None):
    launch = launch or kernel[by_blocks]
    launch(*tensors, 4096)
    return kernel.best_config


def is_known(kernel, tensors):
    return kernel.launches.fast.call(by_blocks, *tensors, 4096) is not None


def test_a_winner_that_others_set_or_take_away_counts_at_the_next_launch(tensors):
    kernel = decorated()
    first, second, third = kernel.configs
    assert launched(kernel, tensors) is first
    (key,) = kernel.cache
    for change, expected in (
        (lambda: kernel.cache.update({key: third}), third),
        (lambda: kernel.cache.pop(key), first),
        (lambda: kernel.cache.__setitem__(key, second), second),
        (kernel.cache.clear, first),
    ):
        assert is_known(kernel, tensors)
        change()
        assert launched(kernel, tensors) is expected
        assert launched(kernel, tensors) is expected


def test_a_cache_that_tells_another_kernel_of_its_changes_is_asked_at_each_launch(tensors):
    one, other = decorated(), decorated()
    launched(one, tensors)
    (key,) = one.cache
    other.cache = one.cache
    launched(other, tensors)
    one.cache[key] = one.configs[2]
    assert launched(other, tensors) is one.configs[2]
    assert launched(one, tensors) is one.configs[2]


def test_a_config_that_others_set_while_a_launch_is_decided_is_not_passed_by(tensors, monkeypatch):
    kernel = decorated()
    launches, learn = kernel.launches, kernel.launches._learn

    def changed_meanwhile(*args):
        (key,) = kernel.cache
        kernel.cache[key] = kernel.configs[1]
        learn(*args)

    monkeypatch.setattr(launches, "_learn", changed_meanwhile)
    launched(kernel, tensors)
    monkeypatch.undo()
    assert launched(kernel, tensors) is kernel.configs[1]


def test_a_held_launcher_sees_a_function_in_the_place_of_run(tensors):
    kernel = decorated()
    launch = kernel[by_blocks]
    launched(kernel, tensors, launch)
    for place in (Autotuner, type(kernel), kernel):
        with mock.patch.object(place, "run") as run:
            launch(*tensors, 4096)
        assert run.called
    assert is_known(kernel, tensors)


@pytest.mark.parametrize("named", [("n",), ("out_ptr", "n"), ("x_ptr", "out_ptr", "n")])
def test_arguments_by_name_are_known_beside_those_by_place(tensors, named):
    kernel = decorated()
    launched(kernel, tensors)
    values = dict(zip(("x_ptr", "out_ptr", "n"), (*tensors, 4096), strict=True))
    by_name = {name: values.pop(name) for name in named}
    kernel[by_blocks](*values.values(), **by_name)
    assert kernel.launches.fast.call(by_blocks, *values.values(), **by_name) is not None
    with pytest.raises(TypeError, match="multiple values"):
        kernel[by_blocks](*tensors, 4096, n=4096)


@pytest.mark.parametrize("heuristics", [False, True])
def test_of_more_launches_than_a_kernel_may_have_the_first_ones_are_decided_again(tensors, heuristics, monkeypatch):
    monkeypatch.setattr(fast_launch, "_MOST_ENTRIES", 2)
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    function = triton.heuristics({"EVEN": lambda values: values["n"] % 2 == 0})(rounded) if heuristics else copy
    kernel = triton_ops.autotune(configs, ["n"], on_miss="default")(function)

    def known():
        return [n for n in (512, 1024, 2048) if kernel.launches.fast.call(by_blocks, *tensors, n) is not None]

    for n, expected in ((512, [512]), (1024, [512, 1024]), (2048, [2048]), (512, [512, 2048])):
        kernel[by_blocks](*tensors, n)
        assert known() == expected
