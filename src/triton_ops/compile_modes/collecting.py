"""The folder in which each mode's log and the traces of its compiler are kept.

A mode's part of it holds one run: graphs of two runs side by side would be taken for graphs of one model. What an
earlier run has put there is removed when the mode begins, and said; other files stay.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from triton_ops._files import ensure_folder, write_named
from triton_ops.compile_modes.run_folder import file_name
from triton_ops.exceptions import SettingsError
from triton_ops.inductor.modes import CompileMode

_LOG = "log.txt"
_TRACES = "torch_compile_debug"  # as torch names it


class Collection:
    """What is collected of each mode.

    Args:
        folder: The folder; None collects nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def begin(self, mode: CompileMode) -> str:
        """Make room for a mode; what was removed, in words, empty if there was nothing.

        Raises:
            SettingsError: What an earlier run has put there cannot be removed.
        """
        if self._folder is None:
            return ""
        own = self._folder / file_name(mode.name)
        try:
            removed = [path.name for path in (own / _LOG, own / _TRACES) if _removed(path)]
        except OSError as error:
            raise SettingsError(
                f"what an earlier run collected in {own} cannot be removed: {error.strerror or error}",
                hint="collect into another folder",
            ) from error
        return f"replaces what an earlier run collected in {own}: {', '.join(removed)}" if removed else ""

    def variables(self, mode: CompileMode) -> dict[str, str]:
        """Variables by which the compiler of a mode writes its traces."""
        if self._folder is None or mode.eager:
            return {}
        own = (self._folder / file_name(mode.name)).absolute()
        return {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(own)}

    def keep(self, mode: CompileMode, lines: list[str]) -> None:
        """Write the log of a mode."""
        if self._folder is not None:
            own = ensure_folder(self._folder / file_name(mode.name))
            write_named(own / _LOG, "".join(f"{line}\n" for line in lines))


def _removed(path: Path) -> bool:
    """Remove a file, a link or a folder with all that is in it; whether there was one. No link is followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    else:
        return False
    return True
