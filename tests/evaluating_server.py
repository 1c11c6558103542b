"""The program of a fork server whose processes answer expressions with their values."""

from __future__ import annotations

from tests.evaluating_worker import NAMES
from triton_ops.processes import ForkRequests


def main():
    """Answer until the socket is closed."""
    ForkRequests().answer(serve)


def serve(connection):
    """Answer one process's questions."""
    for text in connection.messages():
        connection.send(eval(text, dict(NAMES)))
