"""Parts that all commands share: what they say and how it is written, options, errors as exit codes, and pages."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.terminal.completion import completion_command as completion_command
    from triton_ops.terminal.console import ExitCode as ExitCode
    from triton_ops.terminal.console import followed as followed
    from triton_ops.terminal.console import only_data_on_stdout as only_data_on_stdout
    from triton_ops.terminal.console import tell as tell
    from triton_ops.terminal.facts import Facts as Facts
    from triton_ops.terminal.interrupts import end_at_once_when_interrupted as end_at_once_when_interrupted
    from triton_ops.terminal.option_types import folder_of as folder_of
    from triton_ops.terminal.option_types import option as option
    from triton_ops.terminal.page import Page as Page
    from triton_ops.terminal.page_server import PageServer as PageServer
    from triton_ops.terminal.program import Program as Program
