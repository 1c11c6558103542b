"""The time of a launch, and the fastest of several: timers, rounds, race and decision."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.timing.gpu_timers import CaptureError as CaptureError
    from triton_ops.timing.gpu_timers import EmptyCaptureError as EmptyCaptureError
    from triton_ops.timing.gpu_timers import EventTimer as EventTimer
    from triton_ops.timing.gpu_timers import GraphTimer as GraphTimer
    from triton_ops.timing.policies import DuelPolicy as DuelPolicy
    from triton_ops.timing.policies import RacePolicy as RacePolicy
    from triton_ops.timing.policies import ScreenPolicy as ScreenPolicy
    from triton_ops.timing.race_statistics import DuelOutcome as DuelOutcome
    from triton_ops.timing.race_statistics import Interval as Interval
    from triton_ops.timing.race_statistics import Standing as Standing
    from triton_ops.timing.rounds import Arm as Arm
    from triton_ops.timing.rounds import Rounds as Rounds
    from triton_ops.timing.rounds import SharedTimer as SharedTimer
    from triton_ops.timing.timer import GuardSummary as GuardSummary
    from triton_ops.timing.timer import HostTimer as HostTimer
    from triton_ops.timing.timer import Launch as Launch
    from triton_ops.timing.timer import Pace as Pace
    from triton_ops.timing.timer import Sampler as Sampler
    from triton_ops.timing.timer import Timer as Timer
    from triton_ops.timing.timer import guard_for as guard_for
