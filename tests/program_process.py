"""The process that has imported torch and Triton, programs that are forked from it, and the small ones that wait."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys

IMPORTS = ("torch", "triton", "triton.language")
PARENT = "the number of the parent"  # where a program finds that
_MOST = 16  # open files


def ask(address, files, words):
    """Have a program run with these open files beside its streams, and end as it does."""
    files = [0, 1, 2, *map(int, files.split(",") if files else ())]
    folder = os.getcwd()  # noqa: PTH109 - an import of pathlib would take longer than all else here
    is_leader = os.getsid(0) == os.getpid()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"f"], files)
        connection.sendall(pickle.dumps((files, is_leader, (words, folder, dict(os.environ)))))
        connection.shutdown(socket.SHUT_WR)
        code = pickle.loads(connection.recv(100))
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(listener):
    """Fork programs until the other side of stdin closes; returns in them alone, with what each is to do."""
    asked, watch = {}, select.poll()  # who asked for a program, its handle and its number, by both descriptors
    watch.register(0)
    watch.register(listener, select.POLLIN)
    while 0 not in (ready := dict(watch.poll())):
        for each in ready.keys() & asked.keys():
            _end(asked, watch, each)
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        _, descriptors, _, _ = socket.recv_fds(connection, 1, _MOST)
        with connection.makefile("rb") as stream:
            files, is_leader, question = pickle.load(stream)
        if not (program := os.fork()):
            if is_leader:
                os.setsid()
            for each in (listener, connection, *(each for each, _, _ in asked.values())):
                each.detach()  # its number may be that of one of the program's files
            _take(dict(zip(files, descriptors, strict=True)))
            return question
        for each in descriptors:
            os.close(each)
        handle = os.pidfd_open(program)
        asked[handle] = asked[connection.fileno()] = connection, handle, program
        watch.register(handle, select.POLLIN)
        watch.register(connection, select.POLLHUP)
    os._exit(0)


def _take(descriptors):
    """Give files the numbers that they have in the small process, and close what else is open."""
    above = 1 + max(*descriptors, *descriptors.values())
    copies = {number: fcntl.fcntl(each, fcntl.F_DUPFD, above) for number, each in descriptors.items()}
    for number, each in copies.items():
        os.dup2(each, number)
    for number in {int(each.name) for each in Path("/proc/self/fd").iterdir()} - {*copies}:
        with contextlib.suppress(OSError):
            os.close(number)


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


def run(words, folder, environment):
    """Be the program: as `python` with these words, in that folder and environment."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    words = [str(os.getppid()) if word == PARENT else word for word in words]
    if words[0] == "-W":
        warnings.simplefilter(words[1])
        words = words[2:]
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


def exit_code(call, *args):
    """The exit code of Python where a program ends as this call does, whose error is written."""
    try:
        call(*args)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
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
        ask(sys.argv[2], sys.argv[3], sys.argv[4:])
    # What the small process does not need is imported here.
    import atexit
    import contextlib
    import fcntl
    import gc
    import importlib
    import runpy
    import select
    import warnings
    from pathlib import Path
    from types import ModuleType

    for module in (*IMPORTS, *sys.argv[3:]):
        importlib.import_module(module)
    gc.freeze()
    task, exit_codes = serve(socket.socket(fileno=int(sys.argv[2]))), []
    atexit.register(end, exit_codes)  # the first, which is called last
    exit_codes.append(exit_code(run, *task))
