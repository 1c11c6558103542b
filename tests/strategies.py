"""Hypothesis strategies for the nouns of the package, for every test that draws one."""

import inspect
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from triton_ops.base import canonical_json, fingerprint
from triton_ops.space import (
    Choice,
    Config,
    ConfigSpace,
    Constraint,
    Flag,
    IntRange,
    PowerOfTwo,
)
from triton_ops.values import (
    ITEM_BYTES,
    Compiled,
    Measurement,
    Problem,
    Resources,
    Status,
    TensorSpec,
    Trial,
    contiguous_stride,
)

EXAMPLES = 40  # of each property, unless its test says otherwise or another profile is asked for


def examples(count):
    """Settings for a property whose examples are dear: `count` of them, and as many times more as the profile asks."""
    return settings(max_examples=max(1, count * settings.default.max_examples // EXAMPLES))


names = st.from_regex(r"[A-Z][A-Z0-9_]{0,4}", fullmatch=True)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # Cs: halves of characters
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _text,
)
values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


@st.composite
def configs(draw, of=names):
    """A config of any names and values."""
    return Config(draw(st.dictionaries(of, values, min_size=1, max_size=5)))


@st.composite
def tunables(draw, max_values=5):
    """A tunable of any kind, never empty."""
    kind = draw(st.sampled_from(["choice", "range", "power", "flag"]))
    if kind == "choice":
        lists = st.lists(values, min_size=1, max_size=max_values, unique_by=canonical_json)
        return Choice(draw(lists))
    if kind == "range":
        low, step = draw(st.integers(-8, 64)), draw(st.integers(1, 8))
        return IntRange(low, low + step * draw(st.integers(0, max_values - 1)), step)
    if kind == "power":
        low = draw(st.integers(0, 10))
        return PowerOfTwo(1 << low, 1 << (low + draw(st.integers(0, max_values - 1))))
    return Flag()


@dataclass(frozen=True)
class Arbitrary:
    """A predicate over `names` that keeps about `(of - 1) / of` of all combinations, by no rule a space could know.

    An object, not a closure, so that a space with it can go to another process.
    """

    names: tuple[str, ...]
    of: int
    salt: int

    @property
    def __signature__(self):
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, **chosen):
        return int(fingerprint([self.salt, chosen]), 16) % self.of != 0


@st.composite
def constraints(draw, among):
    """A constraint over some of the names in `among`."""
    subset = draw(st.lists(st.sampled_from(among), min_size=1, max_size=3, unique=True))
    number = draw(st.integers(0, 99))
    predicate = Arbitrary(tuple(subset), draw(st.integers(2, 5)), number)
    return Constraint(f"rule {number}", predicate, f"{{{subset[0]}}} is refused")


@st.composite
def spaces(draw, max_tunables=4, max_constraints=3, may_be_empty=False):
    """A space with constraints; without `may_be_empty`, at least one config keeps them all."""
    axes = draw(st.dictionaries(names, tunables(), min_size=1, max_size=max_tunables))
    rules = draw(st.lists(constraints(list(axes)), max_size=max_constraints))
    space = ConfigSpace(axes, tuple(rules))
    first = next(iter(space), None)
    if first is None:
        return space if may_be_empty else ConfigSpace(axes)
    return ConfigSpace(axes, tuple(rules), first) if draw(st.booleans()) else space


@st.composite
def tensor_specs(draw, dtypes=tuple(name for name in ITEM_BYTES if name != "float4_e2m1fn_x2")):
    """A tensor argument: row-major, transposed, with gaps, or broadcast; aligned or not."""
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    stride = list(contiguous_stride(shape))
    layout = draw(st.sampled_from(["rows", "transposed", "gaps", "broadcast"]))
    if layout == "transposed":
        stride = list(reversed(contiguous_stride(reversed(shape))))
    elif layout == "gaps":
        stride = [step * 3 for step in stride]
    elif layout == "broadcast" and shape:
        stride[draw(st.integers(0, len(shape) - 1))] = 0
    fill = draw(st.sampled_from(["uniform", "outliers", "zeros", "empty", "arange"]))
    return TensorSpec(shape, draw(st.sampled_from(dtypes)), tuple(stride), fill, aligned=draw(st.booleans()))


@st.composite
def problems(draw):
    """A problem with tensors and scalars."""
    argument_values = st.one_of(tensor_specs(), _scalars, st.floats(allow_nan=False))
    arguments = draw(st.dictionaries(names, argument_values, max_size=5))
    return Problem(draw(names), tuple(arguments.items()), draw(_text))


@st.composite
def measurements(draw, mode="event-cold"):
    """Times of one config."""
    times = st.floats(1e-6, 1e4)
    return Measurement(tuple(draw(st.lists(times, min_size=1, max_size=20))), mode)


@st.composite
def compiled(draw, of):
    """What became of a config in a compiler: some fit, some do not, some are the same program as others."""
    status = draw(st.sampled_from([Status.OK, Status.OK, Status.OK, Status.DEFERRED, Status.RESOURCES, Status.COMPILE]))
    if status not in (Status.OK, Status.DEFERRED):
        return Compiled(draw(of), status, "no", draw(st.none() | st.just(Resources(shared_bytes=400_000))))
    resources = Resources(
        draw(st.integers(16, 255)), draw(st.sampled_from([0, 0, 8, 400])), draw(st.integers(0, 200_000))
    )
    launch = draw(st.none() | st.sampled_from(["one", "another"]) | st.uuids().map(str))
    return Compiled(
        draw(of),
        status,
        "spills" if status is Status.DEFERRED else "",
        resources,
        compile_s=0.1,
        launch=launch,
        resident=draw(st.none() | st.integers(1, 32)),
    )


@st.composite
def trials(draw, of=None):
    """A finished trial of any status; `of` is a strategy for its config."""
    config = draw(configs() if of is None else of)
    status = draw(st.sampled_from(Status))
    resources = draw(st.none() | st.just(Resources(128, 0, 49152, binary="ab" * 16)))
    if status is Status.OK:
        final = draw(st.none() | measurements())
        return Trial(config, status, draw(measurements()), error="", resources=resources, compile_s=0.5, final=final)
    return Trial(config, status, error=draw(_text), resources=resources)
