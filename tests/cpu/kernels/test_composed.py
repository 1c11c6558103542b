"""A kernel that some configs follow with a second one: what each launch is given, and where it writes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops.backend import Arguments, TritonKernel  # noqa: E402
from triton_ops.exceptions import KernelTypeError  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import Resources  # noqa: E402
from triton_ops_kernels import StagedKernel  # noqa: E402

pytestmark = pytest.mark.triton


@triton.jit
def sums(x, out, n, parts=None, BLOCK: tl.constexpr = 16, PARTS: tl.constexpr = 1):
    program = tl.program_id(0)
    total = 0.0
    for first in range(program * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + at, at < n, 0.0), 0)
    if PARTS == 1:
        tl.store(out, total)
    else:
        tl.store(parts + program, total)


@triton.jit
def sum_of_parts(out, parts, programs, CHUNK: tl.constexpr, PARTS: tl.constexpr):
    at = tl.arange(0, CHUNK)
    tl.store(out, tl.sum(tl.load(parts + at, at < programs, 0.0), 0))
    tl.store(out + 1, 1.0 * programs + PARTS)


def parts_grid(meta):
    return (meta["PARTS"],)


def one(_meta):
    return (1,)


def in_parts(meta):
    return meta["PARTS"] > 1


def programs_of(_meta, programs):
    return programs


def staged(**changes):
    given = {"when": in_parts, "scratch": "parts", "elements": programs_of, "options": {"CHUNK": 8}, **changes}
    first, second = TritonKernel(sums, parts_grid, outputs=("out",)), TritonKernel(sum_of_parts, one)
    return StagedKernel(first, second, **given)


def results(positional):
    """What one launch, and two, write; each twice with one binding, since its scratch is kept."""
    written, x = [], torch.arange(100.0)
    for config in (Config(BLOCK=16, PARTS=1), Config(BLOCK=16, PARTS=4), Config(BLOCK=16)):
        out = torch.zeros(2)
        given = {"x": x, "out": out, "n": 100}
        arguments = Arguments(tuple(given.values())) if positional else Arguments(keyword=given)
        launch = staged().compile(config, arguments).bind(arguments)
        for _ in range(2):
            out.zero_()
            launch()
            written.append(out.tolist())
    return written


@pytest.mark.parametrize("positional", [False, True])
def test_a_config_of_two_launches_computes_what_one_launch_does(positional, interpreted):
    alone, both = [4950.0, 0.0], [4950.0, 8.0]
    assert interpreted(results, positional) == [alone, alone, both, both, alone, alone]


def test_the_second_launch_has_the_options_and_those_tunables_that_it_takes(interpreted):
    assert interpreted(second_config) == {"PARTS": 4, "CHUNK": 8}


def second_config():
    arguments = Arguments(keyword={"x": torch.ones(4), "out": torch.zeros(2), "n": 4})
    scratch = torch.zeros(4)
    first, second, config = staged()._parts(Config(BLOCK=16, PARTS=4, num_warps=2), arguments, scratch, 4)
    assert first.keyword["parts"] is second.keyword["parts"] is scratch
    assert set(second.keyword) == {"out", "parts", "programs"}
    assert second.keyword["programs"] == 4
    return dict(config)


def test_only_one_launch_has_a_name_for_its_program():
    kernel, made = staged(), Resources(binary="same", shared_bytes=1)
    given = {"x": torch.ones(4), "out": torch.zeros(2), "n": 4}
    light = Arguments(keyword=given).described(light=True)
    alone = Config(BLOCK=16, PARTS=1)
    assert kernel.program_key(alone, light, made) == kernel.first.program_key(alone, light, made) is not None
    assert kernel.program_key(Config(BLOCK=16, PARTS=4), light, made) is None


def test_a_second_kernel_without_its_values_is_refused_by_their_names():
    with pytest.raises(KernelTypeError, match=r"sum_of_parts cannot follow .*sums: no value for CHUNK"):
        staged(options={})
    with pytest.raises(KernelTypeError, match="no value for rest"):
        staged(scratch="rest")
