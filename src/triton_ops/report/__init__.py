"""Reports of run logs for terminals, pull requests, scripts and browsers."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.report.command_report import report_command as report_command
    from triton_ops.report.live import watched as watched
    from triton_ops.report.run_choice import times_of as times_of
