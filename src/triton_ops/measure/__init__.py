"""Timers for launches, and the rules that say which of several timed configs is the fastest."""

from triton_ops.measure.argument_sets import sets_needed as sets_needed
from triton_ops.measure.arm import Arm as Arm
from triton_ops.measure.arm import interleave as interleave
from triton_ops.measure.choose import choose_timer as choose_timer
from triton_ops.measure.choose import timer_of as timer_of
from triton_ops.measure.decision import INDIFFERENCE as INDIFFERENCE
from triton_ops.measure.decision import Decision as Decision
from triton_ops.measure.decision import Preference as Preference
from triton_ops.measure.decision import decide as decide
from triton_ops.measure.decision import gain as gain
from triton_ops.measure.decision import gap as gap
from triton_ops.measure.gpu import EventTimer as EventTimer
from triton_ops.measure.graph import CaptureError as CaptureError
from triton_ops.measure.graph import EmptyCaptureError as EmptyCaptureError
from triton_ops.measure.graph import GraphTimer as GraphTimer
from triton_ops.measure.race import RacePolicy as RacePolicy
from triton_ops.measure.race import race as race
from triton_ops.measure.screen import ScreenPolicy as ScreenPolicy
from triton_ops.measure.screen import fitting as fitting
from triton_ops.measure.screen import screen as screen
from triton_ops.measure.screen import screen_beside as screen_beside
from triton_ops.measure.screen import take as take
from triton_ops.measure.timer import HostTimer as HostTimer
from triton_ops.measure.timer import Launch as Launch
from triton_ops.measure.timer import Sampler as Sampler
from triton_ops.measure.timer import Timer as Timer
