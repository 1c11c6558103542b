"""A host that compiles for others, in threads of the process that runs the tests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from triton_ops.compilation import CompileHost, OtherHost, pool


class Beside:
    """A host in threads of this process, which tells what it was asked; `lies` may change its answers."""

    def __init__(self, cpus=2, name="other"):
        self.asked, self.lies = [], {}
        self.host, self._threads = CompileHost(), ThreadPoolExecutor(8)
        self.handle = OtherHost(name=name, cpus=cpus, ask=self.ask)

    def ask(self, what, *given):
        """Begin with an answer."""
        self.asked.append(what)
        return self._threads.submit(self.answer, what, *given)

    def answer(self, what, *given):
        """What the host answers, or its lie."""
        lie = self.lies.get(what, lambda answer: answer())
        return lie(lambda: getattr(self.host, what)(*given))

    def goes_first(self, monkeypatch):
        """Have pools that know other hosts compile nothing themselves before this host was asked for a binary."""
        compiled, fetched = pool.CompilePool._compiled, threading.Event()

        def waits(self, config):
            if self._shared_cpus is not None:
                assert fetched.wait(100), "the other host has made nothing"
            return compiled(self, config)

        def fetch(answer):
            fetched.set()
            return answer()

        self.lies["fetch"] = fetch
        monkeypatch.setattr(pool.CompilePool, "_compiled", waits)

    def end(self):
        """Wait for all answers."""
        self._threads.shutdown()
        self.host.end()
