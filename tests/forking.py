"""A fork server that the tests of a process share: what it imports and reads takes seconds of a CPU."""

from triton_ops.backend.triton_compiler import TritonNeeds
from triton_ops.compilation.pool import compiler_server
from triton_ops.device import Target
from triton_ops.processes import ForkServer


class Lent:
    """A fork server as a compile pool knows it, except that it outlives the pool."""

    def __init__(self, server: ForkServer) -> None:
        self.fork, self.code_of, self.last_line = server.fork, server.code_of, server.last_line
        self._server = server

    @property
    def alive(self) -> bool:
        return self._server.alive

    @property
    def ended_from_outside(self) -> bool:
        return self._server.ended_from_outside

    def kill(self) -> None:
        """Nothing: the pool has ended the processes that it asked for, and the server stays."""

    def close(self) -> None:
        """Nothing."""


def wait_for(server: ForkServer) -> None:
    """Wait until a server has begun to fork, and has started all that it keeps."""
    child = server.fork()
    child._channel.close()
    child._errors.close()
    child.wait(10)


class Lender:
    """Makes fork servers as `compiler_server` does, and lends one and the same to all who need the same packages.

    Their environment is that of the test that needed them first.
    """

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], ForkServer] = {}

    def __call__(self, needs):
        return Lent(self.server(needs.imports))

    def server(self, imports=("triton",)) -> ForkServer:
        """The server that has imported these packages, which runs from now on."""
        if imports not in self._servers or not self._servers[imports].alive:
            self._servers[imports] = compiler_server(TritonNeeds(imports, Target.named("sm_90")))
        return self._servers[imports]

    def wait(self) -> None:
        """Wait until the server that has imported Triton alone is ready."""
        wait_for(self.server())

    def end(self) -> None:
        for server in self._servers.values():
            server.close()
