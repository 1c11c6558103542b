"""What compiles for other hosts: it is sent packed kernels and configs, and tells what it has made of them.

It knows nothing of how questions reach it. A launch elsewhere finds a binary only if Triton names it equally there, so
that Python and Triton must have the same versions; whether the names are equal is seen there, from each binary.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

from triton_ops.backend import Entry, read_entry, remove_entry
from triton_ops.base import own_temporary_folder, remove_temporary
from triton_ops.compilation.compiler import PackedKernel
from triton_ops.compilation.made import Made, versions_here
from triton_ops.compilation.pool import CompilePool
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.space import Config

_REMEMBERED = 256  # tokens that were closed
_TOKEN = re.compile(r"[0-9a-f]{32}")


class CompileHost:
    """Compiles configs of a few kernels at a time for other hosts; its methods may be called by several threads.

    Args:
        most: How many kernels may be open; of more, the one that was used longest ago is closed.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._folder = own_temporary_folder()
        self._pools: OrderedDict[str, tuple[CompilePool, Path]] = OrderedDict()
        self._closed: deque[str] = deque(maxlen=_REMEMBERED)
        self._guard = threading.Lock()

    def open(
        self, token: str, packed: PackedKernel, versions: Mapping[str, str], workers: int, timeout_s: float
    ) -> str:
        """Make a kernel ready to be compiled, and return why it cannot be; an empty text if it can.

        Args:
            token: Names the kernel in further calls.
            packed: The kernel.
            versions: Those of the host that asks, from `versions_here`.
            workers: How many configs may be compiled at a time.
            timeout_s: Seconds for one config.

        Raises:
            SettingsError: This host has other versions.
            ValueError: The token is none.
        """
        if not _TOKEN.fullmatch(token):  # it names a folder
            raise ValueError(f"{token!r} is no token")
        for what, here in versions_here().items():
            if here != versions.get(what):
                raise SettingsError(f"it has {what} {here or '(none)'}, and not {versions.get(what) or '(none)'}")
        folder = self._folder / token
        try:
            pool = CompilePool(
                packed.load(), workers=workers, timeout_s=timeout_s, reuse=True, packed=packed, disk_cache=str(folder)
            )
        except TritonKernelError as error:
            return error.message
        with self._guard:
            self._pools[token] = pool, folder
            surplus = [*list(self._pools)[: -self._most], *{token}.intersection(self._closed)]
        for each in surplus:
            self.close(each)
        try:
            pool.load().result()
        except TritonKernelError as error:
            self.close(token)
            return error.message
        except (RuntimeError, CancelledError):
            return "it was closed"
        return ""

    def compile(self, token: str, config: Config) -> Made | None:
        """Compile a config, deferred or not; None if the kernel is not open, or no more.

        Raises:
            TritonKernelError: No process can compile the kernel.
        """
        with self._guard:
            found = self._pools.get(token)
            if found is None:
                return None
            self._pools.move_to_end(token)
        pool, _ = found
        try:
            compiled = pool.submit(config, anyway=True).result()
            keys = pool.keys(config).result() if compiled.launchable else ()
        except (RuntimeError, CancelledError):  # another thread has closed it
            return None
        return None if pool.closed or keys is None else Made(compiled, keys)

    def fetch(self, token: str, keys: Sequence[str]) -> list[Entry]:
        """Entries of the kernel's disk cache, which are removed from it; those that are not there are left out.

        Raises:
            ValueError: A key is none, or Triton's list of files is damaged.
        """
        with self._guard:
            found = self._pools.get(token)
        entries = []
        for key in keys if found is not None else ():
            with contextlib.suppress(OSError):
                entries.append(read_entry(self._folder / token, key))
                remove_entry(self._folder / token, key)
        return entries

    def close(self, token: str) -> None:
        """Forget a kernel, with all that was compiled of it and not fetched."""
        with self._guard:
            self._closed.append(token)  # its `open` may be under way
            found = self._pools.pop(token, None)
        if found is not None:
            pool, folder = found
            pool.close()
            shutil.rmtree(folder, ignore_errors=True)

    def end(self) -> None:
        """Close all kernels and remove the folder; what is killed instead leaves it to a later process."""
        for token in list(self._pools):
            self.close(token)
        remove_temporary(self._folder)
