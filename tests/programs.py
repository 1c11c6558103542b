"""Programs that begin with torch and Triton imported: forked from one process, whose imports take seconds of a CPU.

For programs whose own imports are not what a test is about. Each is a process of its own, with its environment, folder,
search path and streams, is the main module of its process, and ends as any other. What is started is a small process
that waits for it: it ends as the program does, and the program ends where it is killed.

This file runs as three programs: the one that has imported torch, the small one, and those that are forked.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys

IMPORTS = ("torch", "triton", "triton.language")
_STREAMS = (0, 1, 2)


class Programs:
    """Starts the process that programs are forked from, once one is needed; `command` stands for `python`."""

    def __init__(self):
        self._folder, self._process = None, None

    @property
    def command(self):
        """The words that begin a command, before `-c TEXT`, `-m MODULE` or a file."""
        if not hasattr(os, "pidfd_open"):
            return (sys.executable,)
        if self._process is None:
            self._begin()
        return (sys.executable, "-I", "-S", __file__, "ask", self._address)

    def _begin(self):
        import subprocess
        import tempfile

        self._folder = tempfile.TemporaryDirectory()  # tests' own are too deep for the address of a socket
        self._address = f"{self._folder.name}/programs"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, __file__, "serve", str(listener.fileno())],
                env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHONP", "TRITON"))},
                stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
            )  # fmt: skip

    def close(self):
        """End the process; programs that run go on."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(30)
            self._folder.cleanup()


def ask(address, words):
    """Have a program run, and end as it does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"f"], _STREAMS)
        folder = os.getcwd()  # noqa: PTH109 - an import of pathlib would take longer than all else here
        connection.sendall(pickle.dumps((words, folder, dict(os.environ))))
        connection.shutdown(socket.SHUT_WR)
        code = pickle.loads(connection.recv(100))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(listener):
    """Fork programs until the other side of stdin closes; returns in them alone, with what each is to do."""
    asked, watch = {}, select.poll()  # who asked for a program, and its handle and number, by both descriptors
    watch.register(0)
    watch.register(listener.fileno(), select.POLLIN)
    while 0 not in (ready := dict(watch.poll())):
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
            with connection.makefile("rb") as stream:
                question = pickle.load(stream)
            if not (program := os.fork()):
                for number, stream in zip(_STREAMS, streams, strict=True):
                    os.dup2(stream, number)
                _close_all()
                return question
            for each in streams:
                os.close(each)
            handle = os.pidfd_open(program)
            asked[handle] = asked[connection.fileno()] = connection, handle, program
            watch.register(handle, select.POLLIN)
            watch.register(connection, select.POLLHUP)
        for each in ready.keys() & asked.keys():
            _end(asked, watch, each)
    os._exit(0)


def _close_all():
    """Close what programs do not have open: who listens, who asked for others, and copies of streams."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _end(asked, watch, descriptor):
    """End a program whose end, or the end of who asked for it, was seen at a descriptor; say how it ended."""
    if descriptor not in asked:  # both at the same time
        return
    connection, handle, program = asked[descriptor]
    if descriptor != handle:
        os.kill(program, signal.SIGKILL)
    for each in (connection.fileno(), handle):
        watch.unregister(each)
        del asked[each]
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with connection, contextlib.suppress(OSError):
        connection.sendall(pickle.dumps(code))
    os.close(handle)


def begin(words, folder, environment):
    """Be the program: as `python` with these words, in that folder and environment."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    kind, paths = words[0], [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    first = {"-c": "", "-m": folder}.get(kind, str(Path(folder, kind).parent))
    sys.path[:] = [first, *paths, *sys.path[1:]]
    if kind == "-m":
        sys.argv[:] = words[1:]
        runpy._run_module_as_main(words[1])
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "-c":
        sys.argv[:], text, name = ["-c", *words[2:]], words[1], "<string>"
    else:
        sys.argv[:], text, name = words, Path(kind).read_text(encoding="utf-8"), kind
        main.__file__ = name
    exec(compile(text, name, "exec"), vars(main))


def exit_code(run, *args):
    """The exit code of Python where a program ends as this call does, whose error is written."""
    try:
        run(*args)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - whatever it is, it is the program's
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(codes):
    """End the process where all else has ended: Python would also free what torch has, which takes half a second."""
    leave, code = os._exit, codes[0]
    sys.stdout.flush()
    sys.stderr.flush()
    vars(sys.modules["__main__"]).clear()  # its objects may have something to end
    leave(code)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3:])
    else:
        # What the small process does not need is imported here.
        import atexit
        import gc
        import importlib
        import runpy
        from pathlib import Path
        from types import ModuleType

        for name in IMPORTS:
            importlib.import_module(name)
        gc.freeze()
        question, codes = serve(socket.socket(fileno=int(sys.argv[2]))), []
        atexit.register(end, codes)  # the first, which is called last
        codes.append(exit_code(begin, *question))
