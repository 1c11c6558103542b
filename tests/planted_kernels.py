"""Triton kernels whose compiler aborts, hangs, exits or prints, where the config says so; for tests of compiling."""

import os
import signal
import time

import triton
import triton.language as tl

from tests.torchless import write_where_possible


class Trouble:
    """What happens while a kernel is compiled; in an object, since Triton looks into functions."""

    def __eq__(self, other):
        return isinstance(other, Trouble)

    __hash__ = None

    def __getitem__(self, kind):
        if kind == "abort":
            os.write(2, b"LLVM ERROR: planted\n")
            os.abort()
        if kind == "hang":
            time.sleep(600)
        if kind == "slow":
            time.sleep(1)
        if kind == "exit":
            os._exit(3)
        if kind == "raise":
            raise ValueError("planted, too")
        if kind == "write":
            write_where_possible(4)
        if kind == "print":
            print("printed by a compiler")  # noqa: T201 - as Triton prints PTX
        return 0


TROUBLE = Trouble()


@triton.constexpr_function
def trouble(kind):
    return TROUBLE[kind]


@triton.jit
def planted(x, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    zero: tl.constexpr = trouble(KIND)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n, other=zero) + 1, mask=i < n)


def deadly_grid(meta):
    """Ends the process that asks for one of its configs."""
    if meta["KIND"] == "deadly":
        os.kill(os.getpid(), signal.SIGSEGV)
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def grid(meta):
    """One program for each block; here, since a compiler process that imports the tests' modules imports torch, too."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)
