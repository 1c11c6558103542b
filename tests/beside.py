"""A host that compiles for others, in threads of the process that runs the tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from triton_ops.compile_pool.compile_host import CompileHost
from triton_ops.compile_pool.other_hosts import OtherHost


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

    def end(self):
        """Wait for all answers."""
        self._threads.shutdown()
        self.host.end()
