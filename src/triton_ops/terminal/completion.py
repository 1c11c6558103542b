"""The command that prints what a shell reads to complete the words of the program."""

from __future__ import annotations

from typing import Annotated

import typer

from triton_ops.terminal.facts import Facts
from triton_ops.terminal.option_types import option
from triton_ops.terminal.page import Page
from triton_ops.terminal.program import COMPLETE, NO_FILES

_SHELLS = ("bash", "zsh", "fish")
"""A file of the assets is what each of them reads: it asks the program for the candidates.

Of these a line is a word, a tab and its help. bash shows no help; zsh takes it after a colon, and other colons escaped.
"""


def completion_command(
    context: typer.Context, shell: Annotated[str, option("SHELL", f"One of {', '.join(_SHELLS)}.")]
) -> Facts:
    """Print what a shell reads to complete commands, options and targets.

    For bash and zsh: eval "$(triton-ops completion SHELL)"; for fish: triton-ops completion fish | source.
    """
    if shell not in _SHELLS:
        raise typer.BadParameter(f"there is no completion for {shell!r}; there is for {', '.join(_SHELLS)}")
    script = Page.part("triton_ops.terminal", f"completion.{shell}")
    places = {"@PROGRAM@": str(context.find_root().info_name), "@COMPLETE@": COMPLETE, "@NO_FILES@": NO_FILES}
    for place, text in places.items():
        script = script.replace(place, text)
    return Facts("completion", {"shell": shell, "script": script}).lines(*script.splitlines(), end=None)
