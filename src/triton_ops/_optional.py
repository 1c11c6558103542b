"""Packages that only some paths need, imported where they are used and nowhere else."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import threading
from types import ModuleType

from triton_ops.exceptions import MissingDependencyError

_INSTALL = {
    "optuna": "pip install 'triton-ops[optuna]'",
    "scipy": "pip install 'triton-ops' again: it comes with the package",
    "sklearn": "pip install scikit-learn",
    "torch": "pip install 'triton-ops[torch]', or the torch build of your platform",
    "triton": "pip install 'triton-ops[triton]'",
    "pynvml": "pip install nvidia-ml-py",
}


def require(name: str, purpose: str) -> ModuleType:
    """Import the optional package `name`.

    Raises:
        MissingDependencyError: It is not installed; says what it is needed for (`purpose`) and how to get it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # the package is there but lacks something of its own: that is its error to tell
        raise MissingDependencyError(
            f"{name} is needed for {purpose}, and is not installed", hint=_INSTALL.get(name, f"pip install {name}")
        ) from error


def preload(*names: str) -> None:
    """Begin to import packages in the background: who requires one later waits only for what is left of it.

    What fails is left to `require`, which says what is missing.
    """

    def load() -> None:
        with contextlib.suppress(Exception):
            for name in names:
                importlib.import_module(name)

    threading.Thread(target=load, name="triton-ops preload", daemon=True).start()


def available(name: str) -> bool:
    """Whether `name` can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None
