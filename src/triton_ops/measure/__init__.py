"""How long it took, and which is faster."""

from triton_ops.hardware import DeviceSpec
from triton_ops.measure.decision import INDIFFERENCE as INDIFFERENCE
from triton_ops.measure.decision import Decision as Decision
from triton_ops.measure.decision import decide as decide
from triton_ops.measure.gpu import EventTimer as EventTimer
from triton_ops.measure.interleave import Arm as Arm
from triton_ops.measure.interleave import interleave as interleave
from triton_ops.measure.screen import ScreenPolicy as ScreenPolicy
from triton_ops.measure.screen import screen as screen
from triton_ops.measure.timer import HostTimer as HostTimer
from triton_ops.measure.timer import Launch as Launch
from triton_ops.measure.timer import Timer as Timer


def timer_for(device: DeviceSpec, name: str | None = None) -> Timer:
    """The clock of a device: events on a GPU, the host's on a CPU.

    Args:
        device: Its spec.
        name: Its torch name, such as `cuda:1`; None is the current GPU.
    """
    return HostTimer() if device.kind == "cpu" else EventTimer(name or "cuda")
