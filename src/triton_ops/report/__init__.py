"""Reports of run logs for terminals, pull requests, scripts and browsers, and the server of pages."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.report.command_report import report_command as report_command
    from triton_ops.report.live import watched as watched
    from triton_ops.report.server import serve_page as serve_page
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
