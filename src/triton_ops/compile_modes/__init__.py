"""Which way to compile a model is the fastest, and what torch's compiler says of itself."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.compile_modes.advice import Advice as Advice
    from triton_ops.compile_modes.advice import CallProfile as CallProfile
    from triton_ops.compile_modes.advice import OpShare as OpShare
    from triton_ops.compile_modes.advice import advise as advise
    from triton_ops.compile_modes.advice import decided as decided
    from triton_ops.compile_modes.command_model import advise_command as advise_command
    from triton_ops.compile_modes.command_model import compile_modes_command as compile_modes_command
    from triton_ops.compile_modes.contender import profiler as profiler
    from triton_ops.compile_modes.inductor.backends import LISTS as LISTS
    from triton_ops.compile_modes.inductor.backends import Kind as Kind
    from triton_ops.compile_modes.inductor.backends import gate_here as gate_here
    from triton_ops.compile_modes.inductor.backends import wrong_lists as wrong_lists
    from triton_ops.compile_modes.inductor.cache_folder import CacheContent as CacheContent
    from triton_ops.compile_modes.inductor.cache_folder import clean as clean
    from triton_ops.compile_modes.inductor.cache_folder import cleanable as cleanable
    from triton_ops.compile_modes.inductor.cache_folder import content_of as content_of
    from triton_ops.compile_modes.inductor.command_inductor import inductor_group as inductor_group
    from triton_ops.compile_modes.inductor.drawing import Picture as Picture
    from triton_ops.compile_modes.inductor.drawing import drawn as drawn
    from triton_ops.compile_modes.inductor.eligibility import Site as Site
    from triton_ops.compile_modes.inductor.eligibility import backend_choices as backend_choices
    from triton_ops.compile_modes.inductor.graph_pairs import GraphPair as GraphPair
    from triton_ops.compile_modes.inductor.graph_pairs import graphs_of as graphs_of
    from triton_ops.compile_modes.inductor.graph_pairs import launches_of as launches_of
    from triton_ops.compile_modes.inductor.graph_pairs import paired as paired
    from triton_ops.compile_modes.inductor.graphs import GraphNode as GraphNode
    from triton_ops.compile_modes.inductor.graphs import graphs_in as graphs_in
    from triton_ops.compile_modes.inductor.logs import AutotuneChoice as AutotuneChoice
    from triton_ops.compile_modes.inductor.logs import AutotuneTable as AutotuneTable
    from triton_ops.compile_modes.inductor.logs import CompilerLog as CompilerLog
    from triton_ops.compile_modes.inductor.logs import read_log as read_log
    from triton_ops.compile_modes.inductor.modes import MODES as MODES
    from triton_ops.compile_modes.inductor.modes import CompileMode as CompileMode
    from triton_ops.compile_modes.inductor.options import autotune_options as autotune_options
    from triton_ops.compile_modes.inductor.options import is_read as is_read
    from triton_ops.compile_modes.inductor.options import variables as variables
    from triton_ops.compile_modes.inductor.options import variables_by_option as variables_by_option
    from triton_ops.compile_modes.inductor.options import wrong_names as wrong_names
    from triton_ops.compile_modes.report import CompileReport as CompileReport
    from triton_ops.compile_modes.report import ModeResult as ModeResult
    from triton_ops.compile_modes.scenarios import SCENARIOS as SCENARIOS
    from triton_ops.compile_modes.session import tune_compile as tune_compile
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
