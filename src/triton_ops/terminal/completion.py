"""The command that prints what a shell reads to complete the words of the program."""

from __future__ import annotations

from typing import Annotated

import typer

from triton_ops.terminal.facts import Facts
from triton_ops.terminal.option_types import option
from triton_ops.terminal.program import COMPLETE, NO_FILES

# A line is a word, a tab and its help. bash shows no help; zsh takes it after a colon, and other colons escaped.
_SHELLS = {
    "bash": """\
_triton_ops() {{
    local IFS=$'\\n' lines
    lines=($({program} {complete} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
    if [ "${{lines[-1]}}" = "{no_files}" ]; then unset 'lines[-1]'; else compopt -o default; fi
    COMPREPLY=("${{lines[@]%%$'\\t'*}}")
}}
complete -F _triton_ops {program}
""",
    "zsh": """\
#compdef {program}
_triton_ops() {{
    local -a lines
    lines=("${{(@f)$({program} {complete} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ "${{lines[-1]}}" == "{no_files}" ]]; then lines[-1]=(); else _files; fi
    lines=("${{(@)lines//:/\\\\:}}")
    _describe '{program}' "${{(@)lines/$'\\t'/:}}"
}}
if [[ "${{funcstack[1]}}" == _triton_ops ]]; then _triton_ops "$@"; else compdef _triton_ops {program}; fi
""",
    "fish": """\
function __triton_ops
    set -l words (commandline -opc) (commandline -ct)
    set -l lines ({program} {complete} $words[2..] 2>/dev/null)
    if test "$lines[-1]" = "{no_files}"
        set -e lines[-1]
    else
        __fish_complete_path (commandline -ct)
    end
    string join \\n -- $lines
end
complete -c {program} -f -a '(__triton_ops)'
""",
}
"""What each shell reads for completion: it asks the program for the candidates."""


def completion_command(
    context: typer.Context, shell: Annotated[str, option("SHELL", f"One of {', '.join(_SHELLS)}.")]
) -> Facts:
    """Print what a shell reads to complete commands, options and targets.

    For bash and zsh: eval "$(triton-ops completion SHELL)"; for fish: triton-ops completion fish | source.
    """
    if shell not in _SHELLS:
        raise typer.BadParameter(f"there is no completion for {shell!r}; there is for {', '.join(_SHELLS)}")
    program = context.find_root().info_name
    script = _SHELLS[shell].format(program=program, complete=COMPLETE, no_files=NO_FILES)
    return Facts("completion", {"shell": shell, "script": script}).lines(*script.splitlines(), end=None)
