"""A fork server that the tests of a process share: what it imports and reads takes seconds of a CPU."""

from triton_ops.compile_pool.fork_server import ForkServer
from triton_ops.hardware import named_target


class Lent:
    """A fork server as a compile pool knows it, except that it outlives the pool."""

    def __init__(self, server: ForkServer) -> None:
        self.fork, self.code_of, self.last_line = server.fork, server.code_of, server.last_line
        self._server = server

    @property
    def alive(self) -> bool:
        return self._server.alive

    def kill(self) -> None:
        """Nothing: the pool has ended the processes that it asked for, and the server stays."""

    def close(self) -> None:
        """Nothing."""


class Lender:
    """Makes fork servers as `ForkServer` does, and lends one and the same to all who need Triton alone.

    Its environment is that of the test that needed it first.
    """

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def __call__(self, imports, target):
        return ForkServer(imports, target) if imports else Lent(self.server())

    def server(self) -> ForkServer:
        if self._server is None or not self._server.alive:
            self._server = ForkServer("", named_target("sm_90"))
        return self._server

    def end(self) -> None:
        if self._server is not None:
            self._server.close()
