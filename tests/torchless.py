"""What tests send to workers, in a module without torch: a worker that needs no torch starts in a fifth of the time."""

import os
import time

_LAUNCHES = {"deadly": 0}


def dies_in_the_race(*, ms, deadly):
    """Lives through its trial, and dies when it is launched more often."""
    _LAUNCHES["deadly"] += deadly
    if _LAUNCHES["deadly"] > 8:
        os.abort()
    time.sleep(ms * 1e-3)


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


class CalledWhenUnpacked:
    """An object that calls a function instead of being made again where it is sent to."""

    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        return self.function, ()
