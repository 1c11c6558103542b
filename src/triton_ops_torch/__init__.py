"""Ways to compile a model: the fastest one, with tools for what torch's and Triton's compilers say of themselves."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_torch.call_profile import advise as advise
    from triton_ops_torch.command_inductor import backends_command as backends_command
    from triton_ops_torch.command_inductor import draw_command as draw_command
    from triton_ops_torch.command_inductor import inductor_cache_command as inductor_cache_command
    from triton_ops_torch.command_inductor import log_command as log_command
    from triton_ops_torch.command_inductor import options_command as options_command
    from triton_ops_torch.command_model import advise_command as advise_command
    from triton_ops_torch.command_model import compile_modes_command as compile_modes_command
    from triton_ops_torch.comparing_modes import tune_compile as tune_compile
    from triton_ops_torch.compile_mode import CompileMode as CompileMode
    from triton_ops_torch.compiler_output import PrintedTune as PrintedTune
    from triton_ops_torch.compiler_output import parse_printed as parse_printed
    from triton_ops_torch.mode_report import CompileReport as CompileReport
