"""The terminal on which progress bars are drawn, in its own module since the import of rich is slow."""

from __future__ import annotations

import sys

from rich.console import Console

from triton_ops import settings


def stderr() -> Console:
    """The console of stderr for a progress bar; messages are printed above the bar."""
    return Console(
        stderr=True, highlight=False, emoji=False, soft_wrap=True,
        force_terminal=sys.stderr.isatty(),  # no progress bar in a log file, even if FORCE_COLOR is set
        color_system="auto" if settings.colours() else None,
    )  # fmt: skip
