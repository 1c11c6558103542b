"""What tests send to workers, in a module without torch: a worker that needs no torch starts in a fifth of the time."""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
import zlib
from enum import Enum
from pathlib import Path

from triton_ops.evaluation.questions import WorkerAnswer
from triton_ops.processes.channel import _HEAD, _MARK
from triton_ops.processes.worker_process import StepStarted
from triton_ops.space import Config
from triton_ops.values import Status, Trial

_LAUNCHES = {"deadly": 0, "left": 0, "hidden": 0}


def dies_in_the_race(*, ms, deadly):
    """Lives through its trial, and dies when it is launched more often."""
    _LAUNCHES["deadly"] += deadly
    if _LAUNCHES["deadly"] > 8:
        os.abort()
    time.sleep(ms * 1e-3)


class Mode(Enum):
    """What a tunable may be."""

    FAST = 1
    SLOW = 2


def takes_a_mode(*, mode):
    """Takes a member, and not its name."""
    if not isinstance(mode, Mode):
        raise TypeError(f"{mode!r} was given")


def raises(*_, **__):
    """A reference that fails."""
    raise ValueError("no")


def aborts(*_, **__):
    """A reference that takes its process with it."""
    os.abort()


def never_ends():
    """What is still being loaded when patience ends."""
    while True:
        time.sleep(1)


def says_and_exits():
    """What ends its process while it is loaded, after a last word."""
    os.write(1, b"these are its last words\n")
    os._exit(7)


def says_what_is_imported():
    """What cannot be loaded, and says whether a module is there that this package does not import."""
    raise RuntimeError("colorsys is imported" if "colorsys" in sys.modules else "colorsys is not there")


class CalledWhenUnpacked:
    """An object that calls a function instead of being made again where it is sent to."""

    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        return self.function, ()


def writes_where_it_can(*, count):
    """Writes so many bytes into every descriptor that it finds open, beside the standard ones."""
    time.sleep(1e-3)
    write_where_possible(count)


def write_where_possible(count):
    for path in list(Path("/proc/self/fd").iterdir()) if count else []:
        if int(path.name) > 2:
            with contextlib.suppress(OSError):
                os.set_blocking(int(path.name), False)
                os.write(int(path.name), b"x" * count)


def sends_a_message(*, message):
    """Writes a whole message into every descriptor that takes one: a number, or an answer with another value."""
    time.sleep(1e-3)
    messages = {
        "number": 7, "nothing": None, "answer": WorkerAnswer(value="fast"), "step": StepStarted([]),
        "error": WorkerAnswer(error=1),
        "facts": WorkerAnswer(value=None, facts=3),
        "other": WorkerAnswer(value=Trial(Config(message="none"), Status.RUNTIME, error="x")),
    }  # fmt: skip
    if message in messages:
        content = pickle.dumps(messages[message])
        whole = _HEAD.pack(_MARK, len(content), zlib.crc32(content)) + content
        for path in list(Path("/proc/self/fd").iterdir()):
            if int(path.name) > 2:
                with contextlib.suppress(OSError):
                    os.set_blocking(int(path.name), False)
                    os.write(int(path.name), whole)


def crashes_beside_a_child(*, deadly):
    """Ends its process, whose child holds open all that it had open."""
    time.sleep(1e-3)
    if deadly:
        if not os.fork():
            time.sleep(600)
        os.abort()


def littered(*, n):
    """A call that leaves a temporary file, and ends its process or does not come back for one config each."""
    os.close(tempfile.mkstemp()[0])
    if n == 2:
        os._exit(3)
    while n == 3:
        time.sleep(1)


def leaves_processes(*, how):
    """Starts a process that leaves its group and its session, or its parent as well."""
    time.sleep(1e-3)
    if how == "session" and not _LAUNCHES["left"]:
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        _LAUNCHES["left"] += 1
    if how == "daemon" and not _LAUNCHES["left"]:
        _LAUNCHES["left"] += 1
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        os.setsid()
        if not os.fork():
            time.sleep(600)
        os._exit(0)


def closes_its_output(*, turn):
    """Nothing that is written gets to whoever started this process."""
    with Path(os.devnull).open("wb") as nowhere:
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    return turn > 0


def hides_a_process(*, file):
    """Starts a process that leaves its group and its parent, has no environment, and writes its id into a file."""
    time.sleep(1e-3)
    if not _LAUNCHES["hidden"]:
        _LAUNCHES["hidden"] += 1
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            while not Path(file).exists():
                time.sleep(1e-3)
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve("/bin/sh", ["sh", "-c", 'echo $$ > "$0~"; mv "$0~" "$0"; exec sleep 600', file], {})
