"""What is typed for a command: texts become spaces, configs, shapes and arguments, or are refused with the way out."""

from __future__ import annotations

import json
import os
import sys
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.backend import FunctionKernel, Operation
from triton_ops.exceptions import (
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import ConfigSpace
from triton_ops.typed import TypedProblem, named_object
from triton_ops.typed.problem import module_at, parse_config, parse_pairs, parse_shapes, parse_space
from triton_ops.values import TensorSpec

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,4}", fullmatch=True)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["relu", "fast", "a-b", "x y"]),
)
spaces = st.dictionaries(names, st.lists(scalars, min_size=2, max_size=4), min_size=1, max_size=3)


def alike(one, other):
    return repr(one) == repr(other)  # 1, 1.0 and True are three values


@given(spaces)
def test_a_space_is_read_as_it_is_typed(space):
    typed = [f"{name} = {' , '.join(map(str, values))}" for name, values in space.items()]
    assert alike(parse_space(typed), space)


@given(spaces)
def test_a_space_of_json_is_that_object_typed_or_in_a_file(tmp_path_factory, space):
    text = json.dumps(space)
    path = tmp_path_factory.mktemp("space") / "space.json"
    path.write_text(text)
    assert alike(parse_space([text]), space)
    assert alike(parse_space([str(path)]), space)


def test_lists_in_json_are_values_and_nothing_typed_is_no_space():
    assert parse_space(['{"TILE": [[1, 2], [3, 4]]}']) == {"TILE": [(1, 2), (3, 4)]}
    assert parse_space(None) is None
    assert parse_space([]) is None


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        (["BM"], "is not NAME=value,value", "BM=64,128"),
        (["=1"], "is not NAME=value,value", "BM=64,128"),
        (["BM= "], "is not NAME=value,value", "BM=64,128"),
        (["BM=1,,2"], "has an empty value", "BM=64,128"),
        (["BM=1", "BM=2"], "names BM twice", "BM=value,value"),
        (["BM=16..128"], "is a range", "BM=16,32,64,128"),
        (["BM=16-100"], "is a range", "BM=16,32,64"),
        (["BM=7:3"], "is a range", "such as --space BM=7,3"),
        (['{"BM": [1]}', "BN=1"], "stands alone", "every tunable"),
        (["{"], "cannot be read as JSON", '{"BM": [64, 128]}'),
        (['{"BM": 1}'], "is no object of lists", '{"BM": [64, 128]}'),
        (["there-is-none.json"], "cannot be read", "check the path"),
    ],
)
def test_what_is_no_space_is_refused_with_one_that_is(typed, message, hint):
    with pytest.raises(SpaceError, match=message) as refused:
        parse_space(typed)
    assert hint in refused.value.hint


def test_a_long_text_is_shown_by_its_begin():
    with pytest.raises(SpaceError) as refused:
        parse_space(["{" + "x" * 1000])
    assert "{" + "x" * 199 + "…" in str(refused.value)
    with pytest.raises(SpaceError) as refused:
        parse_space(["{" + "x" * 199])
    assert "…" not in str(refused.value), "200 characters are shown"


@given(st.dictionaries(names, scalars, min_size=1, max_size=4), st.data())
def test_a_config_is_read_in_one_text_in_several_and_as_json(config, data):
    parts = [f"{name}={value}" for name, value in config.items()]
    at = data.draw(st.integers(0, len(parts)))
    several = [",".join(some) for some in (parts[:at], parts[at:]) if some]
    assert alike(parse_config([",".join(parts)], "--config"), config)
    assert alike(parse_config(several, "--config"), config)
    assert alike(parse_config([json.dumps(config)], "--config"), config)


@pytest.mark.parametrize("typed", [["BM"], ["BM=1,64"], ["BM=1", "BM=2"], ["{"], ['{"BM": 1}', "BN=1"], ["BM="]])
def test_what_is_no_config_is_refused(typed):
    with pytest.raises(SpaceError, match="is not NAME=value,NAME=value with each name once"):
        parse_config(typed, "--config")
    assert parse_config([], "--config") is None


@given(st.dictionaries(names, st.sampled_from(["1", "a=b", "x:y"]), max_size=3))
def test_pairs_are_split_at_their_first_equals_sign(pairs):
    assert parse_pairs([f" {name} = {value} " for name, value in pairs.items()], "--arg", "x=1") == pairs


@pytest.mark.parametrize("typed", [["x"], ["=1"], ["x="], ["x=1", "x=2"], [" =1"]])
def test_what_is_no_pair_is_refused(typed):
    with pytest.raises(SettingsError, match="is not NAME=VALUE with each name once") as refused:
        parse_pairs(typed, "--arg", "x=1")
    assert refused.value.hint == "--arg x=1"


@given(st.lists(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3))
def test_shapes_are_read_as_they_are_typed(shapes):
    assert parse_shapes(",".join("x".join(map(str, shape)) for shape in shapes)) == shapes
    assert parse_shapes(None) == []


@pytest.mark.parametrize("text", ["", "0", "4x0", "4x-1", "4x", "a", "4,", "4.5"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(ShapeMismatchError, match="whole numbers of 1 or more"):
        parse_shapes(text)


def typed_argument(text, dtype=None):
    return TypedProblem.of(None, dtype, None, [f"x={text}"]).arguments["x"]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("4x8", TensorSpec((4, 8), "float32")),
        ("4x8:bf16", TensorSpec((4, 8), "bfloat16")),
        ("4:int32", TensorSpec((4,), "int32")),
        ("4:int32:zeros", TensorSpec((4,), "int32", fill="zeros")),
        ("4x8::zeros", TensorSpec((4, 8), "float32", fill="zeros")),
        ("9:int32:offsets:4096", TensorSpec((9,), "int32", fill="offsets", total=4096)),
    ],
)
def test_an_argument_with_extents_is_a_tensor(text, spec):
    assert typed_argument(text) == spec


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("1e-5", 1e-5), ("true", True), ("None", None), ("relu", "relu"), ("x", "x")]
)
def test_an_argument_without_extents_is_a_value(text, value):
    assert alike(typed_argument(text), value)


def test_a_tensor_without_a_dtype_has_that_of_the_command():
    assert typed_argument("4x8", "float16").dtype == "float16"
    assert typed_argument("4x8:int32", "float16").dtype == "int32"


@pytest.mark.parametrize(
    ("text", "numbers", "dtype"),
    [("[1,2]", [1, 2], "int64"), ("[1,2]:int32", [1, 2], "int32"), ("[0.5,2]:float16", [0.5, 2], "float16")],
)
def test_numbers_in_brackets_are_a_tensor(text, numbers, dtype):
    spec = typed_argument(text)
    assert (spec.shape, spec.dtype) == ((2,), dtype)
    assert np.asarray(spec.fill).tolist() == numbers


def test_a_file_of_numbers_is_a_tensor(tmp_path):
    np.save(tmp_path / "pages.npy", np.arange(6, dtype=np.int64).reshape(2, 3))
    for text, dtype in ((f"{tmp_path}/pages.npy", "int64"), (f"{tmp_path}/pages.npy:int32", "int32")):
        spec = typed_argument(text)
        assert (spec.shape, spec.dtype) == ((2, 3), dtype)
        assert np.asarray(spec.fill).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("text", ["[1,", "[a]", "9:int32:offsets:x", "torch.nothing_of_that_name"])
def test_what_is_no_argument_is_refused(text):
    with pytest.raises(SettingsError):
        typed_argument(text)


def test_a_function_that_makes_an_argument_and_raises_is_an_error_of_the_target(tmp_path):
    (tmp_path / "made.py").write_text("def made(size):\n    return size\n")
    with pytest.raises(TargetError, match=r"made: the function raised TypeError: made\(\) missing"):
        typed_argument(f"{tmp_path}/made.py:made")


def scale(x, y, *, factor=2.0, BLOCK=64):
    return x


def rows(M, N, *, dtype="float16"):
    return {"x": TensorSpec((M, N), dtype), "factor": 2.0}


def an_operation(**more):
    space = ConfigSpace({"BLOCK": [32, 64], "WARPS": [4, 8]})
    return Operation(
        "rows", FunctionKernel(lambda x, factor, BLOCK, WARPS: x), space, rows, **{"device": "any", **more}
    )


def test_a_functions_tensors_have_the_shapes_in_the_order_of_its_parameters():
    problem = TypedProblem.of("4x8,16", "float16", ["BLOCK=32,64"])
    operation, *rest = problem.operation(scale)
    assert rest == [None, None, None]
    assert dict(operation.problem().arguments) == {
        "x": TensorSpec((4, 8), "float16"),
        "y": TensorSpec((16,), "float16"),
    }
    assert list(operation.space_for(operation.problem())) == list(ConfigSpace({"BLOCK": [32, 64]}))


def test_typed_arguments_take_the_place_of_shapes_and_of_defaults():
    problem = TypedProblem.of("4x8", None, ["BLOCK=32,64"], ["y=16:int32", "factor=3"])
    assert dict(problem.operation(scale)[0].problem().arguments) == {
        "x": TensorSpec((4, 8), "float32"), "y": TensorSpec((16,), "int32"), "factor": 3
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "problem", "error", "message"),
    [
        (scale, TypedProblem.of("4,4"), SpaceError, "its space must be given"),
        (scale, TypedProblem.of("4", None, ["BLOCK=1"]), ShapeMismatchError, r"needs 2 arguments \(x, y\)"),
        (scale, TypedProblem.of(None, None, ["BLOCK=1"], ["z=1"]), KernelTypeError, "has no argument z; it has x, y"),
        (lambda *, n: n, TypedProblem.of("4", None, ["n=1"]), ShapeMismatchError, r"needs 0 arguments \(none\)"),
        (lambda *, n: n, TypedProblem.of(None, "int8", ["n=1"]), UnsupportedDtypeError, "no tensor argument"),
        (lambda x, /, *, n: n, TypedProblem.of("4", None, ["n=1"]), TargetError, "takes x by position only"),
        (lambda x, *, n: n, TypedProblem.of(None, None, ["n=1"]), ShapeMismatchError, r"needs 1 argument \(x\)"),
    ],
)
def test_a_function_whose_arguments_do_not_fit_says_which_it_takes(function, problem, error, message):
    with pytest.raises(error, match=message):
        problem.operation(function)


def test_a_function_that_takes_any_keyword_takes_any_argument():
    problem = TypedProblem.of(None, None, ["n=1"], ["z=4x8"])
    operation = problem.operation(lambda *, n, **rest: n)[0]
    assert dict(operation.problem().arguments) == {"z": TensorSpec((4, 8), "float32")}


def test_an_operation_keeps_its_arguments_beside_the_typed_ones_and_its_space_beside_the_narrower_one():
    problem = TypedProblem.of("4x8", None, ["BLOCK=128"], ["factor=3"])
    target, space, shape, dtype = problem.operation(an_operation())
    assert (shape, dtype) == ((4, 8), None)
    assert dict(target.problem(shape, dtype).arguments) == {"x": TensorSpec((4, 8), "float16"), "factor": 3}
    assert {(config["BLOCK"], config["WARPS"]) for config in space} >= {(128, 4), (128, 8)}
    assert TypedProblem.of("4x8").operation(an_operation())[1] is None


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (TypedProblem.of("4x8,4"), ShapeMismatchError, "takes one shape, MxN, not 2"),
        (TypedProblem.of("4x8", None, ["BLOC=1"]), UnknownTunableError, "has no tunable BLOC; close are BLOCK"),
        (TypedProblem.of("4x8", None, None, ["fctor=1"]), KernelTypeError, "has no argument fctor; it has x, factor"),
    ],
)
def test_an_operation_refuses_what_does_not_fit(problem, error, message):
    with pytest.raises(error, match=message):
        problem.operation(an_operation())


def test_an_operations_work_is_asked_before_it_is_tuned():
    def fail(problem):
        raise ZeroDivisionError("no rows")

    with pytest.raises(TargetError, match="the work of rows raised ZeroDivisionError: no rows"):
        TypedProblem.of("4x8").operation(an_operation(work=fail))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a file of a target; the modules that are imported meanwhile are forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text, name="target_of_a_test.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_object_of_a_file_and_of_a_module_is_found_by_its_name(written):
    path = written("class Kernels:\n    add = 3\n")
    assert named_object(f"{path}:Kernels.add") == 3
    assert named_object("math:pi") == pytest.approx(3.14159, abs=1e-5)
    assert module_at(str(path)).Kernels.add == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":add", "has nothing before the colon"), ("math:", "has nothing after the colon"),
        ("__main__:add", "was defined in a script or notebook"), ("no_such_module_of_any:x", "there is no module"),
        ("no_such_file.py:x", "there is no file no_such_file.py"), ("math:pie", "math has no 'pie'"),
        ("math:pi.real.none", "math has no 'pi.real.none'"),
    ],
)  # fmt: skip
def test_a_target_that_is_not_there_says_what_is_missing(text, message):
    with pytest.raises(TargetError, match=message):
        named_object(text)


def test_a_statement_that_fails_hides_only_what_needs_it(written, capsys):
    path = written(
        """
        import no_such_module_of_any
        whole = 1
        part = no_such_module_of_any.x
        """
    )
    assert named_object(f"{path}:whole") == 1
    told = capsys.readouterr().err
    assert "line 2: no_such_module_of_any is left out: ModuleNotFoundError" in told
    assert "line 4: part is left out: NameError" in told
    with pytest.raises(TargetError, match="needs no_such_module_of_any, which is not installed"):
        named_object(f"{path}:part")


def test_a_name_that_no_statement_failed_to_bind_is_close_to_others(written):
    path = written("def add(): pass\n_hidden = 1\n")
    with pytest.raises(TargetError, match="has no 'ad'; close are add"):
        named_object(f"{path}:ad")
    with pytest.raises(TargetError, match="it has nothing of its own"):
        named_object(f"{written('x = 1', 'empty_target.py')}:y")


def test_a_file_that_exits_ends_there_and_keeps_what_it_had(written, capsys):
    path = written("first = 1\nraise SystemExit(3)\nsecond = 2\n")
    module = module_at(str(path))
    assert (module.first, hasattr(module, "second")) == (1, False)
    assert "line 2: a statement is left out: SystemExit: 3" in capsys.readouterr().err


def test_a_module_that_would_end_the_process_is_refused_and_may_do_so_later(written):
    leave = os._exit
    path = written("import os\nos._exit(0)\n")
    with pytest.raises(TargetError, match=r"ends every process that imports it, by os._exit\(0\)"):
        module_at(str(path))
    assert os._exit is leave


def test_a_future_import_counts_for_all_that_follows(written):
    path = written("from __future__ import annotations\ndef add(x: not_there): pass\n")
    assert named_object(f"{path}:add").__annotations__ == {"x": "not_there"}


def test_a_file_finds_its_neighbours_and_one_within_a_package_its_package(written):
    written("value = 5\n", "neighbour_of_a_test.py")
    path = written("import neighbour_of_a_test\nvalue = neighbour_of_a_test.value\n")
    assert named_object(f"{path}:value") == 5
    written("", "package_of_a_test/__init__.py")
    written("value = 7\n", "package_of_a_test/inner.py")
    path = written("from .inner import value\n", "package_of_a_test/outer.py")
    assert named_object(f"{path}:value") == 7


def test_a_package_whose_init_fails_is_left_out(written, capsys):
    written("raise ValueError('no GPU')\n", "failing_of_a_test/__init__.py")
    written("value = 7\n", "failing_of_a_test/inner.py")
    path = written("from .inner import value\n", "failing_of_a_test/outer.py")
    assert named_object(f"{path}:value") == 7
    assert "the __init__ of failing_of_a_test is left out, since it fails: no GPU" in capsys.readouterr().err


def test_a_file_with_the_name_of_a_library_hides_none(written):
    path = written("value = 1\n", "json.py")
    assert module_at(str(path)).value == 1
    assert sys.modules["json"] is json


def test_a_file_is_one_module_however_often_it_is_named(written):
    path = written("values = []\n")
    assert module_at(str(path)).__name__ == module_at(str(path)).__name__ == path.stem


@pytest.mark.parametrize("text", ["def broken(:", "x = '\0'"])
def test_a_file_that_is_no_python_cannot_be_imported(written, text):
    with pytest.raises(TargetError, match="cannot be imported"):
        module_at(str(written(text)))


def test_modules_of_the_current_folder_are_found(written, monkeypatch):
    path = written("value = 9\n", "module_beside_a_test.py")
    monkeypatch.chdir(path.parent)
    assert named_object("module_beside_a_test:value") == 9
