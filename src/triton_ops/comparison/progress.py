"""A progress bar on stderr for a comparison: what is compared, how many rounds are done, seconds left at most."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Follow = Callable[[int, float], None]
"""Called after every round with the number of rounds so far and the seconds since the first began."""


@contextmanager
def rounds_bar(names: tuple[str, str], seconds: float, console: Console | None = None) -> Iterator[Follow]:
    """A bar that a comparison moves; nothing is drawn if stderr is no terminal.

    Args:
        names: The names of the two contestants.
        seconds: After so many seconds no round is started.
        console: Where the bar is drawn; None is stderr.
    """
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda _rounds, _elapsed_s: None
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=16), TimeRemainingColumn(compact=True),
        TextColumn("left at most"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{names[0]} and {names[1]} are prepared", total=None)

        def follow(rounds: int, elapsed_s: float) -> None:
            said = f"{names[0]} and {names[1]}, {rounds} {'round' if rounds == 1 else 'rounds'}"
            progress.update(task, description=said, total=seconds, completed=min(elapsed_s, seconds))

        yield follow
