"""The role of a compiler: whatever one raises or answers ends one config, in a process that goes on."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass

import pytest

from triton_ops.backend import Compiler
from triton_ops.compilation import CompilePool
from triton_ops.exceptions import CacheError
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Planted(Compiler):
    """A compiler without a language, which does what a config names."""

    name: str = "planted"

    def compile(self, config):
        fault = config["FAULT"]
        if fault == "where":
            return Compiled(config, Status.OK, f"{sys.argv[-1]} {sys.path[-1]}")
        if isinstance(fault, str):
            raise {"key": KeyError, "memory": MemoryError, "disk": CacheError}[fault](f"planted {fault}")
        return Compiled(config, Status.OK, str(os.getpid())) if fault else None

    def work(self, config, contents):
        raise ValueError(f"planted work of {config} with {dict(contents)}")


def test_what_a_compiler_raises_is_the_end_of_one_config_and_not_of_its_process():
    with CompilePool(Planted(), workers=1) as pool:
        results = [pool.submit(Config(FAULT=fault)).result() for fault in (1, "key", "memory", 2)]
        with pytest.raises(CacheError, match="planted disk"):
            pool.submit(Config(FAULT="disk")).result()
        work = pool.read(Config(FAULT=1), {"ends": (3,)}).result()
        last = pool.submit(Config(FAULT=3)).result()
        nothing = pool.submit(Config(FAULT=0)).result()
    assert [each.status for each in results] == [Status.OK, Status.COMPILE, Status.RESOURCES, Status.OK]
    assert [each.reason for each in results[1:3]] == ["KeyError: 'planted key'", "MemoryError: planted memory"]
    assert work.silent == "ValueError: planted work of FAULT=1 with {'ends': (3,)}"
    assert results[0].reason == results[3].reason == last.reason, "one process answered all"
    assert (nothing.status, nothing.reason) == (
        Status.CRASH,
        "the compiler's process wrote an answer to another question, NoneType, into its connection, and was ended",
    )


def test_a_compiler_has_the_search_path_and_the_words_of_the_process_that_asks(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py", "its-word"])
    monkeypatch.setattr(sys, "path", [*sys.path, "/its/folder"])
    with CompilePool(Planted(), workers=1) as pool:
        assert pool.submit(Config(FAULT="where")).result().reason == "its-word /its/folder"


def test_a_pool_ends_at_once_where_the_system_has_no_thread_left(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    with CompilePool(Planted(), workers=1) as pool:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refused)
            pool.end()
        assert pool._queue.closed
