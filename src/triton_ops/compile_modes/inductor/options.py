"""Options of Inductor that have to do with autotuning, with their environment variables.

Facts used, of torch 2.11 to 2.15: the module `torch._inductor.config` has assignments whose right side reads the
variable, by `os.environ.get`, `get_tristate_env` or `Config(env_name_…=…)`; `_config` has an entry with the default.
Where a variable is set, that entry already holds what it says, unless it is a `Config`: the default is then what the
right side gives where no variable is set.

Fact used, of torch 2.11 to 2.15: `TORCH_LOGS` holds names of logs and artefacts with commas between them, each perhaps
after `+` or `-`, and is read when torch is imported; the names are in `torch._logging._internal.log_registry`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

from triton_ops import settings
from triton_ops.base import require
from triton_ops.compile_modes.inductor.backends import wrong_lists
from triton_ops.compile_modes.inductor.sources import option_values, torch_sources
from triton_ops.exceptions import SettingsError

LOGS = "TORCH_LOGS"
READ = ("cudagraphs", "perf_hints", "recompiles")
"""The artefacts that tell what became of CUDA graphs, and what was compiled again."""
_MEANT = {"TORCH_LOG": LOGS, "TORCHLOGS": LOGS, "TORCH_LOGGING": LOGS, "TORCHINDUCTOR_LOGS": LOGS}
_OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
_PREFIXES = ("TORCHINDUCTOR_", "TORCH_COMPILE_")
_NEAR = 0.85


def switched_off(environment: Mapping[str, str]) -> str:
    """The variable by which `torch.compile` does nothing at all; empty where it is not switched off."""
    return next((name for name in _OFF if environment.get(name) == "1"), "")


def log_switches(environment: Mapping[str, str], artefacts: Iterable[str] = READ) -> dict[str, str]:
    """`TORCH_LOGS` with `artefacts` beside what is asked for already, for a process that has yet to import torch."""
    words = [word.strip() for word in environment.get(LOGS, "").split(",") if word.strip()]
    bare = {word.lstrip("+-") for word in words}
    return {LOGS: ",".join([*words, *(name for name in artefacts if name not in bare)])}


def checked_logs(names: Sequence[str]) -> None:
    """Raise unless torch has all these logs and artefacts.

    Raises:
        SettingsError: It has not; the message names those that are close.
    """
    logs = known_logs()
    for name in names:
        if (bare := name.strip().lstrip("+-")) not in logs:
            near = difflib.get_close_matches(bare, logs, n=3, cutoff=0.5) or sorted(logs)[:8]
            raise SettingsError(f"torch has no log {bare!r}; close are {', '.join(near)}", hint=f"set {LOGS} to a name")


def known_logs() -> set[str]:
    """The logs and artefacts that this torch has."""
    registry: Any = require("torch._logging._internal", "asking torch for its logs").log_registry
    return {*registry.log_alias_to_log_qnames, *registry.artifact_names, "all"}


def wrong_names(
    environment: Collection[str], readable: Collection[str] = (), is_read: Callable[[str], bool] = lambda _: False
) -> dict[str, str]:
    """Variables that are set and that torch does not read, each with the one that was probably meant.

    Args:
        environment: The names that are set.
        readable: The names that torch's compiler reads, as `options.variables` finds them; none looks for `TORCH_LOG`
            and the like alone.
        is_read: Whether torch reads a variable after all, as `options.is_read` finds out; asked for doubtful ones only.
    """
    meanings = {name: _MEANT[name] for name in environment if name in _MEANT}
    for name in environment:
        if readable and name.startswith(_PREFIXES) and name not in readable and name not in meanings:
            near = difflib.get_close_matches(name, readable, n=1, cutoff=_NEAR)
            meanings.update({name: near[0]} if near and not is_read(name) else {})
    return meanings


def wrong_variables(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables that torch does not read, each with the one that was probably meant; and texts on lists of backends."""
    return wrong_names(environment, variables(), is_read), wrong_lists(environment, variables_by_option())


_READERS = ("_inductor", "_dynamo", "_functorch", "_logging", "compiler", "fx")
_HOW_IT_CHOOSES = (
    "autotune", "tuning", "benchmark", "coordinate_descent", "precompilation", "profiling_configs",
    "profiling_swizzle", "prescreening", "heuristic", "lookup_table",
)  # fmt: skip
_FROM_WHAT = (
    "backend", "template", "gemm", "matmul", "mixed_mm", "as_mm", "multi_kernel", "combo_kernel", "reduction",
    "split_k", "decompose_k", "batch_sweep", "instan", "cutlass_op_", "cutlass_enabled", "cluster", "origami", "tiles",
    "tiling", "rblock", "tma_", "block_ptr", "tensor_descriptor", "spill", "pipelining", "pdl",
)  # fmt: skip
_AROUND_IT = (
    "cudagraph", "epilogue", "prologue", "fusion", "layout", "padding", "shape_pad", "pad_", "freezing",
)  # fmt: skip
_ABOUT_TUNING = (*_HOW_IT_CHOOSES, *_FROM_WHAT, *_AROUND_IT)
"""Parts of names: how candidates are measured and chosen; which kernels and tiles they are chosen from; and what is
fused, padded, laid out, frozen or recorded around them. Names of debugging, packaging, caches and builds have none."""


@dataclass(frozen=True)
class InductorOption:
    """One option.

    Attributes:
        name: Its dotted name, as in `options` of `torch.compile`.
        variables: The environment variables that set it; empty where none does.
        default: Its value where no variable is set.
        value: Its present value.
        set_by: Those of `variables` that are set here.
    """

    name: str
    variables: tuple[str, ...]
    default: Any
    value: Any
    set_by: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Tell whether a variable or a program has given it another value."""
        return bool(self.value != self.default)


def autotune_options(words: tuple[str, ...] = _ABOUT_TUNING) -> list[InductorOption]:
    """The options whose names hold one of `words`; by default those that have to do with tuning."""
    variables_of, present = variables_by_option(), dict(settings.environment())
    options = []
    for name, value in sorted(option_values().items()):
        if any(word.lower() in name.lower() for word in words):
            set_by = tuple(variable for variable in variables_of.get(name, ()) if variable in present)
            default = _default(name, value, bool(set_by))
            options.append(InductorOption(name, variables_of.get(name, ()), default, value, set_by))
    return options


def variables() -> set[str]:
    """Every environment variable that Inductor's settings read, and those of the compiler's debugging."""
    tree = ast.parse(_source())
    return {*_names_in(tree), "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_COMPILE_DISABLE"}


def is_read(variable: str) -> bool:
    """Tell whether the compiler's sources name a variable anywhere, since not all of them are read by the settings.

    Cost: up to a second, for a variable that is not named.
    """
    mention = re.compile(rf"\b{re.escape(variable)}\b".encode())
    return any(mention.search(source) for source in torch_sources([f"{part}/**/*.py" for part in _READERS]))


@lru_cache(maxsize=1)
def _source() -> str:
    return inspect.getsource(require("torch._inductor.config", "asking Inductor for its options"))


@lru_cache(maxsize=1)
def variables_by_option() -> dict[str, tuple[str, ...]]:
    """The variables that the right side of each assignment reads, also through a function of the module."""
    tree = ast.parse(_source())
    functions = {each.name: _names_in(each) for each in tree.body if isinstance(each, ast.FunctionDef)}
    by_option: dict[str, tuple[str, ...]] = {}
    for name, value in _assignments(tree.body):
        called = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
        names = [*_names_in(value), *(word for each in called for word in functions.get(each, []))]
        by_option[name] = tuple(dict.fromkeys(names))
    return by_option


def _default(name: str, value: Any, set_here: bool) -> Any:
    """The default of an option; where a variable is set and its right side cannot be read, what torch holds for it."""
    entries = getattr(require("torch._inductor.config", "asking Inductor for its options"), "_config", {})
    default = getattr(entries.get(name), "default", value)
    if not set_here:
        return default
    try:
        bare = _without_environment(name)
    except (KeyError, NameError, AttributeError, TypeError, ValueError):  # torch has written it in another way
        return default
    return getattr(bare, "default", bare)  # a `Config` holds its default


def _without_environment(name: str) -> Any:
    """Evaluate the right side of an option's assignment as if no environment variable were set."""
    module = require("torch._inductor.config", "asking Inductor for its options")
    right = dict(_assignments(ast.parse(_source()).body))[name]
    code = compile(ast.Expression(right), str(module.__file__), "eval")  # torch's own, which has run before
    bare = SimpleNamespace(**{**vars(os), "environ": {}, "getenv": lambda _, default=None: default})
    return eval(code, {"os": bare}, _Names(module, bare))


class _Names(dict[str, Any]):
    """The names of a module whose functions see no environment variables, with the `os` that they see instead."""

    def __init__(self, module: Any, bare: Any) -> None:
        super().__init__(os=bare)
        self._module = module

    def __missing__(self, name: str) -> Any:
        if not hasattr(self._module, name):
            raise KeyError(name)
        member = getattr(self._module, name)
        if not isinstance(member, FunctionType):
            return member
        names = {**member.__globals__, "os": self["os"]}
        return FunctionType(member.__code__, names, name, member.__defaults__, member.__closure__)


def _assignments(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The dotted name and the right side of each assignment to a name, those in classes included."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _assignments(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield f"{prefix}{target.id}", node.value


def _names_in(node: ast.AST) -> list[str]:
    """The texts in a piece of code that look like names of environment variables of torch."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [text for text in texts if text.startswith(("TORCH", "TRITON", "CUTLASS")) and text.isupper()]
