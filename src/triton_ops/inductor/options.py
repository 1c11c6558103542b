"""Every option of Inductor that has to do with autotuning: its environment variable, its default and its value.

Facts used, of torch 2.11 to 2.15: the module `torch._inductor.config` has assignments whose right side reads the
variable, by `os.environ.get`, `get_tristate_env` or `Config(env_name_…=…)`; `_config` has an entry with the default.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton_ops._optional import require
from triton_ops.inductor.modes import option_values

_READERS = ("_inductor", "_dynamo", "_functorch", "_logging", "compiler", "fx")
_ABOUT_TUNING = ("autotune", "tuning", "benchmark", "cudagraph", "epilogue", "prologue", "fusion", "layout", "padding")


@dataclass(frozen=True)
class InductorOption:
    """One option.

    Attributes:
        name: Its dotted name, as in `options` of `torch.compile`.
        variables: The environment variables that set it; empty where none does.
        default: Its value when torch was imported, which the variables may have changed.
        value: Its present value.
    """

    name: str
    variables: tuple[str, ...]
    default: Any
    value: Any

    @property
    def changed(self) -> bool:
        """Whether it was set since torch was imported."""
        return bool(self.value != self.default)


def autotune_options(words: tuple[str, ...] = _ABOUT_TUNING) -> list[InductorOption]:
    """The options whose names hold one of `words`; by default those that change what is tuned, fused or recorded."""
    named, entries = _variables_by_option(), _entries()
    return [
        InductorOption(name, named.get(name, ()), getattr(entries.get(name), "default", value), value)
        for name, value in sorted(option_values().items())
        if any(word in name for word in words)
    ]


def variables() -> set[str]:
    """Every environment variable that Inductor's settings read, and those of the compiler's debugging."""
    tree = ast.parse(_source())
    return {*_names_in(tree), "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_COMPILE_DISABLE"}


def is_read(variable: str) -> bool:
    """Whether the compiler's sources name a variable anywhere, since not all of them are read by the settings.

    Cost: up to a second, for a variable that is not named.
    """
    root = Path(str(require("torch", "looking into its sources").__file__)).parent
    files = (path for part in _READERS for path in (root / part).rglob("*.py"))
    named = re.compile(rf"\b{re.escape(variable)}\b".encode())
    return any(named.search(path.read_bytes()) for path in files)


def _entries() -> dict[str, Any]:
    return dict(getattr(require("torch._inductor.config", "asking Inductor for its options"), "_config", {}))


@lru_cache(maxsize=1)
def _source() -> str:
    return inspect.getsource(require("torch._inductor.config", "asking Inductor for its options"))


@lru_cache(maxsize=1)
def _variables_by_option() -> dict[str, tuple[str, ...]]:
    """The variables that the right side of each assignment reads, also through a function of the module."""
    tree = ast.parse(_source())
    functions = {each.name: _names_in(each) for each in tree.body if isinstance(each, ast.FunctionDef)}
    found: dict[str, tuple[str, ...]] = {}
    for prefix, node in _assignments(tree.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or node.value is None:
            continue
        called = [each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)]
        names = [*_names_in(node.value), *(name for each in called for name in functions.get(each, []))]
        found[f"{prefix}{target.id}"] = tuple(dict.fromkeys(names))
    return found


def _assignments(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield prefix, node
        elif isinstance(node, ast.ClassDef):
            yield from _assignments(node.body, f"{prefix}{node.name}.")


def _names_in(node: ast.AST) -> list[str]:
    """The texts in a piece of code that look like names of environment variables of torch."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [text for text in texts if text.startswith(("TORCH", "TRITON", "CUTLASS")) and text.isupper()]
