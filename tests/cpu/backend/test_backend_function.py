"""A Python callable as a kernel: its name, its identity, what it refuses before anything runs, and its calls."""

import functools
import pickle
import platform

import pytest

from triton_ops.backend import Arguments, CandidateError, FunctionKernel
from triton_ops.exceptions import (
    ConfigCollisionError,
    KernelTypeError,
    ShapeMismatchError,
    SpaceError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Status, TensorSpec, Work


def scaled(x, y=1, *, factor=2, shift=0):
    return (x + y) * factor + shift


class Scaler:
    def __call__(self, x, factor=1):
        return x * factor

    def method(self, x, factor=1):
        return x * factor


def bound(kernel, config, *positional, **keyword):
    arguments = Arguments(positional, keyword)
    kernel.check(config, arguments)
    return kernel.compile(config, arguments).launch(arguments)


def test_config_values_arrive_as_keywords_next_to_the_arguments():
    assert bound(FunctionKernel(scaled), Config(factor=10), 1, y=2) == 30
    assert bound(FunctionKernel(scaled), Config(factor=10, shift=1), 1) == 21
    assert bound(FunctionKernel(scaled), Config(y=5), 1) == 12


def test_nothing_is_compiled():
    artifact = FunctionKernel(scaled).compile(Config(factor=1), Arguments())
    assert (artifact.config, artifact.resources, artifact.compile_s) == (Config(factor=1), None, None)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (scaled, "scaled"),
        (functools.partial(scaled, 1), "scaled"),
        (Scaler(), "Scaler"),
        (Scaler().method, "Scaler.method"),
        (functools.lru_cache(scaled), "scaled"),
    ],
)
def test_names(function, name):
    assert FunctionKernel(function).name == f"{__name__}:{name}"
    assert FunctionKernel(function, label="mine").name == "mine"


@pytest.mark.parametrize("thing", [None, 7, "scaled", Config(a=1)])
def test_what_is_not_callable(thing):
    with pytest.raises(KernelTypeError, match="is not callable"):
        FunctionKernel(thing)


def test_identity_names_source_python_and_torch():
    identity = FunctionKernel(scaled).identity
    assert identity["python"] == platform.python_version()
    assert len(identity["source"]) == 32
    assert set(identity) <= {"source", "python", "torch"}


@pytest.mark.parametrize(
    ("positional", "keyword", "names"),
    [((1, 2), {}, ["y"]), ((1,), {"factor": 1}, ["factor"]), ((1,), {}, ["shift", "x"])],
)
def test_a_tunable_that_is_passed_as_well(positional, keyword, names):
    with pytest.raises(ConfigCollisionError, match=f"'{names[-1]}' is both") as caught:
        FunctionKernel(scaled).check(names, Arguments(positional, keyword))
    assert caught.value.hint


def test_a_tunable_that_the_callable_does_not_take():
    with pytest.raises(UnknownTunableError, match=r"no keyword 'fctor'; it takes x, y, factor, shift"):
        FunctionKernel(scaled).check(["fctor"], Arguments((1,)))


def test_any_tunable_goes_where_any_keyword_goes():
    for kernel in (FunctionKernel(lambda **kwargs: kwargs), FunctionKernel(dict)):  # a builtin tells no parameters
        kernel.check(["anything"], Arguments())
        assert kernel.compile(Config(anything=1), Arguments()).launch(Arguments()) == {"anything": 1}


# Operations


def rows_by_columns(M, N=4, *, dtype="fp16"):
    if N % 2:
        raise ShapeMismatchError("N must be even", "even", N)
    return {"x": TensorSpec((M, N), dtype), "scale": 2.0}


def made(**changes):
    from triton_ops.backend import operation

    given = {"space": {"factor": [1, 2]}, "arguments": rows_by_columns, "dtypes": ("fp16", "fp32")}

    @operation(**{**given, **changes})
    def scale(x, scale, factor):
        return x * scale * factor

    return scale


def test_an_operation_from_a_function():
    op = made(name="scale", work=lambda problem: Work(problem["x"].numel))
    assert op.name == "scale"
    assert op.extents == ("M", "N")
    assert op.dtypes == ("float16", "float32")
    problem = op.problem((8, 2), "fp32")
    assert str(problem) == "scale 8x2 float32"
    assert problem["x"] == TensorSpec((8, 2), "float32")
    assert (problem["scale"], op.work(problem).flops) == (2.0, 16)
    assert list(op.space_for(problem)) == [Config(factor=1), Config(factor=2)]


def test_defaults_of_an_operation():
    problem = made(arguments=lambda M=8: {"n": M}, dtypes=()).problem()
    assert problem.label == "8"
    assert problem["n"] == 8
    assert made().problem((8,)).label == "8x4 float16"
    assert made(name=None).name.endswith(":made.<locals>.scale")
    assert made(arguments=lambda: {"n": 1}, dtypes=()).problem().label == "default shape"


def test_a_space_may_follow_the_problem():
    op = made(space=lambda problem: ConfigSpace({"factor": range(1, problem["x"].shape[0])}))
    assert len(list(op.space_for(op.problem((4,))))) == 3


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (None, "needs a shape: MxN"),
        ((), "takes 1 to 2 extents, MxN"),
        ((1, 2, 3), "1x2x3 has 3"),
        ((0, 2), "0x2 of .* has an extent below 1"),
        ((2, 3), "N must be even"),
    ],
)
def test_shapes_that_an_operation_does_not_take(shape, text):
    with pytest.raises(ShapeMismatchError, match=text):
        made().problem(shape)


def test_dtypes_that_an_operation_does_not_take():
    with pytest.raises(UnsupportedDtypeError, match="does not take bfloat16; it takes float16") as e:
        made().problem((2,), "bf16")
    assert e.value.supported_dtypes == ["float16", "float32"]
    with pytest.raises(UnsupportedDtypeError, match="no choice of dtype"):
        made(arguments=lambda M: {"n": M}, dtypes=()).problem((2,), "fp16")
    with pytest.raises(UnsupportedDtypeError, match="'fp17' is not known"):
        made(dtypes=("fp17",))


def test_an_operation_that_is_not_well_defined():
    with pytest.raises(SpaceError, match="cannot be made from 7"):
        made(space=7)
    with pytest.raises(KernelTypeError, match="arguments is 7"):
        made(arguments=7)
    with pytest.raises(KernelTypeError, match="whose parameters cannot be seen"):
        made(arguments=dict)


def test_materialised_arguments_run():
    torch = pytest.importorskip("torch")
    op = made()
    arguments = op.materialise(op.problem((3,), "fp32"), "cpu")
    assert list(arguments.keyword) == ["x", "scale"]
    x = arguments.keyword["x"]
    assert (x.shape, x.dtype) == ((3, 4), torch.float32)
    assert op.kernel.compile(Config(factor=3), arguments).launch(arguments).equal(x * 2 * 3)
    again = op.materialise(op.problem((3,), "fp32"), "cpu")
    assert again.keyword["x"].equal(x)


# Failures


class OutOfResources(Exception):  # noqa: N818
    """Named as Triton's."""


class CompilationError(Exception):
    """Named as Triton's."""


class MyCompilationError(CompilationError):
    pass


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OutOfResources("shared memory"), Status.RESOURCES),
        (MemoryError(), Status.RESOURCES),
        (MyCompilationError("no"), Status.COMPILE),
        (ValueError("no"), Status.RUNTIME),
        (CandidateError(Status.TIMEOUT, "10 s"), Status.TIMEOUT),
    ],
)
def test_errors_are_sorted_into_a_status(error, status):
    result = CandidateError.of(error, Status.RUNTIME)
    assert result.status is status
    again = pickle.loads(pickle.dumps(result))
    assert (again.status, str(again)) == (status, str(result))


def test_torchs_memory_error_is_a_lack_of_resources():
    torch = pytest.importorskip("torch")
    error = torch.OutOfMemoryError("CUDA out of memory")
    assert CandidateError.of(error, Status.RUNTIME).status is Status.RESOURCES


def test_one_line_of_an_error_that_only_points_at_a_call_is_that_of_its_cause():
    outer = ValueError("at 3:23:\n    y = helper(x)\n        ^")
    outer.__cause__ = TypeError("at 2:4:\n    f(x)\n    ^\ntoo large")
    assert CandidateError.one_line(outer) == "TypeError: at 2:4: … too large"
    outer.__cause__ = None
    assert CandidateError.one_line(outer) == "ValueError: at 3:23: … y = helper(x)"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError("at 3:\n\n  code\n  why"), "ValueError: at 3: … why"),
        (ValueError("same\nsame"), "ValueError: same"),
        (
            ValueError("<ir.builder object at 0x7f3a5c0b1d30> is no tensor"),
            "ValueError: <ir.builder object> is no tensor",
        ),
        (ValueError("x" * 500), "ValueError: " + "x" * 387 + "…"),
        (
            RuntimeError("Subprocess failed:\n  File x\nSyntaxError: bad\n\nSet TORCHDYNAMO_VERBOSE=1 for the stack."),
            "RuntimeError: Subprocess failed: … SyntaxError: bad",
        ),
    ],
)
def test_one_line_keeps_the_first_and_the_last(error, line):
    assert CandidateError.one_line(error) == line
    assert len(CandidateError.one_line(error)) <= 400
