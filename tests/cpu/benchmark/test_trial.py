"""A candidate in a process of its own: its results, its time, what it can reach, and how what goes wrong is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy
import pytest
import torch

from tests.limits import eventually
from triton_ops import release_processes
from triton_ops.backend import Arguments
from triton_ops.base import Process
from triton_ops.benchmark.trial import Sides, TrialLimits, TrialProcess, Values
from triton_ops.benchmark.trial_child import Leaf, Place, UnusableError
from triton_ops.exceptions import DeviceError
from triton_ops.typed import TypedTarget

HOSTILE = Path(__file__).parents[2] / "hostile.py"
PAGE = 4096

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="needs files in memory that have seals"),
]


def trial(name="run", outputs=(), arena_bytes=1 << 20, **limits):
    target = TypedTarget(f"{HOSTILE}:{name}")
    return TrialProcess(
        target, device="cpu", outputs=outputs, limits=TrialLimits(**{"start_s": 600, "call_s": 600, **limits}),
        arena_bytes=arena_bytes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def hostile():
    """One process for all candidates that do not end it; the next question starts another one after an end."""
    with trial() as process:
        yield process
    release_processes()


def asked(process, name, *args, **kwargs):
    return process.run([Arguments((name, *args), kwargs)])


def one(process, name, *args, **kwargs):
    """The result of one call, which is not refused."""
    block = asked(process, name, *args, **kwargs)
    assert block.refused == ""
    return block.results[0]


def refused(process, name, *args, **kwargs):
    block = asked(process, name, *args, **kwargs)
    assert (block.results, block.wall_ns) == ((), 0)
    return block.kind, block.refused


X = torch.arange(6.0)


def double_(x, bias):
    """Written in place, as a user's own function, which goes to the process by its module's name."""
    return x.mul_(2).add_(bias)


def test_a_function_of_torch_or_numpy_and_one_that_writes_in_place_give_results_times_and_echoes(hostile):
    several = [Arguments(("plain", torch.randn(4, 6).t()[::2])) for _ in range(5)]
    block = hostile.run(several)
    assert (block.refused, block.changed, block.aliases) == ("", ((),) * 5, (((),),) * 5)
    for call, result in zip(several, block.results, strict=True):
        x = call.positional[1]
        assert torch.equal(result, x + 1)
        assert result.stride() == (x + 1).stride()
    assert block.wall_ns > block.calls_ns > 0
    assert hostile.echo(several, block.results) > 0
    arrays = [Arguments(("plain", numpy.arange(12.0).reshape(3, 4)[::-1, 1:])) for _ in range(2)]
    for call, result in zip(arrays, hostile.run(arrays).results, strict=True):
        assert numpy.array_equal(result, call.positional[1] + 1)
    assert hostile.lacking == ()
    with TrialProcess(double_, device="cpu", outputs=("0",), arena_bytes=1 << 16) as process:
        call = Arguments((X,), {"bias": X[1:2]})
        block = process.run([call, call])
        assert all(torch.equal(value, 2 * X + 1) for result in block.results for value in result)
        assert (block.changed, block.aliases[0]) == (((), ()), (("0", "result 1"), ("0", "result 0")))
        assert torch.equal(X, torch.arange(6.0))
        assert process.echo([call], block.results[:1]) > 0


def test_results_keep_their_structure_dtypes_and_values(hostile):
    kinds = one(hostile, "other", X, "kinds")
    assert kinds["a"] == [1, 2.5, True, None, "x"]
    scalar, array, half = kinds["b"]
    assert (type(scalar), scalar, array.shape) == (numpy.float64, 0.5, ())
    assert torch.equal(half, X.bfloat16()[::2])
    assert torch.equal(one(hostile, "other", X, "conjugate"), (X * 1j).conj().resolve_conj())
    assert [tuple(each.shape) for each in one(hostile, "other", X, "empty")] == [(0,), (3, 0)]


def test_results_that_repeat_their_elements_are_written_out():
    with TrialProcess(torch.broadcast_to, device="cpu", arena_bytes=1 << 12) as process:
        (result,) = process.run([Arguments((X, (4, 6)))]).results
    assert torch.equal(result, X.expand(4, 6))
    with TrialProcess(numpy.broadcast_to, device="cpu", arena_bytes=1 << 12) as process:
        (result,) = process.run([Arguments((X.numpy(), (4, 6)))]).results
    assert numpy.array_equal(result, X.expand(4, 6).numpy())


# Borders


def test_what_a_candidate_can_reach(hostile):
    reached = one(hostile, "reaches", numpy.zeros(2), os.getpid())
    assert reached.tolist() == [1] * len(reached)
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_trials_of_one_fork_server_share_packages_and_nothing_of_the_user_or_of_each_other(monkeypatch):
    monkeypatch.setenv("SECRET_OF_A_TEST", "hidden")
    with trial() as first, trial() as second:
        found, other = (one(each, "inherits", X) for each in (first, second))
        server = Process(found["parent"])
        assert (other["parent"], server.parent, server.tasks) == (server.pid, os.getpid(), 1)
        assert b"SECRET_OF_A_TEST" not in server.environment
        assert "SECRET_OF_A_TEST" not in found["variables"]
        assert not {found["folder"], *found["seeds"]} & {other["folder"], *other["seeds"]}
        assert (found["tasks"], found["files"]) == (1, other["files"])
        for each, child in ((first, found), (second, other)):
            mark = each._own._process._family
            assert mark in child["variables"]
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: Process(first._own._process.pid).ended)
        assert refused(first, "plain", X)[0] == "ended"
        assert one(first, "inherits", X)["parent"] != server.pid


def test_arenas_have_their_size_and_inputs_their_values_for_good(hostile):
    for _ in range(2):
        assert torch.equal(one(hostile, "shortens", X), X + 1)


def test_bytes_that_a_candidate_writes_into_its_connection_run_nothing_here(hostile, tmp_path):
    for name, more in (("forges_a_pickle", [str(tmp_path / "planted")]), ("forges_garbage", [])):
        kind, text = refused(hostile, name, X, *more)
        assert kind == "ended"
        assert "into its connection" in text
    assert not list(tmp_path.iterdir())
    assert torch.equal(one(hostile, "plain", X), X + 1), "another process is started"


@pytest.mark.parametrize(
    ("forged", "used"),
    [
        (("torch", "float32", [1 << 40], [0], 0), 4),
        (("torch", "float32", [1 << 40], [4], 0), PAGE),
        (("torch", "float32", [4], [-4], 0), PAGE),
        (("torch", "float32", [4], [4], 2), PAGE),
        (("torch", "float32", [4], [4], PAGE - 4), PAGE),
        (("torch", "nn", [4], [4], 0), PAGE),
        (("torch", "__class__", [4], [4], 0), PAGE),
        (("array", "float64", [2], [-8], 0), PAGE),
        (("array", "object", [2], [8], 0), PAGE),
        (("array", "bfloat16", [2], [2], 0), PAGE),
        (("array", "float64", [2, 2], [8], 0), PAGE),
        (("array", "float64", [1 << 62, 4], [0, 0], 0), PAGE),
        (("torch", "float32", [0, 1 << 63], [1 << 63, 0], 0), PAGE),
        (("array", "float64", [0, 4], [8], 1 << 60), PAGE),
    ],
)
def test_a_result_lies_in_what_was_written(forged, used):
    memory = numpy.ones(2 * PAGE, "u1")
    values = Values(Place("cpu"), memory.ctypes.data, used)
    with pytest.raises(UnusableError):
        values.of_all([Leaf(*forged)])


def test_results_are_together_no_larger_than_what_was_written():
    memory = numpy.ones(2 * PAGE, "u1")
    leaf = Leaf("array", "uint8", [PAGE], [1], 0)
    assert Values(Place("cpu"), memory.ctypes.data, PAGE).of_all([leaf])[0].sum() == PAGE
    with pytest.raises(UnusableError):
        Values(Place("cpu"), memory.ctypes.data, PAGE).of_all([leaf] * 2)


def test_a_forged_answer_is_refused_at_once(hostile):
    kind, text = refused(hostile, "forges", X, "torch", "float32", [1 << 40], [0], 0, 4)
    assert kind == "type"
    assert text.startswith("what its process tells cannot be: shape [1099511627776]")


def test_time_that_does_not_pass_in_the_process_passes_here(hostile):
    block = asked(hostile, "stops_clocks", X)
    assert block.wall_ns > block.calls_ns > 100_000_000
    refused(hostile, "leaves", X, 0)


# Results that are none


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ("sparse", "a tensor that is not strided, torch.sparse_coo, is returned"),
        ("meta", "a tensor on meta is returned"),
        ("nested", "is returned"),
        ("object", "a value of type builtins.object is returned"),
        ("objects", "the dtype 'object' is not known"),
        ("matrix", "a value of type numpy.matrix is returned"),
        ("generator", "a value of type builtins.generator is returned"),
    ],
)
def test_a_result_of_another_type_is_refused(hostile, which, text):
    kind, told = refused(hostile, "other", X, which)
    assert kind == "type"
    assert told.endswith(text)


def test_a_subclass_that_would_compute_later_is_refused(hostile):
    assert refused(hostile, "lazy", X) == ("type", "a value of type hostile.Lazy is returned")


def test_what_a_thread_writes_after_the_return_is_not_in_the_result(hostile):
    assert torch.equal(one(hostile, "writes_later", X), torch.zeros(6))


def test_results_over_the_memory_of_arguments_and_of_each_other_are_told(hostile):
    square = X.reshape(2, 3)
    assert asked(hostile, "views", square, torch.ones(2, 3)).aliases == (
        (("1",), ("2", "result 3"), (), ("2", "result 1")),
    )
    assert asked(hostile, "halves", numpy.ones(5)).aliases == (((), ()),)


def test_arguments_that_were_changed_are_told(hostile):
    block = asked(hostile, "changes", X, numpy.ones(3), w=torch.ones(4))
    assert block.changed == (("2", "w"),)


# Ends


def test_what_is_too_large_is_refused(hostile):
    assert refused(hostile, "large", X, 1 << 20) == ("type", "they are too large: there is memory for 1,048,576 bytes")
    kind, text = refused(hostile, "plain", torch.ones(1 << 19))
    assert (kind, text) == ("memory", "of the arguments they are too large: there is memory for 1,048,576 bytes")
    assert refused(hostile, "other", X, "huge")[0] == "raised"
    assert refused(hostile, "other", X, "deep")[0] == "raised"


def test_an_exception_is_told_without_what_a_terminal_would_obey(hostile):
    kind, text = refused(hostile, "raises", X, "\x1b[31mred" + "long" * 1000)
    assert kind == "raised"
    assert text.startswith("ValueError: \\x1b[31mred")
    assert len(text) <= 400
    assert refused(hostile, "raises", X, "") == ("raised", "_UnspeakableError")
    assert refused(hostile, "exits", X) == ("raised", "SystemExit: 3")
    assert torch.equal(one(hostile, "plain", X), X + 1), "the process goes on"


def test_no_part_of_the_candidate_runs_while_others_are_tried(hostile):
    pid = one(hostile, "spins", X)
    state = Path(f"/proc/{pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    assert torch.equal(one(hostile, "plain", X), X + 1)


def test_processes_that_hide_end_with_the_trial(hostile):
    pids = one(hostile, "forks", X, 20)
    assert not any(Process(int(pid)).ended for pid in pids)
    assert refused(hostile, "leaves", X, 7) == ("ended", "its process exited with code 7 during its block")
    eventually(lambda: all(Process(int(pid)).ended for pid in pids))


def test_a_gigabyte_of_output_is_read_and_forgotten(hostile):
    assert torch.equal(one(hostile, "prints", X, 1 << 10), X + 1)


def test_what_hangs_crashes_or_takes_all_memory_is_told_as_such_and_another_process_starts():
    with trial(call_s=2.0, memory_bytes=3 << 30) as process:
        begin_s = time.monotonic()
        assert refused(process, "hangs", X) == ("hung", "its block did not end within 2 s")
        assert refused(process, "takes_memory", X)[0] == "memory"
        assert refused(process, "takes_memory_of_torch", X)[0] == "memory"
        assert refused(process, "leaves", X, -11) == ("ended", "its process was killed by SIGSEGV during its block")
        assert torch.equal(one(process, "plain", X), X + 1)
        assert time.monotonic() - begin_s < 600
    assert not process._own._process


@pytest.mark.parametrize("way", ["shared_maps", "files", "forks"])
def test_memory_that_no_limit_of_a_process_counts_is_told_as_too_much_and_nothing_is_left(way):
    with trial(memory_bytes=1 << 30) as process:
        kind, text = refused(process, f"takes_memory_in_{way}", X)
        assert (kind, text) == ("memory", "its processes took more than 1,073,741,824 bytes together")
        assert torch.equal(one(process, "plain", X), X + 1), "another process is started"


def test_memory_that_short_calls_leave_taken_is_counted():
    with trial(memory_bytes=1 << 30) as process:
        blocks = (asked(process, "takes_memory_in_forks_of_short_calls", X) for _ in range(200))
        assert next(block for block in blocks if block.refused).kind == "memory"


def test_a_block_has_one_limit_for_all_its_steps():
    with trial() as process:
        assert one(process, "plain", X).shape == X.shape
        block = process.run([Arguments(("hangs", X))], 0.5)
        assert (block.kind, block.refused) == ("hung", "its block did not end within 1 s")


def test_a_candidate_that_cannot_be_imported_or_that_is_not_there_is_told_by_its_error():
    for text, told in (
        (f"{HOSTILE.parent / 'hostile_at_import.py'}:run", "planted"),
        (f"{HOSTILE}:nothing", "nothing"),
    ):
        with TrialProcess(TypedTarget(text), device="cpu", outputs=(), arena_bytes=PAGE) as process:
            kind, words = refused(process, X)
            assert kind == "start"
            assert told in words


def test_the_process_of_the_reference_ends_if_that_of_the_candidate_cannot_begin():
    ended = []
    reference = ExitStack()
    reference.callback(ended.append, "reference")

    def made(is_candidate):
        if is_candidate:
            raise DeviceError("no process can be had")
        return reference

    with pytest.raises(DeviceError, match="no process"), Sides(made):
        pass
    assert ended == ["reference"]
