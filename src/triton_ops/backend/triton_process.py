"""Triton's state in this process: work that is done once, output, and kernels that run as Python.

Facts used, from Triton 3.6 to 3.9: its key of itself (`triton_key.py`) and the utilities of its driver, such as
`triton.backends.nvidia.driver.CudaUtils`, are made once per process; a failing ptxas prints its whole input to stdout.

The key is a part of the key of every compiled kernel. It takes a quarter of a second of a CPU, more where the files are
not in memory, and each process that compiles would make it anew.

Facts used, from Triton 3.6 to 3.9: `triton.runtime.cache.triton_key` takes no arguments, hashes Python files and
libraries of the package `triton`, and is looked up in its module whenever a kernel's key is made, so that another
function may stand in its place; `triton.knobs.cache.dir` is the folder of compiled kernels.

Facts used, from Triton 3.6 to 3.9: such a kernel is an `InterpretedFunction`, and while one runs, the functions of
`triton.language` are others, for all threads of the process. The interpreter of 3.6 makes a number of an array of one
element by `int()`, which NumPy refuses from 2.4 on: kernels with a loop whose end is an argument do not run then.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from triton_ops.backend.origins import INTERPRETED
from triton_ops.backend.signatures import layers
from triton_ops.base import (
    DamagedError,
    ForkSafeLock,
    atomic_write,
    ensure_folder,
    fingerprint,
    import_in_order,
    parsed,
    read_file,
    require,
    sealed,
    unsealed,
)
from triton_ops.device import VENDORS
from triton_ops.exceptions import CacheError, MissingDependencyError

_REFUSED_BY_NUMPY = "only 0-dimensional arrays can be converted to Python scalars"
_FITS_NUMPY = (3, 7)  # the first Triton whose interpreter runs with NumPy 2.4

_turn = ForkSafeLock(threading.RLock)


def is_interpreted(function: Any) -> bool:
    """Tell whether a kernel, below its decorators, runs as Python."""
    return type(layers(function)[-1]).__name__ == INTERPRETED


def launcher_of(function: Any) -> Callable[..., Any]:
    """The callable that launches a kernel; of those that run as Python, one at a time."""
    return _InTurn(function) if is_interpreted(function) else function.run


class _InTurn:
    """Launches a kernel when no other one runs as Python."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch it.

        Raises:
            MissingDependencyError: Triton's interpreter does not run with this NumPy.
        """
        with _turn:
            try:
                return self.function.run(*args, **kwargs)
            except Exception as error:
                if (misfit := numpy_misfit(error)) is not None:
                    raise misfit from error
                raise


def numpy_misfit(error: Exception | None = None) -> MissingDependencyError | None:
    """The advice where Triton's interpreter is of before NumPy 2.4, and NumPy is not; None otherwise.

    Args:
        error: What the interpreter has raised; for an error that is not because of NumPy there is no advice.
    """
    refused = error is None or _REFUSED_BY_NUMPY in str(error)
    if not refused or _numbers("triton") >= _FITS_NUMPY or _numbers("numpy") < (2, 4):
        return None
    return MissingDependencyError(
        f"the interpreter of Triton {_version('triton')} does not run this kernel with NumPy {_version('numpy')}",
        hint="pip install 'numpy<2.4'; or use Triton 3.7 or newer",
    )


def _numbers(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", _version(package))[:2])


def _version(package: str) -> str:
    return str(require(package, "running kernels as Python").__version__)


KEPT = "triton-ops-triton-key.json"
_READ = (".py", ".so")  # the files of the package that the key may depend on
_LIMIT_BYTES = 1 << 20  # the key has 65 bytes for each of 60 files


def ready_key() -> None:
    """Have Triton's key ready in this process: the kept one if no file of Triton has changed, else a new one.

    Who may write into the folder of compiled kernels may replace each of them, and so is trusted with the key too.
    For child processes alone, since Triton's function is replaced by one that knows the answer.

    Raises:
        Exception: Whatever Triton raises where it cannot be imported or finds no folder.

    Cost: 2 ms if the key is kept, else 0.25 s of a CPU.
    """
    cache: Any = import_in_order("triton.runtime.cache")
    files = package_state(Path(cache.__file__).parents[1])
    path = Path(import_in_order("triton.knobs").cache.dir) / KEPT
    key = _stored_key(path, files)
    if key is None:
        keep(path, files, cache.triton_key())
    else:
        cache.triton_key = lambda: key


def package_state(package: Path) -> str:
    """A fingerprint of where the files of a package are, how large they are, and when they were last changed.

    The time of change is the file system's own (`st_ctime`), which no program that copies or unpacks files can set.

    Raises:
        OSError: A file is gone meanwhile.
    """
    files = []
    for folder, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith(_READ):
                status = Path(folder, name).stat()
                files.append([str(Path(folder, name)), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return fingerprint(sorted(files))


def keep(path: Path, files: str, key: str) -> None:
    """Keep a key beside the state of the files that it was made from; a folder that cannot be written keeps nothing."""
    with contextlib.suppress(OSError, CacheError):
        ensure_folder(path.parent)
        atomic_write(path, json.dumps(sealed({"files": files, "key": key})))


def _stored_key(path: Path, files: str) -> str | None:
    """The key that was kept for this state of the files; None if there is none, or it was damaged."""
    try:
        content = unsealed(parsed(read_file(path, _LIMIT_BYTES)))
    except (OSError, DamagedError):
        return None
    key = content.get("key")
    return key if content.get("files") == files and isinstance(key, str) else None


_PTXAS_DUMP = "please share the reproducer above with Triton project"  # ends what a failing ptxas prints


def warm_up(launches: bool) -> threading.Thread:
    """Begin in the background what Triton does once before its first kernel: it takes half a second and more.

    A process that imports torch meanwhile has it for nothing. Triton's key of itself is read or made, and a module that
    loads kernels built with the C compiler. What fails is met again, and told, by whoever compiles or launches first.

    Args:
        launches: Whether this process will launch kernels, and not just compile them; Triton's driver is readied then.

    Returns:
        Ends when it is done.
    """

    def work() -> None:
        for vendor in VENDORS.values() if launches else ():
            with contextlib.suppress(Exception):
                driver = vendor.triton_driver
                getattr(import_in_order(driver.module), driver.utilities)()
        with contextlib.suppress(Exception):
            ready_key()

    thread = threading.Thread(target=work, name="triton-ops warm-up", daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def without_ptxas_dumps() -> Iterator[None]:
    """Keep Triton's dumps of a failing ptxas from stdout, inside of the block; everything else gets there at once."""
    with contextlib.redirect_stdout(_WithoutDumps(sys.stdout)):
        yield


class _WithoutDumps:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = _PTXAS_DUMP in text or (self._dropped and text == "\n")  # print writes its newline apart
        return len(text) if self._dropped else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
