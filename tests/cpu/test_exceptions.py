"""Every error: its place in the tree, its fields, its text, and its way through a pickle."""

import copy
import inspect
import math
import pickle

import pytest

from triton_ops import exceptions
from triton_ops.exceptions import (
    ConfigCollisionError,
    ConfigValueError,
    ConstraintError,
    DeviceError,
    EmptySpaceError,
    KernelTypeError,
    MissingDependencyError,
    NumericalOverflowError,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    TritonKernelError,
    TuningFailedError,
    UnknownTunableError,
    UnsupportedDtypeError,
)

CLASSES = [
    cls for name in exceptions.__all__ if not issubclass(cls := getattr(exceptions, name), exceptions.FixedGridWarning)
]
FIELDS = {
    ShapeMismatchError: {"expected": (2, 3), "actual": (3, 2), "tensor_name": "x"},
    UnsupportedDtypeError: {"dtype": "int8", "supported_dtypes": ["float16"], "tensor_name": "x"},
    NumericalOverflowError: {"max_value": 1e9, "scale": 0.5, "attempts": 3},
    DeviceError: {"expected_device": "cuda", "actual_device": "cpu", "tensor_name": "x"},
    TuningFailedError: {
        "problem_size": (8, 8),
        "configs_tried": 2,
        "last_error": "compile: no",
        "failures": [({"BLOCK": 64}, "compile: no"), ({"BLOCK": 128}, "timeout: 10 s")],
    },
}


def made(cls, **more):
    return cls("it broke", **FIELDS.get(cls, {}), **more)


def test_all_lists_every_error_of_the_module():
    result = [name for name, value in vars(exceptions).items() if inspect.isclass(value)]
    assert sorted(name for name in result if name != "Any") == exceptions.__all__


@pytest.mark.parametrize("value", [True, "3", None, math.nan, math.inf, 10**400, 0, 1 + 0j, [1]])
def test_what_is_no_positive_number_is_a_settings_error_that_says_what_it_must_be(value):
    with pytest.raises(
        exceptions.SettingsError, match=r"^the weight is .*; it must be a positive finite number \(hint: 1\)$"
    ):
        exceptions.SettingsError.checked("the weight", value, hint="1")


def test_a_number_has_a_least_value_may_have_to_be_whole_and_may_be_infinite_where_that_is_said():
    checked = exceptions.SettingsError.checked
    assert [checked("k", 1, 1, whole=True), checked("k", 0.5), checked("k", math.inf, 0, finite=False)] == [
        1,
        0.5,
        math.inf,
    ]
    for value in (0, 1.0, math.inf):
        with pytest.raises(exceptions.SettingsError, match="it must be a whole number of 1 or more"):
            checked("k", value, 1, whole=True)


def test_trees_in_the_docstring_name_every_error_and_warning_once():
    tree = " ".join(exceptions.__doc__.split("\n\n")[2:])
    for name in exceptions.__all__:
        assert tree.split().count(name) == 1, name


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_caught_by_the_base(cls):
    with pytest.raises(TritonKernelError, match="it broke"):
        raise made(cls)


@pytest.mark.parametrize(
    ("cls", "parents"),
    [
        (EmptySpaceError, SpaceError),
        (ConfigValueError, SpaceError),
        (UnknownTunableError, SpaceError),
        (ConfigCollisionError, SpaceError),
        (ConstraintError, SpaceError),
        (KernelTypeError, TypeError),
        (SettingsError, ValueError),
        (MissingDependencyError, ImportError),
    ],
)
def test_errors_are_also_what_python_calls_them(cls, parents):
    assert issubclass(cls, parents)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("hint", ["", "try the other one"])
def test_pickle_keeps_class_message_hint_and_fields(cls, hint):
    before = made(cls, hint=hint)
    for after in (pickle.loads(pickle.dumps(before)), copy.deepcopy(before)):
        assert type(after) is cls
        assert (after.message, after.hint, str(after)) == ("it broke", hint, str(before))
        assert after.args == before.args
        for name, value in FIELDS.get(cls, {}).items():
            assert getattr(after, name) == getattr(before, name) == value


def test_pickle_keeps_what_python_sets_up():
    before = MissingDependencyError("no torch")
    assert before.msg == pickle.loads(pickle.dumps(before)).msg == "no torch"


@pytest.mark.parametrize("cls", list(FIELDS))
def test_fields_are_optional_positional_and_by_name(cls):
    names = list(FIELDS[cls])
    bare, positional = cls("it broke"), cls("it broke", *FIELDS[cls].values())
    for name in names:
        assert getattr(bare, name) == ([] if name == "failures" else None)
        assert getattr(positional, name) == FIELDS[cls][name]


@pytest.mark.parametrize("cls", CLASSES)
def test_text_ends_with_the_hint_if_there_is_one(cls):
    assert str(made(cls)) == "it broke"
    assert str(made(cls, hint="mend it")) == "it broke (hint: mend it)"


def test_failures_are_a_copy():
    given = [({"BLOCK": 64}, "compile: no")]
    error = TuningFailedError("none worked", failures=given)
    given.clear()
    assert error.failures == [({"BLOCK": 64}, "compile: no")]


@pytest.mark.parametrize(
    ("raised", "hint", "kinds", "text"),
    [
        (FileNotFoundError(2, "No such file"), "look", (), "x cannot be read: No such file (hint: look)"),
        (KeyError("a"), "", (LookupError,), "x cannot be read: 'a'"),
        (SettingsError("it is odd", hint="own"), "", (SettingsError,), "x cannot be read: it is odd (hint: own)"),
    ],
    ids=["system", "kind", "own hint"],
)
def test_an_error_of_a_kind_becomes_another_one_with_its_reason(raised, hint, kinds, text):
    with pytest.raises(DeviceError) as caught, DeviceError.when("x cannot be read", hint, *kinds):
        raise raised
    assert str(caught.value) == text
    assert caught.value.__cause__ is raised


def test_an_error_of_another_kind_stays():
    with pytest.raises(ValueError, match="odd"), DeviceError.when("x cannot be read", "", KeyError):
        raise ValueError("odd")


@pytest.mark.parametrize(("name", "near"), [
    ("softmx", ["softmax"]), ("SOFTMAX", ["softmax"]), ("layer-norm", ["layer_norm"]), ("xyzzy", []),
])  # fmt: skip
def test_the_nearest_names_are_offered_and_all_where_none_is_near(name, near):
    names = ("softmax", "layer_norm", "matmul")
    assert exceptions.nearest(name, names) == near
    text = exceptions.alternatives(name, iter(names))
    assert text == (f"close are {near[0]}" if near else "known are softmax, layer_norm, matmul")


@pytest.fixture
def packages(monkeypatch):
    """Says which packages are installed."""
    monkeypatch.setattr(exceptions, "_installed", set())
    looked_for = []

    def install(*names):
        def find(name):
            looked_for.append(name)
            return name if name in names else None

        monkeypatch.setattr(exceptions.importlib.util, "find_spec", find)
        return looked_for

    return install


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ray", "pip install 'triton-ops[ray]'"), ("ray.util", "pip install 'triton-ops[ray]'"),
        ("scipy.linalg", "pip install 'triton-ops[tune]'"), ("pynvml", "pip install nvidia-ml-py"),
        ("unheard.of", "pip install unheard"),
        ("torch", "pip install 'triton-ops[torch]', or the torch build of your platform"),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(name, hint):
    error = MissingDependencyError.absent(name, "a search")
    assert (error.message, error.hint) == (f"{name} is needed for a search, and is not installed", hint)
    assert error.name == name


@pytest.mark.parametrize("system", ["linux", "win32", "darwin"])
def test_only_triton_has_no_command_where_it_has_no_wheels(monkeypatch, system):
    monkeypatch.setattr(exceptions.sys, "platform", system)
    triton, rich = (MissingDependencyError.absent(name, "this").hint for name in ("triton.language", "rich"))
    assert (triton == "Triton publishes wheels for Linux alone") == (system != "linux")
    assert rich == "pip install 'triton-ops[cli]'"


def test_of_an_extra_the_first_package_that_is_missing_is_told(packages):
    looked_for = packages("numpy", "threadpoolctl")
    error = MissingDependencyError.of_extra("tune", "a search")
    assert (error.name, error.message) == ("scipy", "scipy is needed for a search, and is not installed")
    packages("numpy", "scipy", "threadpoolctl")
    assert MissingDependencyError.of_extra("tune", "a search") is None
    looked_for.clear()
    assert MissingDependencyError.of_extra("tune", "a search") is None
    assert not looked_for, "what was there is not looked for again"


def test_a_package_that_was_hidden_since_is_missing(packages, monkeypatch):
    packages("ray")
    monkeypatch.delitem(exceptions.sys.modules, "ray", raising=False)
    assert MissingDependencyError.of_extra("ray", "a search") is None
    monkeypatch.setitem(exceptions.sys.modules, "ray", None)
    assert MissingDependencyError.of_extra("ray", "a search").name == "ray"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ModuleNotFoundError("no", name="scipy.linalg"), "scipy.linalg"),
        (ModuleNotFoundError("no", name="of_mine"), None),
        (ImportError("no", name="scipy"), None), (ModuleNotFoundError("no"), None),
    ],
)  # fmt: skip
def test_the_error_of_an_import_is_that_of_an_optional_package_or_none(error, name):
    made = MissingDependencyError.of_import(error, "a search")
    if name is None:
        assert made is None
    else:
        assert (made.name, made.message) == (name, f"{name} is needed for a search, and is not installed")


def test_an_error_of_a_missing_package_stays_one():
    lower = MissingDependencyError.absent("scipy", "rows")
    assert MissingDependencyError.of_import(lower, "a search").message.startswith("scipy is needed for a search")
    other = MissingDependencyError("no torch for this system")
    assert MissingDependencyError.of_import(other, "a search") is other


def test_an_error_is_about_what_is_said_of_it_and_keeps_all_else():
    error = SettingsError("it broke", hint="mend it")
    error.args = (*error.args, "more", "and more")
    assert str(error.about("line 3")) == "line 3: it broke (hint: mend it)"
    assert error.args == ("line 3: it broke", "more", "and more")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"), "No such file or directory"), (OSError("odd"), "odd"),
        (ValueError("odd"), "odd"),
    ],
)  # fmt: skip
def test_the_reason_of_an_error_of_the_system_is_its_own_and_of_others_their_text(error, text):
    with pytest.raises(SettingsError) as refused, SettingsError.when("x cannot be read", "go on", OSError, ValueError):
        raise error
    assert str(refused.value) == f"x cannot be read: {text} (hint: go on)"
