"""Kernels of a package that sets `KNOWN_BY_CONTENT`: what they are counts, and not where their parts lie."""

import importlib
import itertools
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.backend import FunctionKernel, Source

PARTS = {
    "BY": "BY = {by}",
    "TABLE": 'TABLE = {{"few": [1, 2], "many": (3, BY)}}',
    "Step": "class Step:\n    size = BY\n    def of(self, x):\n        return math.floor(x / self.size)",
    "helper": "def helper(x):\n    return x * BY + TABLE['few'][0]",
    "kernel": "def kernel(x, step=4):\n    return library.scaled(helper(Step().of(x)), rounded) + step",
}
"""The parts of a kernel, by name; each uses those above it."""
HEAD = "import math\nimport library\nfrom library import nearest as rounded\n"
FILES = ("kernel_file", "helpers", "inner.parts")
_count = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def library():
    """An installed package, as far as a kernel sees it."""
    module = types.ModuleType("library")
    module.__file__, module.__version__ = "/lib/site-packages/library/__init__.py", "1.0"
    module.scaled, module.nearest = lambda x, _: x, round
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "library", module)
        yield module


@pytest.fixture(scope="module")
def shipped(tmp_path_factory, library):
    """A function that writes a package whose parts lie in the files that are named, and returns its kernel."""
    folder, names = tmp_path_factory.mktemp("packages"), []

    def make(places=FILES[:1] * 5, by=3, declared=True, **other):
        names.append(name := f"shipped_{next(_count)}")
        (folder / name / "inner").mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"KNOWN_BY_CONTENT = {declared}\n")
        before = {}
        for (part, text), file in zip({**PARTS, **other}.items(), places, strict=True):
            uses = [f"from {name}.{place} import {use}\n" for use, place in before.items() if place != file]
            with (folder / name / f"{file.replace('.', '/')}.py").open("a") as module:
                module.write(f"{HEAD}{''.join(uses)}{text.format(by=by)}\n")
            before[part] = file
        return importlib.import_module(f"{name}.{before['kernel']}").kernel

    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        yield make
    for name in [each for each in sys.modules if each.partition(".")[0] in names]:
        del sys.modules[name]


def of(kernel):
    return Source.of(kernel).fingerprint


@st.composite
def places(draw):
    """A file for each part, so that no two files import each other."""
    files, order = draw(st.permutations(FILES)), sorted(draw(st.tuples(*[st.integers(0, 2)] * len(PARTS))))
    return tuple(files[at] for at in order)


@given(places=places())
def test_it_is_the_same_kernel_wherever_its_parts_and_its_package_lie(shipped, places):
    assert of(shipped(places)) == of(shipped())


@pytest.mark.parametrize(
    "change", [{"by": 4}, {"helper": PARTS["helper"] + " + 1"}, {"kernel": PARTS["kernel"].replace("step=4", "step=5")}]
)
def test_a_kernel_of_other_content_is_another(shipped, change):
    assert of(shipped(**change)) != of(shipped())


def test_parts_of_one_name_from_two_files_are_told_apart(shipped):
    def made(first, second):
        helper = f"def helper(x):\n    return x * {first}"
        kernel = f"inner = helper\ndef helper(x):\n    return x + {second}\ndef kernel(x):\n    return inner(helper(x))"
        return of(shipped((*FILES[:1] * 4, "helpers"), helper=helper, kernel=kernel))

    assert len({made(2, 3), made(3, 3), made(2, 2), made(3, 2)}) == 4
    assert made(2, 3) == made(2, 3)


def test_where_the_package_does_not_say_so_modules_count(shipped):
    assert of(shipped(declared=False)) != of(shipped(declared=False))


def test_another_package_counts_by_the_names_that_the_code_calls_and_beside_them_by_its_version(shipped, library):
    before = FunctionKernel(shipped()).identity
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library, "helper", print, raising=False)  # a name that the code uses for a part of its own
        patched.setattr(library, "nearest", abs)
        patched.setattr(library, "__version__", "2.0")
        after = FunctionKernel(shipped()).identity
    assert (before["library"], after["library"]) == ("1.0", "2.0")
    assert {**after, "library": "1.0"} == before
