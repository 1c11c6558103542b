"""A kernel's fingerprint: it follows what the code means, and nothing else."""

import functools
import importlib.util
import itertools
import os
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from triton_ops.backend import Layers, Source
from triton_ops.backend.origins import Home

BASE = """
    import math
    LIMIT = 64
    SHAPE = (8, 16)

    def helper(x):
        return x + 1

    def unused(x):
        return x - 1

    class Scale:
        factor = 2
        def __init__(self, by):
            self.by = by
        def apply(self, x):
            return x * self.by * self.factor

    def kernel(x, block=LIMIT):
        return Scale(block).apply(helper(math.sqrt(x))) + LIMIT + SHAPE[0]
"""
_count = itertools.count()


def source_fingerprint(function):
    return Source.of(function).fingerprint


@pytest.fixture
def load(tmp_path):
    """A function that makes a module of source text, always under the same name unless told otherwise."""
    loaded = []

    def make(text, name="mod", folder=None):
        folder = folder or tmp_path / str(next(_count))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield make
    for name in set(loaded):
        sys.modules.pop(name, None)


@pytest.fixture
def of(load):
    """The fingerprint of `kernel` in source text."""
    return lambda text, **more: source_fingerprint(load(text, **more).kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return Scale", "# why\n        return Scale"),
        ("return Scale", '"""What it does."""\n        return Scale'),
        ("return x + 1", '"""Adds."""\n        return (\n            x + 1  # one\n        )'),
        ("return x * self", '"""Scales."""\n            return x * self'),
        ("factor = 2", '"""A factor."""\n        factor = 2'),
        ("import math", "import math\n\n\n\n    # further down"),
        ("(8, 16)", "(\n        8,\n        16,\n    )"),
        ("return x - 1", "return x - 2"),
        ("x, block=LIMIT", "x,\n        block=LIMIT,\n    "),
    ],
)
def test_what_does_not_count(of, old, new):
    assert BASE.count(old) == 1
    assert of(BASE.replace(old, new)) == of(BASE)


def test_empty_texts_count(of):
    assert of("def kernel(x):\n    return f('', x)\n") != of("def kernel(x):\n    return f(x)\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ LIMIT +", "- LIMIT +"),
        ("return x + 1", "return x + 2"),
        ("factor = 2", "factor = 3"),
        ("return x * self", "return x / self"),
        ("self.by = by", "self.by = by + 1"),
        ("LIMIT = 64\n", "LIMIT = 65\n"),
        ("LIMIT = 64\n", "LIMIT = 64.0\n"),
        ("LIMIT = 64\n", "LIMIT = True\n"),
        ("(8, 16)", "(8, 17)"),
        ("import math", "import cmath as math"),
        ("block=LIMIT", "block=LIMIT + 1"),
        ("x, block", "y, block"),
        ("class Scale:", "class Base:\n        factor = 9\n\n    class Scale(Base):"),
    ],
)
def test_what_counts(of, old, new):
    assert BASE.count(old) == 1
    changed = BASE.replace(old, new)
    if "y, block" in new:
        changed = changed.replace("sqrt(x)", "sqrt(y)")
    assert of(changed) != of(BASE)


def test_the_value_of_a_default_counts_not_only_its_name(load):
    text = "N = {}\ndef kernel(x, n=N, *, m=(N, 1)):\n    return x\n"
    assert source_fingerprint(load(text.format(1)).kernel) != source_fingerprint(load(text.format(2)).kernel)


def test_closures_count_by_what_they_hold(load):
    module = load("def make(n, f=None):\n    def kernel(x):\n        return f(x) if f else x + n\n    return kernel\n")
    double, triple = load("def g(x):\n    return 2 * x\n", "a").g, load("def g(x):\n    return 3 * x\n", "b").g
    kernels = [module.make(1), module.make(2), module.make(1, double), module.make(1, triple)]
    assert len({source_fingerprint(kernel) for kernel in kernels}) == 4
    assert source_fingerprint(module.make(1)) == source_fingerprint(kernels[0])


def test_callees_behind_callees_count(of):
    text = "def c(x):\n    return x + {}\ndef b(x):\n    return c(x)\ndef kernel(x):\n    return b(x)\n"
    assert of(text.format(1)) != of(text.format(2))


def test_functions_that_call_each_other(of):
    text = """
        def even(n):
            return n == 0 or odd(n - 1)
        def odd(n):
            return n != 0 and even(n - {})
        def kernel(n):
            return kernel(n - 2) if n > 9 else even(n)
    """
    assert of(text.format(1)) == of(text.format(1))
    assert of(text.format(1)) != of(text.format(3))


def test_two_modules_with_functions_of_the_same_name(load):
    load("def helper(x):\n    return x + 1\n", "left")
    load("def helper(x):\n    return x + 2\n", "right")
    text = "import left, right\ndef kernel(x):\n    return {}.helper(x)\n"
    both = load("import left, right\ndef kernel(x):\n    return left.helper(right.helper(x))\n").kernel
    before = source_fingerprint(both)
    assert source_fingerprint(load(text.format("left")).kernel) != source_fingerprint(load(text.format("right")).kernel)
    load("def helper(x):\n    return x + 3\n", "right")
    both = load("import left, right\ndef kernel(x):\n    return left.helper(right.helper(x))\n").kernel
    assert source_fingerprint(both) != before


def test_functions_of_one_name_in_one_module_are_told_apart(load):
    text = "a, b = (lambda x: x + {}), (lambda x: x + {})\ndef kernel(x):\n    return a(b(x))\n"
    one, two, three = load(text.format(1, 2)), load(text.format(1, 3)), load(text.format(4, 2))
    assert len({source_fingerprint(module.kernel) for module in (one, two, three)}) == 3
    assert source_fingerprint(one.a) != source_fingerprint(one.b)
    assert source_fingerprint(one.a) == source_fingerprint(two.a)


def test_constants_and_functions_through_a_module(load):
    text = "import cfg\ndef kernel(x):\n    return cfg.scale(x) + cfg.OFFSET\n"
    result = set()
    for by, offset in [(1, 1), (2, 1), (1, 2)]:
        load(f"OFFSET = {offset}\ndef scale(x):\n    return x * {by}\n", "cfg")
        result.add(source_fingerprint(load(text).kernel))
    assert len(result) == 3


def test_functions_in_a_tuple_are_read(of):
    text = "def f(x):\n    return x * {}\nSTEPS = (f, len)\ndef kernel(x):\n    return [s(x) for s in STEPS]\n"
    assert of(text.format(1)) == of(text.format(1))
    assert of(text.format(1)) != of(text.format(2))


def test_which_library_function_an_alias_means_counts(of):
    text = "from math import {} as act\ndef kernel(x):\n    return act(x)\n"
    assert of(text.format("sin")) != of(text.format("cos"))


def test_what_a_container_holds_does_not_count(of):
    text = "SEEN = {}\ndef kernel(x):\n    return SEEN.setdefault(x, x)\n"
    assert of(text.format("{}")) == of(text.format("{1: 1}"))


def test_properties_and_class_methods_count(of):
    text = """
        import functools
        class Tile:
            @property
            def area(self):
                return {}
            @functools.cached_property
            def rows(self):
                return {}
            @classmethod
            def small(cls):
                return cls() if {} else None
            @staticmethod
            def name():
                return {}
        def kernel(x):
            return Tile.small().area
    """
    versions = [text.format(*row) for row in ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1))]
    versions += [text.format(1, 1, 2, 1), text.format(1, 1, 1, 2)]
    assert len({of(version) for version in versions}) == 5


# What is handed over as the kernel


def test_a_partial_is_its_function_and_what_it_binds(load):
    f, g = load("def f(x, n):\n    return x\n").f, load("def f(x, n):\n    return -x\n").f
    made = [functools.partial(f, 1), functools.partial(f, 2), functools.partial(g, 1)]
    made += [functools.partial(f, n=1), functools.partial(functools.partial(f, n=1), 1), f]
    assert len({source_fingerprint(partial) for partial in made}) == len(made)
    assert source_fingerprint(functools.partial(f, 1)) == source_fingerprint(made[0])


def test_a_callable_object_is_its_class(load):
    text = """
        class Call:
            def __call__(self, x):
                return self.step(x)
            def step(self, x):
                return x + {}
    """
    one, two = load(text.format(1)).Call, load(text.format(2)).Call
    assert source_fingerprint(one()) == source_fingerprint(one())
    assert source_fingerprint(one()) != source_fingerprint(two())
    assert source_fingerprint(one().step) != source_fingerprint(two().step)


def test_wrappers_are_looked_through(load):
    f = load("def f(x):\n    return x\n").f

    @functools.wraps(f)
    def wrapper(x):
        return f(x)

    assert Layers.unwrap(wrapper) is f
    assert Layers.unwrap(functools.lru_cache(f)) is f
    assert Layers.unwrap(len) is len
    assert source_fingerprint(functools.lru_cache(f)) == source_fingerprint(f)


def test_builtins_and_library_functions_have_a_fingerprint():
    torch = pytest.importorskip("torch")
    made = [len, min, torch.matmul, torch.nn.functional.softmax, torch.nn.ReLU(), torch.nn.GELU()]
    assert len({source_fingerprint(function) for function in made}) == len(made)


def test_what_a_tuning_decorator_names_does_not_count(of):
    text = """
        def autotune(configs):
            return lambda f: f
        def jit(**options):
            return lambda f: f
        @autotune(configs={})
        @jit(debug={})
        def kernel(x):
            return x
    """
    assert of(text.format([1], True)) == of(text.format([2], True))
    assert of(text.format([1], True)) != of(text.format([1], False))


def test_code_without_source_counts_by_its_bytecode():
    def made(body):
        space = {"__name__": "made"}
        exec(f"def kernel(x):\n    {body}", space)
        return source_fingerprint(space["kernel"])

    bodies = ["return x + 1", "return x + 2", "return x.real", "return x.imag", "return (lambda: 1)"]
    bodies += ["return (lambda: 2)", "return x in {'a', 'b', 'c'}", "return x in {'a', 'b', 'd'}"]
    assert len({made(body) for body in bodies}) == len(bodies)
    assert made("return x + 1  # one") == made("return x + 1")


def test_installed_packages_count_their_own_helpers_and_no_others(load, tmp_path):
    site = tmp_path / "site-packages"

    def made(own, foreign):
        load(f"def helper(x):\n    return x + {foreign}\n", "foreign", folder=site)
        load(f"def helper(x):\n    return x + {own}\n", "home", folder=site)
        text = "import home, foreign\ndef kernel(x):\n    return home.helper(foreign.helper(x))\n"
        module = load(text, "home.sub", folder=site / "home")
        return source_fingerprint(module.kernel)

    assert made(1, 1) != made(2, 1)
    assert made(1, 1) == made(1, 2)


# Triton


TRITON = """
    import triton
    import triton.language as tl

    SCALE: tl.constexpr = tl.constexpr({scale})

    @triton.jit
    def inner(x, BLOCK: tl.constexpr):
        return x * {by}

    @triton.jit{options}
    def kernel(x_ptr, n, BLOCK: tl.constexpr = {block}):
        offsets = tl.arange(0, BLOCK){comment}
        tl.store(x_ptr + offsets, inner(tl.load(x_ptr + offsets), BLOCK) * SCALE, offsets < n)
"""
PLAIN = {"scale": 2, "by": 3, "block": 64, "options": "", "comment": ""}


@pytest.mark.triton
@pytest.mark.parametrize(
    "change",
    [{"scale": 4}, {"by": 5}, {"block": 128}, {"options": "(do_not_specialize=['n'])"}],
    ids=lambda change: next(iter(change)),
)
def test_triton_kernels_follow_callees_constexprs_defaults_and_options(of, change):
    pytest.importorskip("triton")
    assert of(TRITON.format(**{**PLAIN, **change})) != of(TRITON.format(**PLAIN))


@pytest.mark.triton
def test_triton_kernels_do_not_follow_comments_or_autotune(load):
    triton = pytest.importorskip("triton")
    plain = load(TRITON.format(**PLAIN)).kernel
    commented = load(TRITON.format(**{**PLAIN, "comment": "  # all of them"})).kernel
    assert source_fingerprint(commented) == source_fingerprint(plain)
    tuned = triton.autotune([triton.Config({"BLOCK": 32})], key=["n"])(plain)
    assert source_fingerprint(tuned) == source_fingerprint(plain)


# Elsewhere


@pytest.mark.processes
def test_the_fingerprint_is_the_same_in_every_process(tmp_path):
    (tmp_path / "mod.py").write_text(
        textwrap.dedent(BASE)
        + textwrap.dedent("""
            pick = lambda x: x in {"a", "b", "c", "d"}
            STEPS = (helper, pick, len)
            def kernel_2(x, *, more=STEPS):
                return [kernel(pick(f(x))) for f in more]
        """)
    )
    code = "import mod\nfrom triton_ops.backend import Source\nprint(Source.of(mod.kernel_2).fingerprint)"
    result = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(result) == 1


def test_the_fingerprint_is_the_same_in_every_version_of_python(of):
    text = """
        import math
        WIDTH = 8

        def helper(x, block: int = WIDTH):
            assert block % 2 == 0, f"odd {block!r} {'q'} {block:>{WIDTH}}"
            a, b = (1, 2)
            with open("x") as f, open("y") as g:
                found = [q for q in f if (n := len(q))]
            return x[1:, None, ...], -x**2, {**{}, "a": 1}, 1e10, b"x", not (a and b or g), ""

        def kernel(x, *args, width=WIDTH, **more):
            return helper(math.sqrt(x)) if width else None
    """
    # Python 3.10 to 3.13 gave this. A change of it orphans every record that anybody has.
    assert of(text) == "0e96826c6987ac40d76a72b8cfc8f764"


def test_a_part_of_a_compiled_module_belongs_to_the_package_of_that_module(monkeypatch):
    """Triton's own enumerations are in such parts, and are Python's `Enum` since Triton 3.8."""
    pytest.importorskip("triton.language")
    part = ModuleType("triton._C.libtriton.part")
    monkeypatch.setitem(sys.modules, part.__name__, part)
    assert not Home("kernels").holds(part.__name__)
    assert Home("kernels").holds("nowhere.to.be.found")


def test_what_this_package_does_around_a_function_is_no_part_of_it_wherever_the_package_lies():
    def first(a):
        return a

    own = functools.partial(Layers.placed, first)
    assert source_fingerprint(own) == source_fingerprint(functools.partial(Layers.placed, first))
    for home in (Home("functools"), Home("triton_ops"), Home("triton_ops_kernels", by_content=True)):
        assert not home.holds("triton_ops.backend.origins", Layers.placed.__code__.co_filename)
