"""Reports of run logs for terminals, pull requests, scripts and browsers, and the server of pages."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.report.command_report import report_command as report_command
    from triton_ops.report.live import watched as watched
    from triton_ops.report.page import page_of as page_of
    from triton_ops.report.server import serve_page as serve_page
    from triton_ops.report.tables import SHOWN as SHOWN
    from triton_ops.report.tables import Block as Block
    from triton_ops.report.tables import Part as Part
    from triton_ops.report.tables import further_parts as further_parts
    from triton_ops.report.tables import parts_of as parts_of
    from triton_ops.report.writers import markdown_of as markdown_of
    from triton_ops.report.writers import reports_json as reports_json
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
