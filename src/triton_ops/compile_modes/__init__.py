"""Ways to compile a model: the fastest one, with tools for what torch's compiler says of itself."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.compile_modes.advice import Advice as Advice
    from triton_ops.compile_modes.advice import CallProfile as CallProfile
    from triton_ops.compile_modes.advice import OpShare as OpShare
    from triton_ops.compile_modes.advice import advise as advise
    from triton_ops.compile_modes.command_model import advise_command as advise_command
    from triton_ops.compile_modes.command_model import compile_modes_command as compile_modes_command
    from triton_ops.compile_modes.contender import profiler as profiler
    from triton_ops.compile_modes.inductor.backends import gate_here as gate_here
    from triton_ops.compile_modes.inductor.cache_folder import CacheContent as CacheContent
    from triton_ops.compile_modes.inductor.command_inductor import inductor_group as inductor_group
    from triton_ops.compile_modes.inductor.eligibility import Site as Site
    from triton_ops.compile_modes.inductor.graph_pairs import ProgramGraphs as ProgramGraphs
    from triton_ops.compile_modes.inductor.logs import AutotuneChoice as AutotuneChoice
    from triton_ops.compile_modes.inductor.logs import AutotuneTable as AutotuneTable
    from triton_ops.compile_modes.inductor.logs import CompilerLog as CompilerLog
    from triton_ops.compile_modes.inductor.logs import ProductShape as ProductShape
    from triton_ops.compile_modes.inductor.modes import MODES as MODES
    from triton_ops.compile_modes.inductor.modes import CompileMode as CompileMode
    from triton_ops.compile_modes.inductor.options import autotune_options as autotune_options
    from triton_ops.compile_modes.inductor.options import wrong_variables as wrong_variables
    from triton_ops.compile_modes.report import CompileReport as CompileReport
    from triton_ops.compile_modes.session import tune_compile as tune_compile
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
