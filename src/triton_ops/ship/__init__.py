"""Tables of other engines, checks and loading ahead of winners, before something serves."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.ship.command_exchange import export_command as export_command
    from triton_ops.ship.command_exchange import import_command as import_command
    from triton_ops.ship.command_exchange import look_up_command as look_up_command
    from triton_ops.ship.command_exchange import portfolio_command as portfolio_command
    from triton_ops.ship.command_loading import expect_winners as expect_winners
    from triton_ops.ship.command_loading import load_kernels as load_kernels
    from triton_ops.ship.command_loading import tune_from_misses as tune_from_misses
    from triton_ops.ship.command_loading import verify_command as verify_command
    from triton_ops.ship.formats import ByBatch as ByBatch
    from triton_ops.ship.formats import format_named as format_named
    from triton_ops.ship.portfolio import Portfolio as Portfolio
    from triton_ops.ship.portfolio import choose_portfolio as choose_portfolio
    from triton_ops.ship.preparing import Prepared as Prepared
    from triton_ops.ship.preparing import prepare as prepare
    from triton_ops.ship.rows import ROWS as ROWS
    from triton_ops.ship.table import OPTIONS as OPTIONS
    from triton_ops.ship.table import Format as Format
    from triton_ops.ship.table import Table as Table
    from triton_ops.ship.targets import as_target as as_target
    from triton_ops.ship.verification import serve_idle as serve_idle
