"""Messages between processes: what is no message ends a wait, and a pause of this process is no time."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.torchless import closes_its_output, crashes_beside_a_child, sends_a_message, writes_where_it_can
from triton_ops import Status, tune
from triton_ops.base import OwnFile
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.evaluation.idle_worker import new as new_worker
from triton_ops.processes import GarbledError, WorkerLostError
from triton_ops.processes.channel import AwakeClock, Channel, ChildsEnd
from triton_ops.processes.child import pipe
from triton_ops.request import Patience


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    here = OwnFile(ours.detach())
    channel, there = Channel(here, here), os.dup(theirs.fileno())
    yield channel, ChildsEnd(there, there), theirs
    channel.close()
    theirs.close()


def send(channel, message, seconds=5.0):
    channel.begin(message)
    channel.finish(AwakeClock(), seconds)


def received(channel, seconds=5.0):
    return channel.receive(AwakeClock(), seconds)


def test_messages_go_both_ways_in_their_order_and_of_any_size(ends):
    channel, childs, _ = ends
    for message in ("first", b"x" * 100, {"n": 1}):
        send(channel, message)
        assert childs.receive() == message
        childs.send(message)
        childs.send("more")
        assert [received(channel), received(channel)] == [message, "more"]


def test_threads_that_close_a_channel_at_the_same_time_close_its_descriptors_once(ends, monkeypatch):
    channel, closed = ends[0], []

    def close_as_another_thread_does(descriptor):
        closed.append(descriptor)
        if len(closed) < 3:
            channel.close()

    close = os.close
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close_as_another_thread_does)
        channel.close()
    assert len(closed) == 1
    close(closed[0])


def test_a_message_that_does_not_fit_is_begun_and_finished_later(ends):
    channel, childs, _ = ends
    for message in (b"x" * 100, os.urandom(1 << 23)):
        channel.begin(message)
        rest = threading.Thread(target=channel.finish, args=(AwakeClock(), 60.0))
        rest.start()
        assert childs.receive() == message
        rest.join()
    channel.begin(os.urandom(1 << 23))
    with pytest.raises(TimeoutError):
        channel.finish(AwakeClock(), 0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no call for it")
def test_a_pipe_to_a_new_process_takes_a_large_part_of_a_message_at_once():
    reader, writer = pipe(large=True)
    channel, childs = Channel(reader, writer), ChildsEnd(os.dup(reader.fileno()), os.dup(writer.fileno()))
    channel.begin(os.urandom(1 << 19))
    assert not channel._unsent
    assert len(childs.receive()) == 1 << 19
    channel.close()


def test_a_message_in_parts_is_waited_for_and_its_end_is_noticed(ends):
    channel, childs, theirs = ends
    childs.send("whole")
    whole = os.read(channel._in.fileno(), 1 << 16)
    theirs.sendall(whole[:9])
    with pytest.raises(TimeoutError):
        received(channel, 0.05)
    theirs.sendall(whole[9:])
    assert received(channel) == "whole"
    theirs.sendall(whole[:9])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        received(channel)


@given(st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_message_end_the_wait(stray):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(*[OwnFile(os.dup(ours.fileno()))] * 2)
        theirs.sendall(stray)
        ChildsEnd(os.dup(theirs.fileno()), os.dup(theirs.fileno())).send("an answer")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises((GarbledError, EOFError)):
            received(channel)


@pytest.mark.parametrize("place", [0, 4, 11, 15, 20])
def test_a_message_with_bytes_within_it_is_none(ends, place):
    channel, childs, theirs = ends
    childs.send("an answer of some length")
    whole = os.read(channel._in.fileno(), 1 << 16)
    theirs.sendall(whole[:place] + b"xxxx" + whole[place:] + whole)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises((GarbledError, EOFError)):
        received(channel)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_message_of_which_one_bit_of_its_content_is_another_is_none(message, data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(*[OwnFile(os.dup(ours.fileno()))] * 2)
        ChildsEnd(os.dup(theirs.fileno()), os.dup(theirs.fileno())).send(message)
        whole = bytearray(os.read(channel._in.fileno(), 1 << 16))
        begin = bytes(whole).rindex(message)  # within the pickle, so that it stays one
        whole[begin + data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        theirs.sendall(whole)
        with pytest.raises(GarbledError, match="bytes within its answer"):
            received(channel)


def test_a_head_that_no_message_has_ends_the_wait_before_anything_follows_it(ends):
    channel, _, theirs = ends
    theirs.sendall(struct.pack("!4sQI", b"\xf1\xd5\x0b\x9e", (1 << 30) + 1, 0))
    with pytest.raises(GarbledError, match="bytes that are no answer"):
        received(channel)


@pytest.mark.parametrize("length", [0, 5, 16, 20])
def test_the_other_side_waits_for_whole_messages_and_notices_the_end(ends, length):
    channel, childs, theirs = ends
    send(channel, "first")
    assert childs.receive() == "first"
    peer = socket.socket(fileno=os.dup(channel._out.fileno()))
    ChildsEnd(os.dup(peer.fileno()), os.dup(peer.fileno())).send("a second one")
    whole = theirs.recv(1 << 16)
    peer.sendall(whole + whole[:length])
    peer.shutdown(socket.SHUT_WR)
    assert list(childs.messages()) == ["a second one"]
    peer.close()


def test_what_has_arrived_is_told_without_reading_it(ends):
    channel, childs, _ = ends
    assert not channel.arrives(0.0)
    childs.send("answer")
    childs.send("another")
    assert channel.arrives(5.0)
    assert received(channel) == "answer"
    assert channel.arrives(0.0), "it has been read already"
    assert received(channel) == "another"
    assert not channel.arrives(0.0)
    channel.close()
    assert channel.arrives(0.0), "nothing more can come"


def test_a_message_that_cannot_be_unpickled_is_none(ends):
    channel, _, theirs = ends
    content = b"no pickle"
    theirs.sendall(struct.pack("!4sQI", b"\xf1\xd5\x0b\x9e", len(content), zlib.crc32(content)) + content)
    with pytest.raises(GarbledError, match="an answer that cannot be read: UnpicklingError"):
        received(channel)


def test_what_was_written_before_a_question_is_no_answer_to_it(ends):
    channel, _, theirs = ends
    theirs.sendall(b"x")
    with pytest.raises(GarbledError, match="nobody had asked for"):
        send(channel, "question")


def test_a_closed_channel_says_so(ends):
    channel, _, _ = ends
    channel.close()
    channel.close()
    for call in (lambda: send(channel, "x"), lambda: received(channel)):
        with pytest.raises(BrokenPipeError):
            call()


class Seconds:
    """A system's clock that goes on by given steps, one at each look."""

    def __init__(self, *steps):
        self.steps, self.now = list(steps), 100.0

    def __call__(self):
        self.now += self.steps.pop(0) if self.steps else 0.25
        return self.now


def test_the_clock_counts_at_most_a_second_between_two_looks():
    clock = AwakeClock(Seconds(0.0, 0.25, 3600.0, 0.5, 0.75))
    assert [clock.now() for _ in range(4)] == [0.25, 1.25, 1.75, 2.5]


def test_a_wait_ends_at_its_limit_after_a_pause():
    reading, writing = os.pipe()
    ready = select.poll()
    ready.register(reading, select.POLLIN)
    clock = AwakeClock(Seconds(0.0, 0.25, 3600.0))
    assert not clock.wait(ready.poll, 1.5)
    assert 1.5 <= clock.now() < 2.5
    os.write(writing, b"x")
    assert clock.wait(ready.poll, 0.0), "what is there counts, even late"
    os.close(reading)
    os.close(writing)


def test_a_wait_ends_at_the_moment_of_its_limit():
    looks = []
    clock = AwakeClock(Seconds())
    assert not clock.wait(looks.append, 1.0)
    assert clock.now() == 1.25, "no further look at the clock"
    assert looks == [500.0, 250.0]


def test_what_is_watched_is_looked_at_during_a_wait_and_may_end_it():
    looks, watched = [], []

    def watch():
        watched.append(1)
        if len(watched) == 3:
            raise MemoryError

    clock = AwakeClock(Seconds(), watch)
    with pytest.raises(MemoryError):
        clock.wait(looks.append, 100.0)
    assert looks == [50.0] * 3


PATIENCE = Patience(launch_s=4.0, trial_s=20.0)


@pytest.mark.processes
def test_configs_that_write_into_the_connection_end_their_trials():
    counts = (0, 1, 4, 100, 100_000)
    space = [{"count": count} for count in counts]
    result = tune(writes_where_it_can, space=space, device="cpu", isolate=True, patience=PATIENCE)
    trials = {trial.config["count"]: trial for trial in result.trials}
    assert {count: trial.status for count, trial in trials.items()} == {
        count: Status.CRASH if count else Status.OK for count in counts
    }
    for count in counts[1:]:
        assert "bytes that are no answer into its connection during its launch" in trials[count].error
    assert result.best_config == {"count": 0}


@pytest.mark.processes
def test_a_worker_lives_on_when_its_output_is_closed():
    result = tune(closes_its_output, space={"turn": [1, 2, 3]}, device="cpu", isolate=True)
    assert [trial.status for trial in result.trials] == [Status.OK] * 3, result.trials


@pytest.mark.processes
def test_configs_that_send_messages_which_answer_nothing_end_their_trials():
    messages = ("none", "number", "nothing", "answer", "step", "error", "facts", "other")
    space = [{"message": message} for message in messages]
    result = tune(sends_a_message, space=space, device="cpu", isolate=True, patience=PATIENCE)
    trials = {trial.config["message"]: trial for trial in result.trials}
    assert {message: trial.status for message, trial in trials.items()} == {
        message: Status.OK if message == "none" else Status.CRASH for message in messages
    }
    for message in messages[1:]:
        assert "wrote an answer to another question" in trials[message].error
    assert result.best_config == {"message": "none"}


@pytest.mark.processes
def test_a_crash_is_noticed_while_a_child_holds_the_connection_open():
    space = [{"deadly": False}, {"deadly": True}]
    result = tune(crashes_beside_a_child, space=space, device="cpu", isolate=True, patience=PATIENCE)
    assert [trial.status for trial in result.trials] == [Status.OK, Status.CRASH]
    assert "was killed by SIGABRT during its launch" in result.trials[1].error


@pytest.mark.processes
def test_a_question_after_stray_bytes_blames_nothing_that_it_asks_for():
    worker = new_worker(Needs((), ""))
    worker._channel._arrived_bytes += b"x"  # as an earlier trial's thread may have written it
    with pytest.raises(WorkerLostError, match="wrote bytes that nobody had asked for") as caught:
        worker.ask("question", 60.0, {}, "start")
    assert caught.value.outside
