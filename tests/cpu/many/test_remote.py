"""Executors in processes of their own: what goes there and comes back, and what becomes of a process that ends."""

from __future__ import annotations

import logging
import pickle
import queue
from types import SimpleNamespace

import pytest

from triton_ops.many import Job
from triton_ops.many.executor import ChildExecutor, RemoteExecutor
from triton_ops.processes import WorkerLostError
from triton_ops.request import Effort
from triton_ops.tuner import Silent

QUICK = Effort.named("quick")


def result(place, **more):
    return SimpleNamespace(gain=1.25, from_cache=False, stopped="complete", unproven="", place=place.device, **more)


class MemoryLink:
    """Both sides in this process: what is told and heard is pickled."""

    def __init__(self):
        self.news, self.gone, self.orders = queue.SimpleQueue(), "", []
        level, self.handlers = logging.getLogger("triton_ops").level, list(logging.getLogger("triton_ops").handlers)
        self.child = ChildExecutor(
            lambda news: self.news.put(pickle.dumps(news)), "cuda:7", 2, overlaps=True, level=level
        )

    def tell(self, message):
        if self.gone:
            raise WorkerLostError(self.gone, "")
        self.orders.append(message)
        self.child.carry_out(pickle.loads(pickle.dumps(message)))

    def hear(self, seconds):
        try:
            news = self.news.get(timeout=min(seconds, 0.01))
        except queue.Empty:
            news = None
        if self.gone:
            raise WorkerLostError(self.gone, "")
        return None if news is None else pickle.loads(news)

    def kill(self):
        self.gone = self.gone or "it was killed"


@pytest.fixture
def link():
    log = logging.getLogger("triton_ops")
    before = log.level, log.propagate, list(log.handlers)
    yield MemoryLink()
    log.setLevel(before[0])
    log.propagate, log.handlers[:] = before[1], before[2]


def job(name, tune):
    return Job(name=name, label=name, kernel="k", problem=0, tune=tune)


def executor_over(link, listener_of=lambda _: Silent(), **more):
    return RemoteExecutor(link, listener_of, QUICK, **more)
