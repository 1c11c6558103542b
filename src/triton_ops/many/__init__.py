"""Many problems as one run, on the GPUs of one machine or of a Ray cluster."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.many.command_list import ListedTune as ListedTune
    from triton_ops.many.executor import Job as Job
    from triton_ops.many.executor import JobPlace as JobPlace
    from triton_ops.many.problem import RunOptions as RunOptions
    from triton_ops.many.session import ManyResult as ManyResult
    from triton_ops.many.session import ProblemOutcome as ProblemOutcome
    from triton_ops.many.session import run_jobs as run_jobs
    from triton_ops.many.session import tune_many as tune_many
