"""One kernel as the rules see it: its source, its launches, its TTIR in several variants, its binary.

Facts used, of Triton 3.6 to 3.9: `ASTSource(fn, signature, constexprs, attrs)` with a type for each parameter in order,
`constexpr` for those whose values are in `constexprs`; `make_backend(target)` has `add_stages`, whose `ttir` comes
first; a module printed with `str` has the places of the source.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import Built, CandidateError, KernelSource, LaunchedKernel, Operation
from triton_ops.base import cached_property, require
from triton_ops.device import Target
from triton_ops.kernel_ir import Fact, KernelFacts, SourcePlace, UntoldError
from triton_ops_lint.island import COMPILED_FOR
from triton_ops_lint.memory_watch import RunRecord
from triton_ops_lint.parameters import EVEN, FLOATS, Guess, ReadSource, guesses, switches


class _FrontEnd:
    """Triton's front end for one target, with a context for all variants of a kernel: to make one takes 10 ms."""

    def __init__(self, target: Target) -> None:
        self._compiler, self._goal = _compiler(target)
        self._backend = self._compiler.make_backend(self._goal)
        ir = importlib.import_module("triton._C.libtriton").ir
        self.context = ir.context()
        ir.load_dialects(self.context)
        self._backend.load_dialects(self.context)

    def lowered(self, *source: Any) -> str:
        """The TTIR of what `ASTSource` takes, with the places of the source.

        Below `sm_90` tensor descriptors become pointers and masks. Raises whatever Triton does. Cost: 10 to 40 ms.
        """
        whole, backend = self._compiler.ASTSource(*source), self._backend
        options, stages = backend.parse_options({}), dict[str, Any]()
        backend.add_stages(stages, options, whole.language)
        with _quiet():
            implementations, modules = backend.get_codegen_implementation(options), backend.get_module_map()
            module = whole.make_ir(self._goal, options, implementations, modules, self.context)
            return str(stages["ttir"](module, {}))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Print nothing and warn of nothing: `static_print`, what is deprecated, an assembler's whole input."""
    # Where ptxas fails, Triton 3.6 and 3.7 print all of its PTX to stdout: triton-lang/triton#7677.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compiler(target: Target) -> tuple[Any, Any]:
    require("triton", "lowering a kernel")
    arch = target.vendor.triton_arch(target.arch)
    goal = importlib.import_module("triton.backends.compiler").GPUTarget(target.kind, arch, target.warp_size)
    return importlib.import_module("triton.compiler.compiler"), goal


def launched_as(operation: Operation, target: Target) -> dict[int, tuple[Guess, ...]]:
    """With what an operation launches its kernels, by the identity of the JIT function; empty if that is not known."""
    by_function: dict[int, dict[str, Guess]] = {}
    for config, one in LaunchedKernel.of_operation(operation, target):
        options = {name: value for name, value in config.items() if name not in one.types and type(value) is int}
        kinds = (kind.lstrip("*") for kind in one.types.values())
        element = next((kind for kind in kinds if kind in FLOATS), "fp16")
        guess = Guess(one.types, one.constants, frozenset(one.constants), element, options=options, ones=one.ones)
        by_function.setdefault(id(one.function), {}).setdefault(repr((guess.types, guess.constants)), guess)
    return {function: tuple(guesses.values()) for function, guesses in by_function.items()}


READ_FOR = "sm_89"  # below sm_90 descriptors become pointers with masks; from sm_89 on there are 8-bit floats
_MOST_VARIANTS = 10
_UNREADABLE = "its TTIR cannot be read"
_MOST_UNREADABLE = 2
_TUNED = (16, 32, 64, 128, 256, 512)  # extents that tuned blocks are told apart by


@dataclass(frozen=True, eq=False)
class Variant:
    """A kernel with one guess, and what it does."""

    guess: Guess
    facts: KernelFacts

    def is_guessed(self, distance: int) -> bool:
        """Check whether a distance may be a multiple of a size that was guessed: callers decide how tensors lie."""
        known = self.guess.known_names
        sizes = [v for name, v in self.guess.constants.items() if name not in known and type(v) is int and v > 1]
        return any(distance % size == 0 for size in sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelReading(ReadSource):
    """A kernel with all that can be read of it."""

    name: str
    file: str
    tree: ast.Module
    key: tuple[str, ...] | None = None  # of `triton.autotune`; None if the kernel is not tuned
    prunes: bool = False  # whether a function of the tune leaves configs out, by the arguments of a call
    gpu: str = COMPILED_FOR  # for which rules compile
    guesses: tuple[Guess, ...] = ()  # with which an operation launches it, the default config's first
    operation: Operation | None = None  # that launches it, where one was named
    run: RunRecord | None = None  # None if no run was asked for
    failures: str = ""  # names of the file that it uses and that could not be had, with the reasons
    _facts: dict[str, KernelFacts | str] = field(init=False, repr=False, default_factory=dict)  # by the guess

    @property
    def line(self) -> int:
        """The line in which the kernel begins."""
        return self.function.node.lineno

    @cached_property
    def target(self) -> Target:
        """The target of its GPU."""
        return Target.named(self.gpu)

    @cached_property
    def lowered(self) -> tuple[tuple[Variant, ...], str]:
        """The variants that Triton's front end accepts, and its last complaint where it accepts none."""
        variants = tuple(filter(None, map(self._read, self.guesses[:_MOST_VARIANTS])))
        return (variants, "") if variants else self.lowered_with(self._deciders)

    @cached_property
    def _deciders(self) -> frozenset[str]:
        """The parameters that must be constants."""
        return frozenset(self.uses.tiles) | self.uses.types | self.uses.ranges

    def lowered_with(self, extra: frozenset[str], most: int = _MOST_VARIANTS) -> tuple[tuple[Variant, ...], str]:
        """As `lowered`, with these parameters taken as constants too."""
        why, unreadable = "", 0
        complaints: list[str] = []
        several = list(guesses(self, extra))
        for guess in (*several, *switches(self, several[0])):
            if guess.element != FLOATS[0] and len(complaints) > len(FLOATS) and len({*complaints}) == 1:
                continue  # other elements changed nothing with the first blocks, nor did these blocks
            variant = self._variant(guess)
            if isinstance(variant, Variant):
                variant = self._with_counts(variant)
                others = [self._read(one) for one in switches(self, variant.guess)][:most]
                return (variant, *filter(None, others)), ""
            why = why or variant
            complaints.append(variant)
            unreadable += variant.startswith(_UNREADABLE)
            if unreadable == _MOST_UNREADABLE:
                break  # other sizes and types change little of what a kernel does
        return (), "; ".join(filter(None, [why, self.failures]))

    def _with_counts(self, variant: Variant) -> Variant:
        """A variant whose tensors hold whole numbers, where all that it stores there are such."""
        values: dict[str, set[bool]] = {}
        for one in variant.facts.accesses:
            value = one.value.term if one.kind == "store" and one.value is not None else None
            if value is not None and one.root.argument and value.name != "number":
                values.setdefault(one.root.argument, set()).add(KernelFacts.does(value) == "counts")
        names = [name for name, counts in values.items() if counts == {True}]
        types = {**variant.guess.types, **dict.fromkeys(names, "*i32")}
        return (self._read(replace(variant.guess, types=types)) if names else None) or variant

    def _variant(self, guess: Guess) -> Variant | str:
        key = repr((guess.types, guess.constants))
        if key not in self._facts:
            self._facts[key] = self._facts_of(guess)
        facts = self._facts[key]
        return facts if isinstance(facts, str) else Variant(guess, facts)

    @cached_property
    def options(self) -> frozenset[str]:
        """The launch options that Triton has for the target; it refuses a config with any other."""
        compiler, goal = _compiler(self.target)
        return frozenset(vars(compiler.make_backend(goal).parse_options({})))

    @cached_property
    def _front_end(self) -> _FrontEnd:
        return _FrontEnd(Target.named(READ_FOR))

    def _facts_of(self, guess: Guess) -> KernelFacts | str:
        try:
            text = self._front_end.lowered(self.function.function, dict(guess.types), dict(guess.constants), {})
        except Exception as error:  # noqa: BLE001 - whatever Triton's front end raises
            return f"Triton's front end refuses it: {CandidateError.one_line(error)}"
        try:
            return KernelFacts.of(text, self.function.parameters)
        except UntoldError as error:
            return f"{_UNREADABLE}: {error}"

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that could be read."""
        return self.lowered[0]

    def without(self, variant: Variant, name: str) -> Variant | str:
        """A variant with one of its constants as a plain whole number, or why it cannot be read so."""
        guess = variant.guess
        constants = {key: value for key, value in guess.constants.items() if key != name}
        return self._variant(replace(guess, types={**guess.types, name: "i32"}, constants=constants))

    def with_values(self, values: Mapping[str, Any], variant: Variant | None = None) -> Variant | None:
        """A variant, the first one by default, with these values of constants; None if it cannot be read."""
        if not self.variants:
            return None
        guess = (variant or self.variants[0]).guess
        constants = {name: values.get(name, value) for name, value in guess.constants.items()}
        return self._read(replace(guess, constants=constants))

    def _read(self, guess: Guess) -> Variant | None:
        variant = self._variant(guess)
        return variant if isinstance(variant, Variant) else None

    def with_element(self, element: str) -> Variant | None:
        """The first variant with tensors of this element; None if there is none that can be read."""
        first = self.variants[0].guess
        types = {name: kind.replace(first.element, element) for name, kind in first.types.items()}
        candidates = (*guesses(self, self._deciders), replace(first, types=types, element=element))
        return next(filter(None, (self._read(one) for one in candidates if one.element == element)), None)

    @cached_property
    def with_wide_types(self) -> Variant | None:
        """The first variant with float32 for the types that only launches choose; None if they choose none."""
        known = self.variants[0].guess.known_names if self.variants else frozenset[str]()
        names = (self.uses.types & self.function.constants) - known
        wide = require("triton", "reading kernels").language.float32
        return self.with_values(dict.fromkeys(names, wide)) if names else None

    @cached_property
    def tuned(self) -> tuple[Variant | None, dict[int, str]]:
        """A variant in which every tuned extent is another number, and the parameter of each number.

        None and nothing for a kernel whose configs do not differ in extents, or that cannot be read so.
        """
        names = [n for n in self.uses.tiles if len({repr(config.get(n)) for config in self.configs}) > 1]
        if not names or not self.variants:
            return None, {}
        constants = self.variants[0].guess.constants
        sizes_in_use = {value for name, value in constants.items() if name not in names and type(value) is int}
        extents = dict(zip((size for size in _TUNED if size not in sizes_in_use), names, strict=False))
        return self.with_values({name: size for size, name in extents.items()}), extents

    def is_single(self, variant: Variant, axis: int) -> bool:
        """Check whether every launch of the file has one program along an axis, with the constants of a variant."""
        return bool(self.launches) and all(one.is_single(axis, variant.guess.constants) for one in self.launches)

    def place(self, where: Fact | SourcePlace | int) -> SourcePlace:
        """A place in the user's source: of a fact the innermost line that is not Triton's own."""
        if isinstance(where, SourcePlace):
            return where
        if isinstance(where, int):
            return SourcePlace(self.file, where)
        own = (frame for frame in where.frames if "/triton/language/" not in frame.file)
        return next(own, SourcePlace(self.file, self.line))

    @cached_property
    def checks_divisibility(self) -> bool:
        """Whether the launching functions or the kernel test a remainder or whole parts, or the file by a block."""
        callers = [launch.around for launch in self.launches if not isinstance(launch.around, ast.Module)]
        nodes = (node for caller in callers for node in ast.walk(caller))
        tests: list[ast.AST] = [node.test for node in nodes if isinstance(node, (ast.Assert, ast.If, ast.IfExp))]
        names = ("assume", "device_assert", "static_assert")
        tests += (one for one in self.function.calls if isinstance(one.func, ast.Attribute) and one.func.attr in names)
        arguments = [(one, name, node) for one in self.launches for name, node in one.arguments.items()]
        parts = (part for one, name, node in arguments if name in self.uses.tiles for part in one.inner(node))
        others = {ast.unparse(node) for _, name, node in arguments if name not in self.uses.tiles}
        blocks = {part.id for part in parts if isinstance(part, ast.Name)} - others
        compared = (one.left for one in ast.walk(self.tree) if isinstance(one, ast.Compare))
        tests += (one for one in compared if isinstance(one, ast.BinOp) and ast.unparse(one.right) in blocks)
        choices = (one for one in ast.walk(self.tree) if isinstance(one, ast.If))
        tests += (one.test for one in choices if any(any(KernelSource.calls_in(each, "pad")) for each in one.body))
        return any(
            isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Mod, ast.FloorDiv))
            for test in tests
            for one in ast.walk(test)
        )


OPTIONS = ("num_warps", "num_stages", "maxnreg", "num_ctas")
WARPS = 4  # Triton's default


def compile_variant(kernel: KernelReading, variant: Variant, config: Mapping[str, Any]) -> Built:
    """Compile a variant with the launch options of a config; raises whatever the compiler does.

    Pointers and whole numbers are taken as multiples of `EVEN`.

    Cost: 0.1 to some seconds; 1 ms from Triton's disk cache.
    """
    compiler, goal = _compiler(kernel.target)
    types, constants = variant.guess.specialised
    even = [["tt.divisibility", EVEN]]
    whole = {(at,): even for at, kind in enumerate(types.values()) if kind.startswith("*") or kind in ("i32", "i64")}
    options = {name: int(config[name]) for name in OPTIONS if config.get(name)}
    source = compiler.ASTSource(kernel.function.function, types, constants, whole)
    with _quiet():
        return Built.of(compiler.compile(source, target=goal, options=options), kernel.target)


def stated_configs(kernel: KernelReading) -> Iterator[dict[str, Any]]:
    """What decorators, an operation, and launches that write values out give the constants, with `num_warps`."""
    tiles = kernel.uses.tiles
    defaults = {name: getattr(value, "value", value) for name, value in kernel.function.defaults.items()}
    configs = [*kernel.configs, *({**one.constants, **one.options} for one in kernel.guesses[:1])]
    for launch in kernel.launches:
        values = {name: launch.literal(node) for name, node in launch.arguments.items()}
        configs.append({name: value for name, value in values.items() if value is not None})
    tuned = {name for one in kernel.configs for name in one} - set(kernel.function.parameters)
    names = kernel.function.constants | tuned | set(OPTIONS)
    for config in configs or [{}]:
        whole = {**{name: value for name, value in defaults.items() if name in tiles}, **config}
        values = {name: value for name, value in whole.items() if name in names}
        yield {**values, "num_warps": int(values.get("num_warps") or WARPS)}


def known_configs(kernel: KernelReading) -> Iterator[dict[str, Any]]:
    """The stated configs that have every tile."""
    tiles = set(kernel.uses.tiles) & kernel.function.constants
    return (one for one in stated_configs(kernel) if all(isinstance(one.get(name), int) for name in tiles))


def in_words(config: Mapping[str, Any]) -> str:
    """A config in words."""
    return " ".join(f"{name}={value}" for name, value in config.items())
