"""Many problems as one run, on the GPUs of one machine or of a Ray cluster."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".command_list": "ListedTune",
    ".executor": "Job JobPlace",
    ".problem": "RunOptions",
    ".session": "ManyResult ProblemOutcome run_jobs tune_many",
}

if TYPE_CHECKING:
    from triton_ops.many.command_list import ListedTune as ListedTune
    from triton_ops.many.executor import Job as Job
    from triton_ops.many.executor import JobPlace as JobPlace
    from triton_ops.many.problem import RunOptions as RunOptions
    from triton_ops.many.session import ManyResult as ManyResult
    from triton_ops.many.session import ProblemOutcome as ProblemOutcome
    from triton_ops.many.session import run_jobs as run_jobs
    from triton_ops.many.session import tune_many as tune_many
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
