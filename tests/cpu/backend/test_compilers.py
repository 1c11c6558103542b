"""What every compiler can do: it is sent to another process whole, and says of nothing that it is known."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from triton_ops import Config, FunctionKernel, TensorSpec
from triton_ops.backend import Arguments, Compiler, CompilerNeeds, compilers
from triton_ops.exceptions import TargetError
from triton_ops.values import Compiled, Status


@dataclass(frozen=True)
class Doubling(Compiler):
    """A compiler of a front end that answers no more than it must."""

    held: object = 2

    @property
    def name(self):
        return "doubling"

    def compile(self, config):
        return Compiled(config, Status.OK, f"n is {self.held * config['n']}")


CONFIG = Config(n=4)


def test_a_compiler_compiles_where_it_is_made_again_as_it_does_here():
    packed = Doubling(3).pack()
    assert (packed.name, packed.needs) == ("doubling", CompilerNeeds())
    assert packed.load().compile(CONFIG).reason == "n is 12"
    assert Doubling(3).kind == Doubling(3).kind != Doubling(2).kind


def test_a_compiler_that_holds_what_lives_here_alone_cannot_be_sent():
    with pytest.raises(TargetError, match=r"doubling.* cannot be sent to another process"):
        Doubling(threading.Lock()).pack()


def test_a_front_end_that_answers_nothing_more_refuses_and_remembers_nothing():
    compiler = Doubling()
    compiler.remember(compiler.compile(CONFIG))
    assert [compiler.objection(CONFIG), compiler.grid_objection(CONFIG), compiler.recalled(CONFIG)] == [None] * 3
    assert compiler.machine_code(CONFIG) == (None,)
    assert compiler.ready_launch(CONFIG) is False
    assert compiler.work(CONFIG, {}).silent == "what the launches of doubling do is not read from its code"


def test_a_function_that_is_not_compiled_ahead_has_no_compiler():
    assert Compiler.of(FunctionKernel(len), Arguments((TensorSpec((4,), "float32"),)), None, {}) is None


def test_a_server_does_for_those_who_need_as_much_or_less():
    more, less = CompilerNeeds(("triton", "torch")), CompilerNeeds(("triton",))
    assert more >= less
    assert more >= CompilerNeeds(("torch", "triton"))
    assert not less >= more


def test_a_compiling_process_sees_no_gpu_and_the_cache_of_this_one(monkeypatch, tmp_path):
    knobs = pytest.importorskip("triton").knobs.cache
    with knobs.scope():
        knobs.dir = str(tmp_path / "kernels")
        variables = CompilerNeeds.environment()
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    assert [variables[name] for name in hidden] == ["", "", ""]
    assert variables["TRITON_CACHE_DIR"] == str(tmp_path / "kernels")
    monkeypatch.setattr(compilers, "sys", SimpleNamespace(modules={}))  # of a process that has not imported Triton
    assert "TRITON_CACHE_DIR" not in CompilerNeeds.environment()
