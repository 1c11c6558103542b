"""The time of a launch, and the fastest of several: timers, rounds, race and decision."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.timing.duels import LEAST_ROUNDS as LEAST_ROUNDS
    from triton_ops.timing.duels import DuelOutcome as DuelOutcome
    from triton_ops.timing.duels import DuelPolicy as DuelPolicy
    from triton_ops.timing.duels import duel as duel
    from triton_ops.timing.gpu_timers import CaptureError as CaptureError
    from triton_ops.timing.gpu_timers import EmptyCaptureError as EmptyCaptureError
    from triton_ops.timing.gpu_timers import Pace as Pace
    from triton_ops.timing.gpu_timers import choose_timer as choose_timer
    from triton_ops.timing.gpu_timers import timer_of as timer_of
    from triton_ops.timing.guard import GuardSummary as GuardSummary
    from triton_ops.timing.guard import guard_for as guard_for
    from triton_ops.timing.microbenchmarks import calibrate_command as calibrate_command
    from triton_ops.timing.race_statistics import BEYOND_CHANCE as BEYOND_CHANCE
    from triton_ops.timing.race_statistics import INDIFFERENCE as INDIFFERENCE
    from triton_ops.timing.race_statistics import Interval as Interval
    from triton_ops.timing.race_statistics import RaceDecision as RaceDecision
    from triton_ops.timing.race_statistics import beats as beats
    from triton_ops.timing.race_statistics import decide as decide
    from triton_ops.timing.race_statistics import doubtful as doubtful
    from triton_ops.timing.race_statistics import gain as gain
    from triton_ops.timing.race_statistics import gap as gap
    from triton_ops.timing.race_statistics import gaps_to as gaps_to
    from triton_ops.timing.race_statistics import middle_mean as middle_mean
    from triton_ops.timing.race_statistics import relative_levels as relative_levels
    from triton_ops.timing.races import Arm as Arm
    from triton_ops.timing.races import RacePolicy as RacePolicy
    from triton_ops.timing.races import ScreenPolicy as ScreenPolicy
    from triton_ops.timing.races import fitting as fitting
    from triton_ops.timing.races import interleave as interleave
    from triton_ops.timing.races import race as race
    from triton_ops.timing.races import screen as screen
    from triton_ops.timing.timer import HostTimer as HostTimer
    from triton_ops.timing.timer import Launch as Launch
    from triton_ops.timing.timer import Pending as Pending
    from triton_ops.timing.timer import Sampler as Sampler
    from triton_ops.timing.timer import Timer as Timer
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
