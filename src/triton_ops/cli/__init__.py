"""The program `triton-ops`: its start, its list of commands, and those that several high rooms serve."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.cli.app import imported as imported
    from triton_ops.cli.app import program as program
    from triton_ops.cli.inductor import inductor_command as inductor_command
    from triton_ops.cli.profile import profile_command as profile_command
    from triton_ops.cli.start import main as main
    from triton_ops.cli.tune import tune_command as tune_command
    from triton_ops.cli.why import why_command as why_command
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
