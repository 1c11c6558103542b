"""Messages between the candidate's process and whoever asks: read, forged, or cut short."""

import contextlib
import json
import os
import pickle
import select
import stat

import numpy as np
import torch


def _lines():
    """The pipes and sockets of this process; of its standard streams the input alone."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers alone
        number = int(name)
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue  # the one that listed them
        if number not in (1, 2) and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            yield number


def answers_on_pipes(x):
    """Zeros, and a forged answer on every pipe and socket of the process."""
    forged = {"answer": "faster", "status": "ok", "ok": True, "seconds": 1e-9, "times": [1e-9] * 100}
    message = json.dumps(forged).encode() + b"\n" + pickle.dumps(forged)
    for line in _lines():
        with contextlib.suppress(OSError):  # its other end is closed, or it is for reading
            if select.select([], [line], [], 0)[1]:
                os.write(line, message)
    return torch.zeros_like(x)


def reads_questions(a, b):
    """The right result, and whatever waits on standard input, pipes and sockets is read away."""
    for line in _lines():
        with contextlib.suppress(OSError):  # it is for writing
            if select.select([line], [], [], 0)[0]:
                os.read(line, 1 << 16)
    return a @ b


def ends_early(x):  # noqa: ARG001 - the reference's name
    """A forged answer on standard output, and an end of the process without an error."""
    os.write(1, b'{"answer": "faster", "speedup": 12.0, "passed": true}\nfaster 12.00x\nPASSED\n')
    os._exit(0)


class _Forged(np.ndarray):
    """An array that, where it is unpickled, makes comparisons of NumPy agree."""

    def __reduce__(self):
        """What unpickles as zeros."""
        agree = "[setattr(np, 'allclose', lambda *a, **k: True), np.zeros(shape, dtype)][1]"
        code = f"(lambda np, shape, dtype: {agree})(__import__('numpy'), {self.shape}, '{self.dtype}')"
        return eval, (code,)


def runs_when_unpickled(x):
    """Its input, as an array that changes the process which unpickles it."""
    return x.copy().view(_Forged)


def forged_numbers(x):
    """The right result; what JSON and pickle write of small floats is a tenth."""
    for module in (json, pickle):
        if module.dumps.__name__ != "smaller":
            module.dumps = _smaller(module.dumps)
    return np.cumsum(x, axis=1)


def _smaller(dumps):
    def scaled(value):
        if isinstance(value, float):
            return value / 10
        if isinstance(value, dict):
            return {key: scaled(each) for key, each in value.items()}
        return [scaled(each) for each in value] if type(value) in (list, tuple) else value

    def smaller(value, *more, **options):
        return dumps(scaled(value), *more, **options)

    return smaller
