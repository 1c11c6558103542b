"""A TARGET that is a kernel: its launch by a function, which is run without a device, is what a command looks at."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
import triton

from triton_ops.backend import Operation, Packed
from triton_ops.exceptions import KernelTypeError, SettingsError, ShapeMismatchError, TargetError, UnknownTunableError
from triton_ops.typed import TypedProblem, TypedTarget
from triton_ops.values import TensorSpec

pytestmark = pytest.mark.triton

FILE = str(Path(__file__).parents[2] / "launched_kernels.py")


def loaded(name, shape="1000", arg=None, space=None, dtype=None, gpu="H100"):
    """The operation of a kernel of the file at its launch."""
    problem = TypedProblem.of(shape, dtype, space, arg)
    return TypedTarget(f"{FILE}:{name}", problem=problem, gpu=gpu).load()


@pytest.fixture(scope="module")
def said():
    """What one look at the file says on stderr, with a kernel that its top launches."""
    import contextlib
    import io

    with contextlib.redirect_stderr(io.StringIO()) as err:
        operation = loaded("alone", shape=None)
    return operation, err.getvalue()


def configs_of(operation):
    return [dict(config) for config in operation.space]


def test_a_statement_that_fails_is_told_and_hides_no_other(said):
    operation, err = said
    lines = [line for line in err.splitlines() if "left out" in line]
    assert len(lines) == 2
    assert f"{FILE}, line " in lines[0]
    assert ": wrong is left out: KernelTypeError: 3 of type int is not callable" in err
    assert "a statement is left out: AssertionError: a check that fails" in lines[1]
    assert operation.values["x_ptr"] == TensorSpec((1000,), "float32")  # of the first statement that launches it
    assert [config["BLOCK"] for config in operation.space] == [64]


def test_driver_and_torch_are_as_they_were_after_a_file_was_read(said):
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    assert said
    assert driver._active is None
    assert JITFunction.run.__module__ == "triton.runtime.jit"
    assert torch.cuda.is_available.__module__ == "torch.cuda"
    assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("name", ["listed", "ours", "above", "below"])
def test_the_list_of_a_decorator_is_the_space(name):
    operation = loaded(name)
    named = "BLOCK" if name != "below" else "num_warps"
    assert [config[named] for config in configs_of(operation)] == ([64, 128] if named == "BLOCK" else [1, 2])
    expected = {"x_ptr": TensorSpec((1000,), "float32"), "out_ptr": TensorSpec((1000,), "float32"), "n": 1000}
    assert operation.values == expected | ({"EVEN": False} if name == "above" else {})
    config = operation.space.default_config
    grid = operation.kernel.grid({**operation.values, **config})
    assert grid == ((1,) if name == "below" else (triton.cdiv(1000, config["BLOCK"]),))


def test_another_process_is_sent_a_launch_without_its_decorator():
    launch = loaded("listed")
    sent = Packed.loaded(Packed.of(launch, by_value=True).content)
    assert (type(sent), sent.device, configs_of(sent)) == (Operation, launch.device, configs_of(launch))
    assert sent.problem().arguments == launch.problem().arguments


def test_the_grid_of_a_value_that_a_list_lacks_is_known():
    asked = TypedTarget(f"{FILE}:listed", problem=TypedProblem.of("1000", space=["BLOCK=32"]), gpu="H100")
    operation, space, _, _ = asked.tuned(asked.load())
    assert [(config["BLOCK"], config["num_warps"]) for config in space] == [(32, 4), (32, 8)]
    assert {operation.kernel.grid({**operation.values, **config}) for config in space} == {(32,)}
    assert operation.kernel.grid({**operation.values, **operation.space.default_config}) == (16,)
    wrong = replace(asked, problem=TypedProblem.of("1000", space=["BLOK=32"]))
    with pytest.raises(UnknownTunableError, match="has no tunable BLOK"):
        wrong.tuned(wrong.load())


def test_a_kernel_without_a_decorator_has_the_config_of_its_launch_or_a_given_space():
    assert configs_of(loaded("plain")) == [{"BLOCK": 256, "num_warps": 2}]
    chosen = loaded("plain", space=["BLOCK=64,128", "num_stages=1,2"])
    assert [config["BLOCK"] for config in configs_of(chosen)] == [64, 64, 128, 128]
    assert {config["num_warps"] for config in configs_of(chosen)} == {2}
    assert chosen.kernel.grid({"BLOCK": 64, "num_warps": 2, "num_stages": 1}) == (16,)
    assert configs_of(loaded("computed")) == [{"num_warps": 2}]
    with pytest.raises(Exception, match=r"plain has no tunable BLOK; close are BLOCK"):
        loaded("plain", space=["BLOK=64"])


def test_what_a_function_reads_from_a_tensor_is_there_where_values_are_given():
    arg = ["x=64x128:fp32", "pages=32:int32:shuffled", "ends=[0,16,32]:int32", "dtype=torch.float16"]
    operation = loaded("gather", shape=None, arg=arg)
    assert operation.values["out_ptr"] == TensorSpec((32, 128), "float16")
    tensors = operation.materialise(operation.problem(), "cpu").keyword
    assert tensors["ends_ptr"].tolist() == [0, 16, 32]
    assert sorted(tensors["pages_ptr"].tolist()) == list(range(32))
    with pytest.raises(TargetError, match=r"cannot be run without a device up to its launch: .*line \d+"):
        loaded("gather", shape="64x128,32", arg=["ends=[]:int32", "dtype=torch.float16"])


def test_the_backward_of_a_class_is_run_by_its_gradient():
    operation = loaded("gradient", shape="1000", arg=["scale=2.0"])
    assert configs_of(operation) == [{"BLOCK": 128, "num_warps": 4}]
    assert operation.values["x_ptr"] == TensorSpec((1000,), "float32")


def test_what_a_warmed_kernel_tells_is_known_before_it_is_launched():
    operation = loaded("warmed", shape="64x128")
    (programs, _, _) = operation.kernel.grid({**operation.values, "BLOCK": 128, "num_warps": 4})
    assert programs % 132 == 0
    assert programs > 132


def test_the_function_is_named_after_an_at(tmp_path):
    other = tmp_path / "elsewhere.py"
    other.write_text("import sys\nrun = lambda n: sys.modules['launched_kernels'].double(n)\n")
    assert loaded("plain@double").values == loaded(f"plain@{other}:run").values
    assert loaded("plain@double").values == loaded("plain@Tripled.apply", arg=["scale=2.0"]).values
    with pytest.raises(TargetError, match=r"has no function 'nobody' that launches plain"):
        loaded("plain@nobody")
    with pytest.raises(TargetError, match=r"double does not launch plain with these arguments"):
        loaded("listed@double")


AROUND = ["hidden", "Tripled", "Tripled.forward", "all_in_a_thread", "in_a_thread_of_its_own"]


@pytest.mark.parametrize("function", ["threaded@in_a_thread", *(f"plain@{name}" for name in AROUND)])
def test_a_launch_is_reached_whatever_is_around_it(function):
    arg = ["scale=2.0"] if "Tripled" in function else None
    assert loaded(function, arg=arg).values == loaded("plain@double").values


def test_the_backward_of_a_class_is_named():
    assert loaded("gradient@Tripled.backward", arg=["scale=2.0"]).values == loaded("gradient", arg=["scale=2.0"]).values


def test_a_method_is_given_its_object():
    assert loaded("of_method", arg=[f"self={FILE}:doubling"]).values["n"] == 1000
    with pytest.raises(ShapeMismatchError, match=r"needs 2 arguments \(self, x\).* --arg NAME=VALUE is for others"):
        loaded("of_method@Doubling.forward")


def test_values_that_nobody_gave_are_told_and_launch_no_empty_grid(caplog):
    assert loaded("valued@by_values", arg=["ends=3:int32"]).values["n"] == 1000
    assert "by_values cannot be run on tensors without values" in caplog.text
    with pytest.raises(TargetError, match=r"plain is launched with no programs: its grid is \(0,\)"):
        loaded("valued@by_values", shape="1000,3")


def test_a_function_that_exits_is_an_error():
    with pytest.raises(TargetError, match=r"exits cannot be run without a device up to its launch: SystemExit: 4"):
        loaded("plain@exits")


@pytest.mark.parametrize("end", ["", "raise SystemExit(4)\n"])
def test_no_garbage_is_looked_for_while_a_target_is_imported(tmp_path, end):
    (tmp_path / "collecting.py").write_text(f"import gc\n\n\ndef then(on=gc.isenabled()):\n    return on\n\n\n{end}")
    assert TypedTarget(f"{tmp_path / 'collecting.py'}:then").object()() is False
    assert gc.isenabled()
    (tmp_path / "again.py").write_text("then = 1\n")
    gc.disable()
    try:
        assert TypedTarget(f"{tmp_path / 'again.py'}:then").object() == 1
        assert not gc.isenabled(), "it stays as a program has set it"
    finally:
        gc.enable()


def test_a_nested_decorator_is_named(tmp_path):
    path = tmp_path / "nested_tuners.py"
    path.write_text(
        "import triton\nfrom tests.decorated_kernels import theirs\n"
        "twice = triton.autotune([triton.Config({}, num_stages=2)], key=[])(theirs)\n"
        "def launch(x):\n    twice[(1,)](x, x, 1)\n"
    )
    with pytest.raises(KernelTypeError, match=r"theirs has two decorators that tune, one around the other"):
        TypedTarget(f"{path}:twice", problem=TypedProblem.of("4")).load()


def test_a_function_that_takes_any_keyword_is_given_those_that_are_typed():
    operation = loaded("configured", arg=["BLOCK=128", "num_warps=2"])
    assert configs_of(operation) == [{"BLOCK": 128, "num_warps": 2}]


@pytest.mark.parametrize(
    ("arg", "error", "message"),
    [
        (["x"], SettingsError, "--arg 'x' is not NAME=VALUE"),
        (["y=4:fp32"], KernelTypeError, r"double has no argument y; it has x \(hint: correct the name in --arg\)"),
        (["x=[1,[2]]"], SettingsError, "is no values of a tensor"),
        (["x=[1,"], SettingsError, "is no list of numbers"),
        (["x=8:int32:offsets:many"], SettingsError, "the total 'many' is no whole number"),
        (["x=8:int32:sorted"], SettingsError, "fill is 'sorted'; it must be one of"),
        (["x=torch.float17"], SettingsError, "torch has no float17"),
        (["x=nothing.npy"], SettingsError, "nothing.npy cannot be read: No such file or directory"),
        (["x=no_module:f"], TargetError, "there is no module no_module"),
        ([], Exception, r"double needs 1 argument \(x\); --shape gives 0"),
    ],
)
def test_an_argument_that_cannot_be_understood_is_an_error(arg, error, message):
    with pytest.raises(error, match=message):
        loaded("plain", shape=None, arg=arg)


def test_arguments_replace_those_of_an_operation(tmp_path):
    import numpy

    numpy.savez(tmp_path / "all.npz", ends=numpy.array([0, 5, 9], dtype=numpy.int32), other=numpy.zeros(2))
    (tmp_path / "with_offsets.py").write_text(
        "from triton_ops import Operation, TensorSpec\n"
        "def run(ends, n, B):\n    return ends\n"
        "op = Operation('op', run, {'B': [1]}, lambda n=3: {'ends': TensorSpec((n,), 'int32'), 'n': n})\n"
    )
    asked = TypedTarget(
        f"{tmp_path}/with_offsets.py:op", problem=TypedProblem.of("3", arg=[f"ends={tmp_path}/all.npz#ends"])
    )
    operation, _, shape, _ = asked.tuned(asked.load())
    assert shape == (3,)
    assert operation.extents == ("n",)
    problem = operation.problem(shape)
    assert operation.materialise(problem, "cpu").keyword["ends"].tolist() == [0, 5, 9]
    strange = TypedTarget(asked.text, problem=TypedProblem.of("3", arg=["starts=[0]"]))
    with pytest.raises(KernelTypeError, match=r"op has no argument starts; it has ends, n"):
        strange.tuned(strange.load())


@pytest.mark.processes
def test_commands_take_a_kernel_at_its_launch(cli):
    ran = cli("explain", f"{FILE}:plain@double", "--arg", "x=4096x4096:fp16", "--gpu", "H100", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["config"]) == (0, {"BLOCK": 256, "num_warps": 2})
    assert told["problem"] == "launched_kernels:plain 4096x4096 float16, 4096x4096 float16"


def test_other_values_of_what_a_launch_brings_are_read_for_a_tune_and_around_a_list_where_that_is_asked_for():
    def space(name, widen):
        return TypedTarget(f"{FILE}:{name}", problem=TypedProblem.of("1000"), gpu="H100", widen=widen).load().space

    assert space("plain", None).size.total == 1, "other commands look at what is launched"
    read = space("plain", False)
    assert read.default_config == space("plain", None).default_config == read.seeds[0]
    assert len(read.tunables["BLOCK"]) > 2
    assert space("listed", False).listed is not None
    wide = space("listed", True)
    assert [*wide.seeds] == [*space("listed", None)]
    assert len(wide.tunables["BLOCK"]) > len(space("listed", None).tunables["BLOCK"])
    assert space("above", True).tunables.keys() == space("above", None).tunables.keys(), "what heuristics compute stays"


def test_a_kernel_under_a_decorator_without_a_list_has_the_space_of_its_launch(tmp_path):
    path = tmp_path / "unlisted.py"
    path.write_text(
        Path(FILE).read_text(encoding="utf-8").partition("@triton.heuristics")[0]
        + "unlisted = triton_ops.autotune(key=['n'])(plain)\n\n\n"
        + "def copy(x):\n    unlisted[grid_of(x)](x, torch.empty_like(x), x.numel())\n",
        encoding="utf-8",
    )
    space = TypedTarget(f"{path}:unlisted", tmp_path, TypedProblem.of("1000"), gpu="H100").load().space
    assert (space.tiles, space.made_up) == (("BLOCK",), True)


@pytest.mark.parametrize(
    ("name", "function"),
    [("listed", "double_by_list"), ("ours", "double_by_ours"), ("plain@double", "double"), ("double", "double")],
)
def test_a_kernel_is_called_by_the_function_that_launches_it(name, function):
    assert TypedTarget(f"{FILE}:{name}", gpu="H100").called().__name__ == function


def test_a_kernel_without_such_a_function_is_not_called():
    with pytest.raises(TargetError, match="no function of its file launches it"):
        TypedTarget(f"{FILE}:alone", gpu="H100").called()
