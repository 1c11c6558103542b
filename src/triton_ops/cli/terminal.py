"""The terminal that progress bars are drawn on, apart from what every command imports: rich takes its time."""

from __future__ import annotations

import sys

from rich.console import Console

from triton_ops import settings


def stderr() -> Console:
    """Standard error for a progress bar; a message that is written meanwhile stands above the bar."""
    return Console(
        stderr=True,
        highlight=False,
        emoji=False,
        soft_wrap=True,
        force_terminal=sys.stderr.isatty(),  # in a log file a progress bar is noise, whatever FORCE_COLOR says
        color_system="auto" if settings.colours() else None,
    )
