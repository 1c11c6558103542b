"""Reports of run logs for terminals, pull requests, scripts and browsers."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".command_report": "report_command",
    ".live": "watched",
    ".run_choice": "times_of",
}

if TYPE_CHECKING:
    from triton_ops.report.command_report import report_command as report_command
    from triton_ops.report.live import watched as watched
    from triton_ops.report.run_choice import times_of as times_of
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
