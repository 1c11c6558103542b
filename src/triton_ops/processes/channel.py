"""Messages between this process and one that it has started: pickled, each after its length and its checksum.

The code that is tried runs in the other process and can write into every descriptor that is open there. What arrives is
therefore read as far as it is there, without waiting for more than a time limit, and is taken for a message only if its
head and its checksum are right. This finds faults; it is no protection from code that wants to deceive. Where that is
feared, this side reads messages with a reader of its own, which makes plain values and runs nothing.

A container that is paused, a job that is suspended and a group that is stopped take no time from any process in them,
but the system's clocks go on. A limit that passed meanwhile says nothing of the process that is waited for. The clock
is therefore looked at again and again, and what lies between two looks counts at most a second.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import select
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from triton_ops.base import OwnFile

_LOOK_S, _WATCH_S = 0.5, 0.05  # between two looks at the clock, and at what is watched, while something is waited for
_MOST_S = 1.0  # that count between two looks; on a busy machine a look comes late


class AwakeClock:
    """Seconds in which this process ran since the clock was made; `watch` is called at each look at it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, watch: Callable[[], object] | None = None) -> None:
        self._clock, self._watch = clock, watch or (lambda: None)
        self._look_s = _WATCH_S if watch else _LOOK_S
        self._last = clock()
        self._seconds = 0.0

    def now(self) -> float:
        """The seconds so far; to be asked for at least every half second."""
        time_s = self._clock()
        self._seconds += min(time_s - self._last, _MOST_S)
        self._last = time_s
        return self._seconds

    def go_back(self, seconds: float) -> None:
        """Count on from an earlier moment, as if it were now."""
        self.now()
        self._seconds = seconds

    def wait(self, ready: Callable[[float], object], until: float) -> bool:
        """Wait until `ready` is true, or the clock shows `until`; tell whether it is ready.

        `ready` itself waits, for as many milliseconds as it is given at most.
        """
        while not ready(1e3 * max(0.0, min(until - self.now(), self._look_s))):
            if self.now() >= until:
                return False
            self._watch()
        return True


_HEAD = struct.Struct("!4sQI")  # the mark, the number of bytes of the content, and their checksum
_MARK = b"\xf1\xd5\x0b\x9e"  # unlikely in text
_PART = 1 << 16


class Reader(NamedTuple):
    """The way to make a message of its bytes, of which there are at most so many."""

    read: Callable[[bytes], Any]
    most_bytes: int


PICKLES = Reader(pickle.loads, 1 << 30)


class GarbledError(Exception):
    """The bytes that the other process wrote are no message, or none that answers what it was asked."""

    @classmethod
    def other(cls, answer: Any) -> GarbledError:
        """The error of a message that answers something else."""
        return cls(f"an answer to another question, {type(answer).__name__},")


class Channel:
    """This process's end of a connection: it never waits without a limit, and never reads what is no message.

    It closes its files, which may be one. On a `duplex` connection either side sends when it likes, and one
    thread may send while another one receives. `reader` makes messages of what arrives.
    """

    def __init__(self, incoming: OwnFile, outgoing: OwnFile, *, duplex: bool = False, reader: Reader = PICKLES) -> None:
        self._in, self._out, self._duplex, self._reader = incoming, outgoing, duplex, reader
        self._arrived_bytes = bytearray()
        self._unsent: list[memoryview] = []
        # Code that is tried may write half a message, for whose rest a read that blocks would wait without end.
        for file in (incoming, outgoing):
            os.set_blocking(file.fileno(), False)

    @property
    def held(self) -> bool:
        """Tell whether it is open here, which the program may have ended by closing all files that it does not know."""
        return self._in.held and self._out.held

    def begin(self, message: Any) -> None:
        """Send as much of a message as the connection takes at once; `finish` sends the rest.

        A pipe holds only some KiB, so that the other process has to read it meanwhile.
        `GarbledError` if the other process has written something that nobody asked for; `OSError` if it is gone.
        """
        self._check()
        if not self._duplex and (self._arrived_bytes or self._part()):
            raise GarbledError("bytes that nobody had asked for")
        self._unsent = [memoryview(part) for part in _framed(message)]
        self._write()

    def finish(self, clock: AwakeClock, until: float) -> None:
        """Send what `begin` has left; `TimeoutError` at `until`, `OSError` if the other process is gone."""
        self._check()
        while self._unsent:
            if not clock.wait(partial(self._out.ready, select.POLLOUT), until):
                raise TimeoutError
            self._write()

    def receive(self, clock: AwakeClock, until: float) -> Any:
        """The next message; `GarbledError` if what arrived is none.

        `TimeoutError` once the clock shows `until`; `EOFError` or `OSError` if the other process is gone.
        """
        self._check()
        while (content := self._content()) is None:
            if not clock.wait(partial(self._in.ready, select.POLLIN), until):
                raise TimeoutError
            if not self._part():
                raise EOFError
        try:
            return self._reader.read(content)
        except Exception as error:
            raise GarbledError(f"an answer that cannot be read: {error!r}") from error

    def arrives(self, seconds: float) -> bool:
        """Tell whether something waits to be read within so many seconds, or the other process is gone."""
        with contextlib.suppress(OSError):
            return bool(self._arrived_bytes) or self._in.ready(select.POLLIN, 1e3 * seconds)
        return True

    def close(self) -> None:
        """Close the files; a second time, or in another thread meanwhile, does nothing."""
        self._in.close()
        self._out.close()

    def _check(self) -> None:
        if not self.held:
            raise BrokenPipeError("it was ended before")

    def _write(self) -> None:
        while self._unsent:
            try:
                count = os.write(self._out.fileno(), self._unsent[0])
            except BlockingIOError:
                return
            self._unsent[:1] = [rest] if (rest := self._unsent[0][count:]) else []

    def _part(self) -> int:
        """Read what is there; the number of bytes, which is 0 at the end and where nothing is there."""
        try:
            part = os.read(self._in.fileno(), _PART)
        except BlockingIOError:
            return 0
        self._arrived_bytes += part
        return len(part)

    def _content(self) -> bytes | None:
        """Take the first message's content; None while it is not whole, and `GarbledError` if it cannot become one."""
        if not _MARK.startswith(self._arrived_bytes[: len(_MARK)]):
            raise GarbledError("bytes that are no answer")
        if len(self._arrived_bytes) < _HEAD.size:
            return None
        _, length, checksum = _HEAD.unpack(self._arrived_bytes[: _HEAD.size])
        if length > self._reader.most_bytes:
            raise GarbledError("bytes that are no answer")
        if len(self._arrived_bytes) < _HEAD.size + length:
            return None
        content = bytes(self._arrived_bytes[_HEAD.size : _HEAD.size + length])
        if zlib.crc32(content) != checksum:
            raise GarbledError("bytes within its answer")
        del self._arrived_bytes[: _HEAD.size + length]
        return content


class ChildsEnd:
    """The other process's end, which waits as long as it takes; one descriptor may serve both ways."""

    def __init__(self, incoming: int, outgoing: int, write: Callable[[Any], bytes] = pickle.dumps) -> None:
        self._write = write
        for descriptor in (incoming, outgoing):
            os.set_inheritable(descriptor, False)  # a program that is started here shall not hold the connection open
        self._in, self._out = io.BufferedReader(OwnFile(incoming)), OwnFile(outgoing)

    def send(self, message: Any) -> None:
        """Send a message."""
        for part in _framed(message, self._write):
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(self._out.fileno(), rest) :]

    def receive(self) -> Any:
        """The next message; `EOFError` if the connection is closed."""
        head = self._in.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise EOFError
        _, length, _ = _HEAD.unpack(head)
        content = self._in.read(length)
        if len(content) < length:
            raise EOFError
        return pickle.loads(content)

    def messages(self) -> Iterator[Any]:
        """All messages until the connection is closed."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.receive()


def _framed(message: Any, write: Callable[[Any], bytes] = pickle.dumps) -> tuple[bytes, bytes]:
    content = write(message)
    return _HEAD.pack(_MARK, len(content), zlib.crc32(content)), content
