"""`tune`: the look-up of a known winner, or the loop of search, trials and last comparison that finds one."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.tuner.gate import Gate as Gate
    from triton_ops.tuner.loop import TuningLoop as TuningLoop
    from triton_ops.tuner.progress import Listener as Listener
    from triton_ops.tuner.progress import ProgressBar as ProgressBar
    from triton_ops.tuner.progress import RunPlan as RunPlan
    from triton_ops.tuner.progress import RunProgress as RunProgress
    from triton_ops.tuner.progress import Silent as Silent
    from triton_ops.tuner.session import release_processes as release_processes
    from triton_ops.tuner.session import tune as tune
    from triton_ops.tuner.survey import Survey as Survey
    from triton_ops.tuner.tuning import RequestedTune as RequestedTune
