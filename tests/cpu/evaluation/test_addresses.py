"""Arguments that hold addresses: they are noticed, and no other process is asked to follow them."""

from __future__ import annotations

import ctypes
import logging

import pytest

torch = pytest.importorskip("torch")

from triton_ops import FunctionKernel, Problem, TargetError, TuneProblem, release_processes, tune, tune_many  # noqa: E402
from triton_ops.backend import Arguments, Packed, Protection  # noqa: E402
from triton_ops.backend import private as addresses  # noqa: E402
from triton_ops.backend.private import holds_addresses  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.evaluation import Assignment, Stations, idle_worker  # noqa: E402
from triton_ops.request import TuneOptions  # noqa: E402
from triton_ops.request.request import CopiedArguments  # noqa: E402

START = 0x7F00_0000_0000
PIECES = [range(START, START + 4096), range(START + 8192, START + 8192 + 512), range(0x3_0200_0000, 0x3_0200_2000)]


@pytest.fixture
def pieces(monkeypatch):
    """Memory that a GPU would have handed out, and how often it was asked for."""
    asked = []
    monkeypatch.setattr(addresses, "allocated", lambda: asked.append(1) or sorted(PIECES, key=lambda it: it.start))
    return asked


def whole(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


ARRAYS = {
    "one": whole(START + 16),
    "begins and ends": whole(START, START + 4095, START + 8192 + 511),
    "with nulls": whole(0, START + 8, 0, 0x3_0200_0010),
    "of no sign": torch.tensor([START + 8, START + 24], dtype=torch.uint64),
    "a scalar": torch.tensor(START + 8),
    "in a matrix": whole(*[START + 8] * 6).view(2, 3),
    "every other": whole(*[START + 8, 7] * 4)[::2],
    "long": torch.full((100_000,), START + 8),
    "beside sizes": whole(START, 128, 64, START + 8192, 256, 64).view(2, 3),
}
OTHERS = {
    "empty": torch.empty(0, dtype=torch.int64),
    "zeros": torch.zeros(8, dtype=torch.int64),
    "indices": torch.arange(1000),
    "sizes": whole(1 << 31, 4096),
    "negative": whole(-1, -100),
    "narrow": torch.arange(9, dtype=torch.int32),
    "floats": torch.full((4,), float(START + 16)),
}
LARGE = {
    "hashes": torch.randint(1 << 40, 1 << 62, (5000,), generator=torch.Generator().manual_seed(0)),
    "times": whole(*(1_790_000_000_000_000_000 + step for step in range(50))),
    "one outside": whole(START + 8, START + 16, START + 5000),
    "behind the last": whole(START + 8192 + 512),
    "before the first": whole(0x2_0000_0000),
    "an address and a size": whole(START + 8, 128),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_addresses_is_one(name, pieces):
    assert holds_addresses(ARRAYS[name])
    assert Protection.names_of_addresses(Arguments((1, ARRAYS[name]), {"x": torch.ones(2)})) == ["argument 1"]
    assert Protection.names_of_addresses(Arguments(keyword={"n": 5, "at": (ARRAYS[name], 3)})) == ["at"]


@pytest.mark.parametrize("name", OTHERS)
def test_ordinary_tensors_are_none_and_nothing_is_asked(name, pieces):
    assert not holds_addresses(OTHERS[name])
    assert pieces == []


@pytest.mark.parametrize("name", LARGE)
def test_large_integers_are_none(name, pieces):
    assert not holds_addresses(LARGE[name])
    assert pieces == [1]


def test_a_number_is_an_address_where_memory_begins(pieces):
    given = {"at": START, "inside": START + 8, "n": 1 << 20, "flag": True, "factor": float(START)}
    assert Protection.names_of_addresses(Arguments(keyword=given)) == ["at"]
    nested = {"tuple": (3, (START, 5)), "list": [START], "by name": {"at": START}, "sizes": (START + 8, [1 << 40])}
    assert Protection.names_of_addresses(Arguments(keyword=nested)) == ["tuple", "list", "by name"]


def test_without_memory_on_a_gpu_nothing_is_an_address():
    tensors = [torch.ones(100_000) for _ in range(3)]
    assert not holds_addresses(whole(*(each.data_ptr() for each in tensors)))


def test_what_torch_lists_becomes_pieces_that_somebody_holds(monkeypatch):
    blocks = [("active_allocated", 512), ("inactive", 1024), ("active_pending_free", 512), ("active_allocated", 2048)]
    listed = [
        {"address": 4 << 40, "blocks": [{"state": state, "size": size} for state, size in blocks]},
        {"address": 3 << 40, "blocks": [{"state": "inactive", "size": 512}]},
        {"address": 2 << 40, "blocks": [{"state": "active_allocated", "size": 1024}]},
    ]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: listed)
    start = 4 << 40
    assert addresses.allocated() == [
        range(2 << 40, (2 << 40) + 1024), range(start, start + 512), range(start + 1536, start + 2048),
        range(start + 2048, start + 4096),
    ]  # fmt: skip

    def none_is_kept():
        raise RuntimeError("this allocator does not yet support snapshot")

    monkeypatch.setattr(torch.cuda, "memory_snapshot", none_is_kept)
    assert addresses.allocated() == []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not holds_addresses(whole(START))


# Tunes


def written(at, steps):
    """Add ones to the memory that an array of addresses names, in `steps` steps."""
    for address in at.tolist():
        values = (ctypes.c_float * 64).from_address(address)
        for first in range(0, 64, steps):
            for place in range(first, min(first + steps, 64)):
                values[place] += 1


def napping(steps):
    return steps


@pytest.fixture
def held(monkeypatch):
    """Tensors of this process whose memory counts as handed out, and the array of their addresses."""
    tensors = [torch.zeros(64) for _ in range(3)]
    pieces = sorted((range(each.data_ptr(), each.data_ptr() + 256) for each in tensors), key=lambda it: it.start)
    monkeypatch.setattr(addresses, "allocated", lambda: pieces)
    return tensors, whole(*(each.data_ptr() for each in tensors))


@pytest.fixture
def no_worker(monkeypatch):
    def started(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(idle_worker, "WorkerProcess", started)


def options(tmp_path):
    return {"space": {"steps": [1, 8]}, "cache_dir": tmp_path}


@pytest.mark.usefixtures("no_worker")
def test_a_tune_in_another_process_is_refused_before_any_work(held, tmp_path):
    tensors, at = held
    with pytest.raises(TargetError, match=r"^the addresses in at of .*written are of this process's.*isolate=False"):
        tune(written, kwargs={"at": at}, isolate=True, **options(tmp_path))
    assert list(tmp_path.rglob("*")) == []
    assert all(not each.any() for each in tensors)


@pytest.mark.usefixtures("no_worker")
def test_a_tune_in_this_process_says_what_is_not_checked(held, tmp_path, caplog):
    tensors, at = held
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = tune(written, kwargs={"at": at}, isolate=False, **options(tmp_path))
    assert result.place == "inline, as asked"
    assert all(each.all() for each in tensors)
    assert "by the addresses in at is neither checked nor restored" in caplog.text


class MayEndItsProcess(FunctionKernel):
    process_imports = ()


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize("isolate", [None, True])
def test_what_code_closes_over_is_neither_sent_nor_tried_here(held, isolate):
    tensors, at = held

    def closed(steps):
        written(at, steps)

    with pytest.raises(TargetError, match=r"^the addresses in a tensor of shape \(3,\) are of this process's"):
        Packed.of(closed)
    assignment = Assignment(
        kernel=MayEndItsProcess(closed), problem=Problem("closed"), device=DeviceSpec("cuda", "it", "sm_90", 132),
        device_name="cuda:0", arguments=CopiedArguments(Arguments()), reference=None, work=None,
        options=TuneOptions(),
    )  # fmt: skip
    with pytest.raises(TargetError, match="the addresses in a tensor"):
        Stations(problem=assignment, options=TuneOptions(isolate=isolate)).begin(assignment)
    assert all(not each.any() for each in tensors)


@pytest.mark.processes
def test_one_problem_of_many_is_refused_and_the_others_are_tuned(held, tmp_path):
    at = held[1]
    other = TuneProblem(target=napping, space={"steps": [1, 8]})
    refused = TuneProblem(target=written, kwargs={"at": at}, space={"steps": [1, 8]})
    result = tune_many([refused, other], isolate=True, cache_dir=tmp_path, told=lambda _: None)
    release_processes()
    assert [outcome.result is None for outcome in result.outcomes] == [True, False]


# Decorated kernels, where they run as Python


def launched(isolate, folder):
    """What a launch of a decorated kernel comes to, if torch says that the addresses are of live memory."""
    import triton

    import triton_ops
    from tests import by_address

    a, b, out, given = by_address.groups()
    pieces = [range(each.data_ptr(), each.data_ptr() + each.nbytes) for each in (*a, *b, *out)]
    addresses.allocated = lambda: sorted(pieces, key=lambda piece: piece.start)
    configs = [triton.Config({"BLOCK": block, "WIDTH": by_address.SIZE}, num_warps=4) for block in (64, 32)]
    kernel = triton_ops.autotune(configs, ["size"], on_miss="tune", isolate=isolate, cache_dir=folder)(
        by_address.products
    )
    before = kernel.why(**given, grid=by_address.grid).found.why
    kernel[by_address.grid](**given)
    decision = kernel.why(**given, grid=by_address.grid)
    noted = kernel.launches.call_of(by_address.grid, (), given).noted
    block = decision.config.kwargs["BLOCK"]
    return before, decision.found.rung, decision.found.why, block, by_address.right(a, b, out), noted


@pytest.mark.triton
def test_a_launch_runs_the_default_and_says_why(interpreted, tmp_path):
    before, rung, why, block, is_right, noted = interpreted(launched, True, str(tmp_path))
    assert "a launch does not tune it, since its arguments hold addresses" in before
    assert (rung, block, is_right) == ("default", 64, True)
    assert "the addresses in a_at, b_at, out_at of tests.by_address:products are of this process's memory" in why
    assert noted == "the addresses in a_at, b_at, out_at are of this process's memory"
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.triton
def test_a_launch_is_tuned_here_where_that_is_asked_for(interpreted, tmp_path):
    before, rung, _, _, is_right, _ = interpreted(launched, False, str(tmp_path))
    assert "a launch tunes it first" in before
    assert (rung, is_right) == ("tuned", True)
