"""A function called in a forked child."""

import os
import signal
import warnings


def status_of_a_child(function):
    """The exit status of a forked child that calls a function; -14 if it has not ended within 20 s."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads that are left behind
        child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            function()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
