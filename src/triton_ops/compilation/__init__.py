"""Configs before a launch: rules that need no compiler, and processes that compile ahead without a GPU."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.compilation.habits import PRODUCTS as PRODUCTS
    from triton_ops.compilation.habits import ROWS as ROWS
    from triton_ops.compilation.habits import Habit as Habit
    from triton_ops.compilation.habits import WarpChoice as WarpChoice
    from triton_ops.compilation.habits import stages_habit as stages_habit
    from triton_ops.compilation.habits import warp_choices as warp_choices
    from triton_ops.compilation.habits import warps_habit as warps_habit
    from triton_ops.compilation.idle_server import drop_idle_servers as drop_idle_servers
    from triton_ops.compilation.pipeline import LEGEND as LEGEND
    from triton_ops.compilation.pipeline import STAGES as STAGES
    from triton_ops.compilation.pipeline import Timeline as Timeline
    from triton_ops.compilation.pipeline import drawn as drawn
    from triton_ops.compilation.pipeline import timeline as timeline
    from triton_ops.compilation.pool import TIMEOUT_S as TIMEOUT_S
    from triton_ops.compilation.pool import CompilePool as CompilePool
    from triton_ops.compilation.pool import Compiles as Compiles
    from triton_ops.compilation.pool import SharedCpus as SharedCpus
    from triton_ops.compilation.queue import CompileJob as CompileJob
    from triton_ops.compilation.queue import Queue as Queue
    from triton_ops.compilation.rules import foresee as foresee
    from triton_ops.compilation.tiers import resources_of as resources_of
    from triton_ops.compilation.tiers import with_residents as with_residents
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
