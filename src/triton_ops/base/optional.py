"""Import of optional packages, which only some functions need, at the moment of their use."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

from triton_ops.exceptions import MissingDependencyError

_INSTALL = {
    "optuna": "pip install 'triton-ops[optuna]'",
    "scipy": "pip install 'triton-ops' again: it comes with the package",
    "threadpoolctl": "pip install 'triton-ops' again: it comes with the package",
    "ray": "pip install 'triton-ops[ray]'",
    "torch": "pip install 'triton-ops[torch]', or the torch build of your platform",
    "triton": "pip install 'triton-ops[triton]'",
    "pynvml": "pip install nvidia-ml-py",
}
_LOGS = re.compile(r"Invalid log settings: (.*?), must be.*Valid settings:\s*(.*)", re.DOTALL)
_failures: dict[str, tuple[str, str]] = {}
"""Why torch could not be imported, and what to do. A process that has tried cannot try again: torch registers its
operators before it fails, and the second attempt fails because they are registered."""


def require(name: str, purpose: str) -> ModuleType:
    """Import an optional package; the MissingDependencyError holds `purpose`, the reason and how to install it."""
    package = name.partition(".")[0]
    try:
        if _is_lost(package):
            raise ImportError(package)
        return import_in_order(name)
    except (Exception, SystemExit) as error:
        why, how = _failures[package] if _is_lost(package) else _failure(package, error)
        raise MissingDependencyError(f"{name} is needed for {purpose}, and {why}", hint=how) from error


def _is_lost(package: str) -> bool:
    """True if this process has tried to import a package that it cannot try again."""
    return package in _failures and package not in sys.modules


def _failure(package: str, error: BaseException) -> tuple[str, str]:
    how = _INSTALL.get(package, f"pip install {package}")
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
        return "is not installed", how
    reason = f"cannot be imported: {type(error).__name__}: {error}", f"install {package} again: {how}"
    if package == "torch" and package not in sys.modules:  # where it is, a part of it could not be imported
        if (logs := _LOGS.search(str(error))) is not None:
            reason = _wrong_logs(logs[1], [word.strip() for word in logs[2].split(",")])
        _failures[package] = reason
    return reason


def _wrong_logs(setting: str, logs: list[str]) -> tuple[str, str]:
    """Reason and next step of a `TORCH_LOGS` with which torch refuses to be imported."""
    wrong = [word for word in (part.strip().lstrip("+-") for part in setting.split(",")) if word not in logs]
    close = ", ".join(near[0] for word in wrong if (near := difflib.get_close_matches(word, logs, n=1)))
    reason = f"cannot be imported: TORCH_LOGS is {setting!r}, and torch has no log {', '.join(map(repr, wrong))}"
    return (
        reason,
        f"correct TORCH_LOGS; close are {close}" if close else "correct TORCH_LOGS: TORCH_LOGS=help lists logs",
    )


def import_in_order(name: str) -> ModuleType:
    """Import a module after the packages that hold it, the outermost first, so that several threads may do so at once.

    A thread that imports `a.b` while another one is still importing `a` waits for `a` in the middle of `a.b`. Where `a`
    then takes something from `a.b`, Python ends the circle by giving it the half of `a.b` that is there, and it fails.
    """
    for end, letter in enumerate(name):
        if letter == ".":
            importlib.import_module(name[:end])
    return importlib.import_module(name)


def base_class(module: str, name: str, purpose: str) -> Any:
    """The class `name` of the optional module `module`, to derive from; where there is none, a stand-in.

    A class that derives from the stand-in can be imported and named. To make an object of it raises the
    `MissingDependencyError` of `require`.
    """
    try:
        return getattr(require(module, purpose), name)
    except MissingDependencyError as error:
        message, hint = error.message, error.hint

        def refuse(*_: object, **__: object) -> Any:
            raise MissingDependencyError(message, hint=hint)

        return type(name, (), {"__new__": refuse})


def available(name: str) -> bool:
    """True if the package `name` is installed; it is not imported."""
    return importlib.util.find_spec(name) is not None
